package cli

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"

	"shoal/internal/modelstore"
)

func TestKeystoreHasTheKeyAndItsCertificates(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	plain := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "h"}, NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, plain, plain, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	p12, err := pkcs12.Modern.Encode(key, leaf, nil, "changeit")
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	store := keystore.New()
	entry := keystore.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: pkcs8, CertificateChain: []keystore.Certificate{{Type: "X509", Content: raw}}}
	if err := store.SetPrivateKeyEntry("key", entry, []byte("changeit")); err != nil {
		t.Fatal(err)
	}
	var jks bytes.Buffer
	if err := store.Store(&jks, []byte("changeit")); err != nil {
		t.Fatal(err)
	}
	for kind, b := range map[string][]byte{"PKCS12": p12, "JKS": jks.Bytes()} {
		file := filepath.Join(t.TempDir(), "keystore")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		m := &modelServer{config: &modelServerConfig{keystore: file, keystorePass: "changeit"}}
		cert, err := m.certificate()
		if err != nil {
			t.Fatal(err)
		}
		if len(cert.Certificate) != 1 || !bytes.Equal(cert.Certificate[0], raw) || !key.Equal(cert.PrivateKey) {
			t.Errorf("%s: got %d certificates and the key %v", kind, len(cert.Certificate), cert.PrivateKey)
		}
		m.config.keystorePass = "wrong"
		if _, err := m.certificate(); err == nil || !strings.Contains(err.Error(), "keystore_pass") {
			t.Errorf("%s: got %v, want an error about the password", kind, err)
		}
	}
}

func TestHTTPSWithoutACertificateMakesOne(t *testing.T) {
	m := &modelServer{config: &modelServerConfig{}}
	first, err := m.certificate()
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.certificate()
	if err != nil || !bytes.Equal(first.Certificate[0], second.Certificate[0]) {
		t.Errorf("got another certificate for the second listener, or %v", err)
	}
	leaf, err := x509.ParseCertificate(first.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(leaf)
	for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: trusted}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	m.config.key = "key.pem"
	if _, err := m.certificate(); err == nil || !strings.Contains(err.Error(), "certificate_file") {
		t.Errorf("got %v, want the key that is missing", err)
	}
}

func TestModelServersListenOnThisMachineOnly(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, d := range []modelstore.Dialect{modelstore.MMS, modelstore.TorchServe} {
		c, err := newModelServerConfig(d, "", false, map[string]string{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []modelServerAddress{c.inference, c.management} {
			if a.host != "127.0.0.1" || a.open() {
				t.Errorf("%v listens on %q without being told", d, a.host)
			}
		}
	}
}
