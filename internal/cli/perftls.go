package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"shoal/internal/perf"
)

// perfTLS are perf's flags about TLS, by protocol as perf_analyzer has them.
type perfTLS struct {
	grpc                      bool
	grpcRoots                 string
	grpcKey, grpcChain        string
	verifyPeer, verifyHost    int
	httpsRoots                string
	httpsKey, httpsChain      string
	httpsKeyType, httpsChType string
}

func (f *perfTLS) add(g *flagGroup) {
	g.toggle(&f.grpc, "ssl-grpc-use-ssl", "gRPC over TLS")
	g.text(&f.grpcRoots, "ssl-grpc-root-certifications-file", "", "gRPC: `file` with the certificates to trust (default: the system's)")
	g.text(&f.grpcKey, "ssl-grpc-private-key-file", "", "gRPC: `file` with the key of the client's certificate")
	g.text(&f.grpcChain, "ssl-grpc-certificate-chain-file", "", "gRPC: `file` with the client's certificate")
	g.number(&f.verifyPeer, "ssl-https-verify-peer", 1, "https: `0 or 1`; 0 trusts any certificate")
	g.number(&f.verifyHost, "ssl-https-verify-host", 2, "https: `0 to 2`; 0 and 1 take a certificate of another host")
	g.text(&f.httpsRoots, "ssl-https-ca-certificates-file", "", "https: `file` with the certificates to trust (default: the system's)")
	g.text(&f.httpsChain, "ssl-https-client-certificate-file", "", "https: `file` with the client's certificate")
	g.text(&f.httpsChType, "ssl-https-client-certificate-type", "PEM", "https: `PEM`")
	g.text(&f.httpsKey, "ssl-https-private-key-file", "", "https: `file` with the key of the client's certificate")
	g.text(&f.httpsKeyType, "ssl-https-private-key-type", "PEM", "https: `PEM`")
}

// config returns what the flags say; nil when there is no TLS.
func (f *perfTLS) config(protocol string, byURL bool) (*tls.Config, error) {
	if protocol == perf.GRPC {
		if !f.grpc && !byURL {
			return nil, nil
		}
		return tlsConfig("ssl-grpc-root-certifications-file", f.grpcRoots, f.grpcChain, f.grpcKey)
	}
	if !byURL {
		return nil, nil
	}
	if f.httpsChType != "PEM" || f.httpsKeyType != "PEM" {
		return nil, errors.New("--ssl-https-client-certificate-type and --ssl-https-private-key-type take PEM only")
	}
	c, err := tlsConfig("ssl-https-ca-certificates-file", f.httpsRoots, f.httpsChain, f.httpsKey)
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

func tlsConfig(flag, roots, chain, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if roots != "" {
		pem, err := os.ReadFile(roots)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--%s %s has no certificate in PEM", flag, roots)
		}
	}
	if chain != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(chain, key)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// anyHost takes certificates of any host that a trusted authority has signed.
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
