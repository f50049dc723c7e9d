package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"shoal/internal/client"
	"shoal/internal/spelling"
)

// maxBody bounds an answer: a thousand models have about ten million bytes of
// metrics.
const maxBody = 64 << 20

// A Client reads samples of one server. It is for one goroutine.
type Client struct {
	target Target
	server endpoint
	detail endpoint // the metrics
}

// An endpoint is where requests go.
type endpoint struct {
	name string // for errors
	base string
	http *http.Client
}

// newEndpoint returns the endpoint of a URL. A Unix socket has path behind it.
func newEndpoint(address, path string, timeout time.Duration) endpoint {
	socket, ok := strings.CutPrefix(address, unixPrefix)
	if !ok {
		return endpoint{address, address, &http.Client{Timeout: timeout}}
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return endpoint{address, "http://localhost" + path, &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: dial}}}
}

// NewClient returns a client. It gives up on an answer after timeout.
func NewClient(t Target, timeout time.Duration) *Client {
	return &Client{target: t, server: newEndpoint(t.URL, "", timeout), detail: newEndpoint(t.Metrics, "/metrics", timeout)}
}

// Sample reads the server's state. It fails when the statistics cannot be read;
// NoMetrics of the sample says why metrics are missing.
func (c *Client) Sample(ctx context.Context) (*Sample, error) {
	s := &Sample{At: time.Now()}
	stats, _, err := c.server.do(ctx, http.MethodGet, "/v2/models/stats", "")
	if err != nil {
		return nil, fmt.Errorf("%w; is a server running there? Name another with: shoal top URL", err)
	}
	if err := s.readStats(stats); err != nil {
		return nil, fmt.Errorf("%s does not answer like an inference server: %w", c.target.URL, err)
	}
	// A server may restrict its index; the models with statistics are still
	// worth showing.
	if index, _, err := c.server.do(ctx, http.MethodPost, "/v2/repository/index", "{}"); err == nil {
		if err := s.readIndex(index); err != nil {
			return nil, fmt.Errorf("the repository index of %s: %w", c.target.URL, err)
		}
	}
	s.NoMetrics = c.metrics(ctx, s)
	if len(c.target.Models) > 0 {
		shown := make(map[string]bool)
		for _, name := range c.target.Models {
			if names := s.names(); !slices.Contains(names, name) {
				return nil, fmt.Errorf("%s has no model %q%s", c.target.URL, name, spelling.Hint(name, names))
			}
			if err := c.show(ctx, name, shown); err != nil {
				return nil, err
			}
		}
		s.Models = slices.DeleteFunc(s.Models, func(m Model) bool { return !shown[m.Name] })
	}
	slices.SortFunc(s.Models, func(a, b Model) int {
		if a.Name != b.Name {
			return strings.Compare(a.Name, b.Name)
		}
		return client.CompareVersions(a.Version, b.Version)
	})
	return s, nil
}

// names returns the names of the models.
func (s *Sample) names() []string {
	var list []string
	for i := range s.Models {
		if !slices.Contains(list, s.Models[i].Name) {
			list = append(list, s.Models[i].Name)
		}
	}
	return list
}

// show adds a model, and those in it when it is an ensemble.
func (c *Client) show(ctx context.Context, name string, shown map[string]bool) error {
	if shown[name] {
		return nil
	}
	shown[name] = true
	body, _, err := c.server.do(ctx, http.MethodGet, "/v2/models/"+url.PathEscape(name)+"/config", "")
	if err != nil {
		return err
	}
	var config struct {
		Scheduling struct {
			Steps []struct {
				Model string `json:"model_name"`
			} `json:"step"`
		} `json:"ensemble_scheduling"`
	}
	if err := json.Unmarshal(body, &config); err != nil {
		return fmt.Errorf("the configuration of model %q: %w", name, err)
	}
	for _, step := range config.Scheduling.Steps {
		if err := c.show(ctx, step.Model, shown); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) metrics(ctx context.Context, s *Sample) error {
	body, header, err := c.detail.do(ctx, http.MethodGet, "", "")
	if err != nil {
		return fmt.Errorf("%w; name the right place with --metrics-url", err)
	}
	if err := s.readMetrics(header, body); err != nil {
		return fmt.Errorf("the metrics at %s cannot be read: %w", c.target.Metrics, err)
	}
	return nil
}

// do sends a request and returns the answer's body.
func (e endpoint) do(ctx context.Context, method, path, send string) ([]byte, http.Header, error) {
	url := e.name + path
	req, err := http.NewRequestWithContext(ctx, method, e.base+path, strings.NewReader(send))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", acceptMetrics)
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot reach %s: %w", url, cause(err))
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or is not wanted
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("the answer of %s broke off: %w", url, cause(err))
	case len(body) > maxBody:
		return nil, nil, fmt.Errorf("the answer of %s has more than %d bytes", url, maxBody)
	case resp.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("%s answered %s%s", url, resp.Status, reason(body))
	}
	return body, resp.Header, nil
}

// cause returns the cause of an error of the HTTP client, without the method
// and URL.
func cause(err error) error {
	type timeouter interface{ Timeout() bool }
	var t timeouter
	if errors.As(err, &t) && t.Timeout() {
		return errors.New("it does not answer")
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}

// reason returns the error text in an answer, if it has one.
func reason(body []byte) string {
	var answer struct{ Error string }
	if json.Unmarshal(body, &answer) != nil || answer.Error == "" {
		return ""
	}
	return ": " + answer.Error
}
