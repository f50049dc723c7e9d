package kservegrpc

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
)

// TLS has the settings for secure connections.
type TLS struct {
	Use    bool
	Mutual bool // clients must have a certificate that Root has signed
	// The files, in PEM form.
	Cert, Key, Root string
}

// credentials returns the server's credentials for t, nil when TLS is off.
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
