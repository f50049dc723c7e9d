package modelstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Whoever may register a model can make the server fetch a URL, so that only what
// the operator allows is fetched: what matches allowed_urls, and the places of the
// original servers' own examples. Every redirect must match as well. A host that
// turns out to have a private address must be named in full by a pattern: a
// pattern for many hosts does not open the network behind the server. Without any
// pattern only this machine itself is allowed, and no redirects.

// zoo are the places of the originals' examples.
var zoo = []*regexp.Regexp{
	regexp.MustCompile(`^(?i:https://s3\.amazonaws\.com/model-server/.*)$`),
	regexp.MustCompile(`^(?i:https://torchserve\.pytorch\.org/.*)$`),
}

// maxDownload is the most bytes of an archive that is fetched.
const maxDownload = 64 << 30

// errStatus is the error of an answer that is not 200.
type errStatus int

func (e errStatus) Error() string { return fmt.Sprintf("the answer has status %d", int(e)) }

// download fetches an archive into a temporary file.
func (s *Store) download(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil && s.opt.Dialect == MMS {
		return "", errorf(404, kindNotFound, "Invalid model url: %s", address).because(err)
	}
	if err == nil {
		err = s.allowed(u)
		if errors.Is(err, errNotAllowed) && s.opt.Dialect == TorchServe {
			return "", errorf(404, kindNotFound, "Given URL %s does not match any allowed URL(s)", address)
		}
	}
	var file string
	if err == nil {
		file, err = s.get(ctx, u)
	}
	if err == nil {
		return file, nil
	}
	s.opt.Log.Warn("archive not fetched", "url", address, "err", err)
	if s.opt.Dialect == TorchServe {
		return "", errorf(400, kindDownloadTS, "Failed to download archive from: %s", address).because(err)
	}
	text := "Failed to download model from: " + address
	if code, ok := errors.AsType[errStatus](err); ok {
		text += fmt.Sprintf(", code: %d", int(code))
	}
	return "", errorf(400, kindDownload, "%s", text).because(err)
}

var errNotAllowed = errors.New("the URL matches none of allowed_urls")

// allowed checks a URL, as a client gave it or a redirect.
func (s *Store) allowed(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is no http or https URL with a host", u)
	}
	if s.match(u) != nil {
		return nil
	}
	if len(s.opt.Allowed) == 0 && isLoopback(u.Hostname()) {
		return nil
	}
	return errNotAllowed
}

// match returns the pattern that allows a URL, nil when there is none.
func (s *Store) match(u *url.URL) *regexp.Regexp {
	for _, list := range [][]*regexp.Regexp{s.opt.Allowed, zoo} {
		for _, p := range list {
			if p.MatchString(u.String()) {
				return p
			}
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// named reports whether a pattern names the host in full.
func (s *Store) named(u *url.URL) bool {
	p := s.match(u)
	if p == nil {
		return isLoopback(u.Hostname())
	}
	return strings.Contains(strings.ToLower(strings.ReplaceAll(p.String(), `\.`, ".")), "//"+strings.ToLower(u.Hostname()))
}

// get fetches a URL that is allowed.
func (s *Store) get(ctx context.Context, u *url.URL) (string, error) {
	trusted := s.named(u)
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		if trusted {
			return nil
		}
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if ip := at.Addr().Unmap(); !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || shared.Contains(ip) {
			return fmt.Errorf("the host has the private address %s; name it in full in allowed_urls to allow that", ip)
		}
		return nil
	}}
	client := &http.Client{
		Transport: &http.Transport{DialContext: dialer.DialContext, ResponseHeaderTimeout: 30 * time.Second, DisableKeepAlives: true},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= 5 {
				return errors.New("too many redirects")
			}
			if s.match(r.URL) == nil {
				return fmt.Errorf("redirect to %s: %w", r.URL, errNotAllowed)
			}
			trusted = s.named(r.URL)
			return nil
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", errStatus(resp.StatusCode)
	}
	f, err := os.CreateTemp(s.temp, "download-")
	if err != nil {
		return "", err
	}
	n, err := io.Copy(f, io.LimitReader(resp.Body, maxDownload+1))
	if err = errors.Join(err, f.Close()); err == nil && n > maxDownload {
		err = fmt.Errorf("the archive has more than %d bytes", int64(maxDownload))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// shared are the addresses that providers use within their own networks.
var shared = netip.MustParsePrefix("100.64.0.0/10")
