package cli

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"

	"shoal/internal/cli/command"
	"shoal/internal/protocol/tlsfiles"
)

// secureFlags are the TLS flags of a protocol.
type secureFlags struct {
	protocol        string // begins their names
	use, mutual     bool
	cert, key, root string
}

func (f *secureFlags) add(g *command.Group, protocol string) {
	f.protocol = protocol
	or := func(flag string) string {
		if protocol != "metrics" {
			return ""
		}
		return "; --http-" + flag + " when empty"
	}
	g.Truth(&f.use, protocol+"-use-ssl", false, "serve over TLS with the certificate below, which is read again when it changes")
	g.Truth(&f.mutual, protocol+"-use-ssl-mutual", false, "ask clients for a certificate too; turns TLS on")
	g.Text(&f.cert, protocol+"-server-cert", "", "PEM `file` with the server's certificate"+or("server-cert"))
	g.Text(&f.key, protocol+"-server-key", "", "PEM `file` with the server's key"+or("server-key"))
	g.Text(&f.root, protocol+"-root-cert", "", "PEM `file` with the authorities that sign clients' certificates"+or("root-cert"))
}

// on reports whether the protocol is served over TLS.
func (f *secureFlags) on() bool { return f.use || f.mutual }

// check finds files that are not named.
func (f *secureFlags) check() error {
	switch {
	case f.on() && (f.cert == "" || f.key == ""):
		return fmt.Errorf("--%[1]s-use-ssl needs --%[1]s-server-cert and --%[1]s-server-key", f.protocol)
	case f.mutual && f.root == "":
		return fmt.Errorf("--%[1]s-use-ssl-mutual needs --%[1]s-root-cert", f.protocol)
	}
	return nil
}

// inherit fills in the files that are not named from another protocol's.
func (f *secureFlags) inherit(other secureFlags) {
	f.cert, f.key, f.root = cmp.Or(f.cert, other.cert), cmp.Or(f.key, other.key), cmp.Or(f.root, other.root)
}

// config returns the TLS settings for next, the protocol that is spoken over
// TLS; nil when TLS is off.
func (f *secureFlags) config(next string, log *slog.Logger) (*tls.Config, error) {
	if !f.on() {
		return nil, nil
	}
	files := tlsfiles.Files{Protocol: f.protocol, Cert: f.cert, Key: f.key}
	if f.mutual {
		files.Root = f.root
	}
	return files.Config(next, log)
}
