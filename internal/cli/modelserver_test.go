package cli

import (
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
	b, err := pkcs12.Modern.Encode(key, leaf, nil, "changeit")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keystore.p12")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	m := &modelServer{config: &modelServerConfig{keystore: file, keystorePass: "changeit"}}
	cert, err := m.certificate()
	if err != nil {
		t.Fatal(err)
	}
	if cert.Leaf.Subject.CommonName != "h" || !key.Equal(cert.PrivateKey) {
		t.Errorf("got %+v", cert.Leaf.Subject)
	}
	m.config.keystorePass = "wrong"
	if _, err := m.certificate(); err == nil || !strings.Contains(err.Error(), "keystore_pass") {
		t.Errorf("got %v, want an error about the password", err)
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
