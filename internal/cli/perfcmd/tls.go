package perfcmd

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"shoal/internal/cli/command"
	"shoal/internal/perf/result"
)

// tlsFlags are perf's flags about TLS, by protocol as in perf_analyzer.
type tlsFlags struct {
	grpc                      bool
	grpcRoots                 string
	grpcKey, grpcChain        string
	verifyPeer, verifyHost    int
	httpsRoots                string
	httpsKey, httpsChain      string
	httpsKeyType, httpsChType string
}

func (f *tlsFlags) add(g *command.Group) {
	g.Toggle(&f.grpc, "ssl-grpc-use-ssl", "gRPC over TLS")
	g.Text(&f.grpcRoots, "ssl-grpc-root-certifications-file", "", "gRPC: `file` with the certificates to trust (default: the system's)")
	g.Text(&f.grpcKey, "ssl-grpc-private-key-file", "", "gRPC: `file` with the key of the client's certificate")
	g.Text(&f.grpcChain, "ssl-grpc-certificate-chain-file", "", "gRPC: `file` with the client's certificate")
	g.Number(&f.verifyPeer, "ssl-https-verify-peer", 1, "https: `0 or 1`; 0 trusts any certificate")
	g.Number(&f.verifyHost, "ssl-https-verify-host", 2, "https: `0 to 2`; 0 and 1 accept a certificate for another host")
	g.Text(&f.httpsRoots, "ssl-https-ca-certificates-file", "", "https: `file` with the certificates to trust (default: the system's)")
	g.Text(&f.httpsChain, "ssl-https-client-certificate-file", "", "https: `file` with the client's certificate")
	g.Text(&f.httpsChType, "ssl-https-client-certificate-type", pemForm, "https: `PEM|DER`")
	g.Text(&f.httpsKey, "ssl-https-private-key-file", "", "https: `file` with the key of the client's certificate")
	g.Text(&f.httpsKeyType, "ssl-https-private-key-type", pemForm, "https: `PEM|DER`")
}

// config returns the TLS configuration; nil when there is no TLS.
func (f *tlsFlags) config(protocol string, byURL bool) (*tls.Config, error) {
	if protocol == result.GRPC {
		if !f.grpc && !byURL {
			return nil, nil
		}
		return tlsConfig("ssl-grpc-root-certifications-file", f.grpcRoots, tlsFile{f.grpcChain, pemForm}, tlsFile{f.grpcKey, pemForm})
	}
	if f.verifyPeer < 0 || f.verifyPeer > 1 || f.verifyHost < 0 || f.verifyHost > 2 {
		return nil, fmt.Errorf("--ssl-https-verify-peer is %d and --ssl-https-verify-host %d, want 0 or 1 and 0 to 2", f.verifyPeer, f.verifyHost)
	}
	if !byURL {
		return nil, nil
	}
	for _, kind := range []string{f.httpsChType, f.httpsKeyType} {
		if kind != pemForm && kind != derForm {
			return nil, fmt.Errorf("--ssl-https-client-certificate-type and --ssl-https-private-key-type take PEM or DER, not %q", kind)
		}
	}
	c, err := tlsConfig("ssl-https-ca-certificates-file", f.httpsRoots, tlsFile{f.httpsChain, f.httpsChType}, tlsFile{f.httpsKey, f.httpsKeyType})
	if err != nil {
		return nil, err
	}
	if f.verifyPeer == 0 {
		c.InsecureSkipVerify = true
	} else if f.verifyHost < 2 {
		anyHost(c)
	}
	return c, nil
}

// The formats of certificates and keys.
const (
	pemForm = "PEM"
	derForm = "DER"
)

// A tlsFile is a file with a certificate or a key, and its format.
type tlsFile struct{ path, form string }

// read returns the file in PEM.
func (f tlsFile) read(block string) ([]byte, error) {
	data, err := os.ReadFile(f.path)
	if err != nil || f.form == pemForm {
		return data, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: block, Bytes: data}), nil
}

func tlsConfig(flag, roots string, chain, key tlsFile) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if roots != "" {
		trusted, err := os.ReadFile(roots)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(trusted) {
			return nil, fmt.Errorf("--%s %s has no certificate in PEM", flag, roots)
		}
	}
	if chain.path != "" || key.path != "" {
		pair, err := keyPair(chain, key)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func keyPair(chain, key tlsFile) (tls.Certificate, error) {
	// Go tries all forms of keys under that name.
	own, err := key.read("PRIVATE KEY")
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := chain.read("CERTIFICATE")
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, own)
}

// anyHost accepts certificates for any host that a trusted authority has
// signed.
func anyHost(c *tls.Config) {
	c.InsecureSkipVerify = true // the chain is verified below, the name is not
	c.VerifyConnection = func(state tls.ConnectionState) error {
		between := x509.NewCertPool()
		for _, cert := range state.PeerCertificates[1:] {
			between.AddCert(cert)
		}
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: c.RootCAs, Intermediates: between})
		return err
	}
}
