package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/credentials"
)

// An authority signs certificates for loopback.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "attack"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

// issue returns a certificate for 127.0.0.1 with its key.
func (a *authority) issue() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "loopback"}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// client returns what a client of a server of this authority has, with the
// certificates that it shows.
func (a *authority) client(own ...tls.Certificate) credentials.TransportCredentials {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: own})
}

// serverFlags writes the files of a server's certificate into dir and returns
// its flags.
func (a *authority) serverFlags(dir string, mutual bool) ([]string, error) {
	cert, err := a.issue()
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		return nil, err
	}
	write := func(name, kind string, der []byte) (path string) {
		path = filepath.Join(dir, name)
		err = errors.Join(err, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	flags := []string{
		"--grpc-server-cert", write("server.crt", "CERTIFICATE", cert.Certificate[0]),
		"--grpc-server-key", write("server.key", "EC PRIVATE KEY", key),
		"--grpc-root-cert", write("root.crt", "CERTIFICATE", a.cert.Raw),
	}
	if mutual {
		return append(flags, "--grpc-use-ssl-mutual=true"), err
	}
	return append(flags, "--grpc-use-ssl=true"), err
}

// overTLS returns the stage with gRPC over TLS, and the authority of its
// certificates.
func (s stage) overTLS(mutual bool) (stage, *authority, error) {
	a, err := newAuthority()
	if err != nil {
		return s, nil, err
	}
	own, err := a.issue()
	if err != nil {
		return s, nil, err
	}
	if err := os.MkdirAll(s.work, 0o755); err != nil {
		return s, nil, err
	}
	if s.flags, err = a.serverFlags(s.work, mutual); err != nil {
		return s, nil, err
	}
	s.tls = a.client()
	if mutual {
		s.tls = a.client(own)
	}
	return s, a, nil
}
