// Package top shows how a running server is doing: it reads the statistics, the
// repository index and the metrics over HTTP, computes what happened between
// two readings and shows it as a live view, a table or JSON. It uses only the
// protocol, so it works with a Triton server too, with fewer columns filled.
package top

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// A Target is the address of a server.
type Target struct {
	URL     string // of its HTTP endpoint, such as http://localhost:8000, or unix:///path
	Metrics string // of its metrics, such as http://localhost:8002/metrics, or unix:///path
	// Models are those to show, with the models that are in them when they are
	// ensembles; all when there are none.
	Models []string
}

// unixPrefix begins the address of a Unix socket.
const unixPrefix = "unix://"

// metricsOffset is how far the default metrics port is from the HTTP port.
const metricsOffset = 2

// ParseTarget reads the addresses of a server. A scheme may be left out, and an
// empty metrics address means that of the same host, two ports on.
// The metrics of a server on a Unix socket are on port 8002 of this machine.
func ParseTarget(address, metrics string) (Target, error) {
	if path, ok := strings.CutPrefix(metrics, unixPrefix); ok && path != "" {
		t, err := ParseTarget(address, "localhost")
		t.Metrics = metrics
		return t, err
	}
	if path, ok := strings.CutPrefix(address, unixPrefix); ok && path != "" {
		t, err := ParseTarget("localhost:8000", metrics)
		t.URL = address
		return t, err
	}
	u, err := parseURL(address)
	if err != nil {
		return Target{}, err
	}
	t := Target{URL: strings.TrimSuffix(u.String(), "/")}
	if metrics == "" {
		t.Metrics, err = besides(u)
		return t, err
	}
	m, err := parseURL(metrics)
	if err != nil {
		return Target{}, err
	}
	if m.Path == "" || m.Path == "/" {
		m.Path = "/metrics"
	}
	t.Metrics = m.String()
	return t, nil
}

func parseURL(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL, want one like http://localhost:8000 or unix:///path", address)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not the URL of a server, want one like http://localhost:8000 or unix:///path", address)
	}
	return u, nil
}

// besides returns the default address of a server's metrics, next to its HTTP
// address.
func besides(u *url.URL) (string, error) {
	port := 80
	if u.Scheme == "https" {
		port = 443
	}
	if text := u.Port(); text != "" {
		var err error
		if port, err = strconv.Atoi(text); err != nil {
			return "", fmt.Errorf("%q has no port that is a number", u)
		}
	}
	m := url.URL{Scheme: u.Scheme, Host: net.JoinHostPort(u.Hostname(), strconv.Itoa(port+metricsOffset)), Path: "/metrics"}
	return m.String(), nil
}
