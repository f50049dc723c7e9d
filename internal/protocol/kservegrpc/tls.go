package kservegrpc

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
)

// TLS says how connections are secured.
type TLS struct {
	Use    bool
	Mutual bool // clients must show a certificate that Root vouches for
	// The files, in PEM form.
	Cert, Key, Root string
}

// credentials returns what the server needs for t, nil when it is not used.
func (t TLS) credentials() (credentials.TransportCredentials, error) {
	if !t.Use {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("gRPC: read the server's certificate and key: %w", err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if !t.Mutual {
		return credentials.NewTLS(cfg), nil
	}
	pem, err := os.ReadFile(t.Root)
	if err != nil {
		return nil, fmt.Errorf("gRPC: read the root certificate: %w", err)
	}
	cfg.ClientCAs = x509.NewCertPool()
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("gRPC: root certificate %s: no certificate in PEM form", t.Root)
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	return credentials.NewTLS(cfg), nil
}
