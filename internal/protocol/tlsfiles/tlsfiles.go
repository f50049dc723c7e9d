// Package tlsfiles makes the TLS configuration of a server whose certificates
// are files. When the files change, connections from then on use the new ones. A
// configuration is safe for concurrent use.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files are the settings of a protocol, with the files in PEM form.
type Files struct {
	Protocol  string // begins the names of its flags, such as grpc
	Cert, Key string
	Root      string // signs the certificates that clients must have; empty when they need none
}

// checkInterval is how often handshakes look whether the files have changed.
const checkInterval = time.Second

// Config returns the configuration, with next as the protocol that is spoken
// over TLS. The errors name the flags to change.
func (f Files) Config(next string, log *slog.Logger) (*tls.Config, error) {
	r := &reloader{files: f, next: next, log: log}
	stamp, err := f.stamp()
	if err != nil {
		return nil, err
	}
	if r.config, err = f.load(next); err != nil {
		return nil, err
	}
	r.stamp, r.checked = stamp, time.Now()
	cfg := r.config.Clone()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.current(time.Now()), nil }
	return cfg, nil
}

// load reads the files.
func (f Files) load(next string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("--%[1]s-server-cert, --%[1]s-server-key: %[2]w", f.Protocol, err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{next}}
	if f.Root == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(f.Root)
	if err != nil {
		return nil, fmt.Errorf("--%s-root-cert: %w", f.Protocol, err)
	}
	cfg.ClientCAs = x509.NewCertPool()
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--%s-root-cert: %s has no certificate in PEM form", f.Protocol, f.Root)
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	// A resumed session would be accepted although its certificate's authority
	// was removed.
	cfg.SessionTicketsDisabled = true
	return cfg, nil
}

// A stamp tells whether files have changed.
type stamp [3]struct {
	modified time.Time
	size     int64
}

// stamp returns the stamp of the files as they are now.
func (f Files) stamp() (s stamp, err error) {
	for i, file := range []struct{ flag, path string }{{"server-cert", f.Cert}, {"server-key", f.Key}, {"root-cert", f.Root}} {
		if i == 2 && file.path == "" {
			break
		}
		info, err := os.Stat(file.path)
		if err != nil {
			return s, fmt.Errorf("--%s-%s: %w", f.Protocol, file.flag, err)
		}
		s[i].modified, s[i].size = info.ModTime(), info.Size()
	}
	return s, nil
}

// A reloader has the configuration of the files.
type reloader struct {
	files Files
	next  string
	log   *slog.Logger

	mu      sync.Mutex // protects the fields below
	config  *tls.Config
	stamp   stamp // of the files that config was read from
	failed  string
	checked time.Time
}

// current returns the configuration for a new connection. If changed files
// cannot be used, the last good ones stay: a certificate and its key do not
// change at the same moment.
func (r *reloader) current(now time.Time) *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.checked) < checkInterval {
		return r.config
	}
	r.checked = now
	s, err := r.files.stamp()
	if err == nil && s == r.stamp && r.failed == "" {
		return r.config
	}
	var cfg *tls.Config
	if err == nil {
		cfg, err = r.files.load(r.next)
	}
	switch {
	case err == nil:
		r.config, r.stamp, r.failed = cfg, s, ""
		r.log.Info("certificates reloaded", "protocol", r.files.Protocol)
	case err.Error() != r.failed:
		r.failed = err.Error()
		r.log.Warn("changed certificates cannot be used; the last good ones stay", "protocol", r.files.Protocol, "err", err)
	}
	return r.config
}
