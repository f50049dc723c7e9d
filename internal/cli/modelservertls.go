package cli

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"
)

// certificate returns the certificate for https: the configured one, or as in the
// originals one that the server makes for itself.
func (m *modelServer) certificate() (tls.Certificate, error) {
	c := m.config
	switch {
	case c.keystore != "":
		return readKeystore(c.keystore, c.keystorePass)
	case c.key == "" && c.cert == "":
		m.selfSigned.Do(func() { m.ownCert, m.ownCertErr = selfSigned() })
		return m.ownCert, m.ownCertErr
	case c.key == "" || c.cert == "":
		return tls.Certificate{}, errors.New("private_key_file and certificate_file go together; the configuration has one of them")
	}
	cert, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return cert, fmt.Errorf("private_key_file and certificate_file: %w", err)
	}
	return cert, nil
}

// selfSigned makes a certificate for this machine that no authority has signed.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	now := time.Now()
	plain := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, plain, plain, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, err
}

// readKeystore reads the first key and its certificates from a file that keytool
// has made, of either type: PKCS12 or JKS.
func readKeystore(file, password string) (tls.Certificate, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("keystore: %w", err)
	}
	read := readPKCS12
	if bytes.HasPrefix(b, []byte{0xfe, 0xed, 0xfe, 0xed}) {
		read = readJKS
	}
	cert, err := read(b, password)
	if err != nil {
		return cert, fmt.Errorf("keystore %s, with keystore_pass: %w", file, err)
	}
	return cert, nil
}

func readPKCS12(b []byte, password string) (tls.Certificate, error) {
	key, leaf, others, err := pkcs12.DecodeChain(b, password)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert := tls.Certificate{PrivateKey: key, Leaf: leaf, Certificate: [][]byte{leaf.Raw}}
	for _, c := range others {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return cert, nil
}

func readJKS(b []byte, password string) (cert tls.Certificate, err error) {
	store := keystore.New(keystore.WithOrderedAliases())
	if err := store.Load(bytes.NewReader(b), []byte(password)); err != nil {
		return cert, err
	}
	for _, alias := range store.Aliases() {
		if !store.IsPrivateKeyEntry(alias) {
			continue
		}
		entry, err := store.GetPrivateKeyEntry(alias, []byte(password))
		if err != nil {
			return cert, err
		}
		for _, c := range entry.CertificateChain {
			cert.Certificate = append(cert.Certificate, c.Content)
		}
		cert.PrivateKey, err = x509.ParsePKCS8PrivateKey(entry.PrivateKey)
		return cert, err
	}
	return cert, errors.New("it has no private key")
}
