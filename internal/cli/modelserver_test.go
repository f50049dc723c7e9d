package cli

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
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
	made, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	key, raw := made.PrivateKey.(*ecdsa.PrivateKey), made.Certificate[0]
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
