package tlsfiles

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write writes a certificate for name that vouches for itself, and its key. The
// files are older than those of the next call.
func write(t *testing.T, dir, name string, number int) Files {
	t.Helper()
	f := Files{Protocol: "http", Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(number)), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	save(t, f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), number)
	save(t, f.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), number)
	return f
}

// save writes a file as of a second of 2020.
func save(t *testing.T, path string, data []byte, second int) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2020, 1, 1, 0, 0, second, 0, time.UTC)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func name(t *testing.T, cfg *tls.Config) string {
	t.Helper()
	cert, err := x509.ParseCertificate(cfg.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert.Subject.CommonName
}

func TestChangedFilesAreUsed(t *testing.T) {
	dir := t.TempDir()
	f := write(t, dir, "first", 1)
	var log bytes.Buffer
	cfg, err := f.load("http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	stamp, err := f.stamp()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	r := &reloader{files: f, next: "http/1.1", log: slog.New(slog.NewTextHandler(&log, nil)), config: cfg, stamp: stamp, checked: now}
	steps := []struct {
		does  string
		files func()
		after time.Duration
		want  string
		logs  string // what the log has at the end of this step, once more than before
	}{
		{"nothing", func() {}, time.Hour, "first", ""},
		{"new files", func() { write(t, dir, "second", 2) }, checkInterval / 2, "first", ""},
		{"a moment later", func() {}, checkInterval, "second", "certificates reloaded"},
		{"a certificate without its key", func() {
			key, err := os.ReadFile(f.Key)
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, "third", 3)
			save(t, f.Key, key, 2)
		}, checkInterval, "second", "the last good ones stay"},
		{"still without", func() {}, checkInterval, "second", ""},
		{"the key", func() { write(t, dir, "third", 4) }, checkInterval, "third", "certificates reloaded"},
		{"no file", func() { _ = os.Remove(f.Cert) }, checkInterval, "third", "--http-server-cert"},
		{"the file again", func() { write(t, dir, "fourth", 5) }, checkInterval, "fourth", "certificates reloaded"},
	}
	for _, s := range steps {
		s.files()
		now = now.Add(s.after)
		before := log.Len()
		if got := name(t, r.current(now)); got != s.want {
			t.Errorf("%s: got the certificate of %s, want %s", s.does, got, s.want)
		}
		if said := log.String()[before:]; (said == "") != (s.logs == "") || !strings.Contains(said, s.logs) {
			t.Errorf("%s: got in the log %q, want %q", s.does, said, s.logs)
		}
	}
}

func TestFilesThatCannotBeUsedAreNamedByTheirFlag(t *testing.T) {
	good := write(t, t.TempDir(), "good", 1)
	other := write(t, t.TempDir(), "other", 1)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	save(t, empty, nil, 1)
	with := func(change func(*Files)) Files { f := good; change(&f); return f }
	for name, c := range map[string]struct {
		files Files
		want  string
	}{
		"no certificate":           {with(func(f *Files) { f.Cert = "nosuch" }), "--http-server-cert: "},
		"no key":                   {with(func(f *Files) { f.Key = "nosuch" }), "--http-server-key: "},
		"an empty key":             {with(func(f *Files) { f.Key = empty }), "--http-server-key: "},
		"another's key":            {with(func(f *Files) { f.Key = other.Key }), "--http-server-key: "},
		"no root":                  {with(func(f *Files) { f.Root = "nosuch" }), "--http-root-cert: "},
		"a root without a content": {with(func(f *Files) { f.Root = empty }), "--http-root-cert: " + empty},
	} {
		if _, err := c.files.Config("h2", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	cfg, err := with(func(f *Files) { f.Root = good.Cert }).Config("h2", slog.New(slog.DiscardHandler))
	if err != nil || cfg.ClientAuth != tls.RequireAndVerifyClientCert {
		t.Errorf("mutual: got %v, want clients to need a certificate", err)
	}
}
