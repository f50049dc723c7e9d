package kservegrpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/protocol/tlsfiles"
)

// makeCertificate writes a certificate that vouches for itself, and its key.
func makeCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER)
}

// secure returns the settings of a server with these files.
func secure(t *testing.T, cert, key, root string) *tls.Config {
	t.Helper()
	cfg, err := tlsfiles.Files{Protocol: "grpc", Cert: cert, Key: key, Root: root}.Config("h2", testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestServerSpeaksTLS(t *testing.T) {
	cert, key := makeCertificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	for _, c := range []struct {
		name   string
		mutual bool
		shows  []tls.Certificate
		code   codes.Code
	}{
		{"server alone", false, nil, codes.OK},
		{"mutual", true, []tls.Certificate{pair}, codes.OK},
		{"mutual, client shows nothing", true, nil, codes.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := ""
			if c.mutual {
				root = cert
			}
			s := startServer(t, Options{TLS: secure(t, cert, key, root)})
			creds := credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: c.shows})
			client := pb.NewGRPCInferenceServiceClient(dial(t, s.Addr(), grpc.WithTransportCredentials(creds)))
			if _, err := client.ModelInfer(t.Context(), floatsRequest(1)); grpcstatus.Code(err) != c.code {
				t.Errorf("got %v, want %v", err, c.code)
			}
		})
	}
}
