package modelstore

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
)

// storeFor returns a store of a dialect that may fetch these URLs.
func storeFor(t *testing.T, d Dialect, allowed ...string) *Store {
	t.Helper()
	var list []*regexp.Regexp
	for _, p := range allowed {
		list = append(list, regexp.MustCompile("^(?i:"+p+")$"))
	}
	s, err := Open(Options{Dialect: d, Folder: t.TempDir(), Temp: t.TempDir(), Allowed: list})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestOnlyAllowedURLsAreFetched(t *testing.T) {
	var target string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a.mar":
			_, _ = w.Write([]byte("content"))
		case "/redirect":
			http.Redirect(w, r, target, http.StatusFound)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	target = server.URL + "/a.mar"
	port := strings.TrimPrefix(server.URL, "http://127.0.0.1")
	cases := []struct {
		name, url string
		allowed   []string
		redirect  string
		ok        bool
	}{
		{"this machine without a list", server.URL + "/a.mar", nil, "", true},
		{"not there", server.URL + "/none.mar", nil, "", false},
		{"a redirect without a list", server.URL + "/redirect", nil, "", false},
		{"another machine without a list", "http://192.0.2.1/a.mar", nil, "", false},
		{"the cloud's metadata", "http://169.254.169.254/latest", nil, "", false},
		{"a pattern that names the host", server.URL + "/a.mar", []string{`http://127\.0\.0\.1.*`}, "", true},
		{"a private address behind a pattern for many hosts", "http://localhost" + port + "/a.mar", []string{`http://.*`}, "", false},
		{"another pattern", server.URL + "/a.mar", []string{`https://models\.example\.com/.*`}, "", false},
		{"a redirect within the list", server.URL + "/redirect", []string{`http://127\.0\.0\.1.*`}, server.URL + "/a.mar", true},
		{"a redirect out of the list", server.URL + "/redirect", []string{`http://127\.0\.0\.1.*/redirect`}, server.URL + "/a.mar", false},
		{"a redirect to a file", server.URL + "/redirect", []string{`http://127\.0\.0\.1.*`}, "file:///etc/passwd", false},
		{"no host", "http:///a.mar", nil, "", false},
		{"another scheme", "ftp://127.0.0.1/a.mar", []string{".*"}, "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := storeFor(t, MMS, c.allowed...)
			target = c.redirect
			if target == "" {
				target = server.URL + "/a.mar"
			}
			file, err := s.download(t.Context(), c.url)
			if (err == nil) != c.ok {
				t.Fatalf("got %v, want success %v", err, c.ok)
			}
			if err != nil {
				if _, ok := errors.AsType[*Error](err); !ok {
					t.Errorf("got %T, want an error for clients", err)
				}
				return
			}
			if b, err := os.ReadFile(file); err != nil || string(b) != "content" {
				t.Errorf("got %q and %v", b, err)
			}
		})
	}
}

func TestPlacesOfTheOriginalExamplesAreAllowed(t *testing.T) {
	s := storeFor(t, MMS)
	u, err := url.Parse("https://s3.amazonaws.com/model-server/model_archive_1.0/examples/resnet-152-batching/resnet-152.mar")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.allowed(u); err != nil {
		t.Error(err)
	}
}

func TestTextsOfURLsThatAreNotAllowed(t *testing.T) {
	for d, want := range map[Dialect]string{
		MMS:        "400 DownloadModelException Failed to download model from: http://192.0.2.1/a.mar",
		TorchServe: "404 ModelNotFoundException Given URL http://192.0.2.1/a.mar does not match any allowed URL(s)",
	} {
		_, err := storeFor(t, d).download(t.Context(), "http://192.0.2.1/a.mar")
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Fatalf("got %v", err)
		}
		if got := strings.Join([]string{http.StatusText(e.Status), e.Type, e.Text}, " "); got != http.StatusText(e.Status)+want[3:] {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
