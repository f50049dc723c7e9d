package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"shoal/internal/client"
)

// maxBody bounds an answer: a thousand models have about ten million bytes of
// metrics.
const maxBody = 64 << 20

// A Client reads samples of one server. It is for one goroutine.
type Client struct {
	target Target
	http   *http.Client
}

// NewClient returns a client. It gives up on an answer after timeout.
func NewClient(t Target, timeout time.Duration) *Client {
	return &Client{target: t, http: &http.Client{Timeout: timeout}}
}

// Sample reads the server's state. It fails when the statistics cannot be read;
// NoMetrics of the sample says why metrics are missing.
func (c *Client) Sample(ctx context.Context) (*Sample, error) {
	s := &Sample{At: time.Now()}
	stats, _, err := c.do(ctx, http.MethodGet, c.target.URL+"/v2/models/stats", "")
	if err != nil {
		return nil, fmt.Errorf("%w; is a server running there? Name another with: shoal top URL", err)
	}
	if err := s.readStats(stats); err != nil {
		return nil, fmt.Errorf("%s does not answer like an inference server: %w", c.target.URL, err)
	}
	// A server may restrict its index; the models with statistics are still
	// worth showing.
	if index, _, err := c.do(ctx, http.MethodPost, c.target.URL+"/v2/repository/index", "{}"); err == nil {
		if err := s.readIndex(index); err != nil {
			return nil, fmt.Errorf("the repository index of %s: %w", c.target.URL, err)
		}
	}
	s.NoMetrics = c.metrics(ctx, s)
	if len(c.target.Models) > 0 {
		shown := make(map[string]bool)
		for _, name := range c.target.Models {
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

// show adds a model, and those in it when it is an ensemble.
func (c *Client) show(ctx context.Context, name string, shown map[string]bool) error {
	if shown[name] {
		return nil
	}
	shown[name] = true
	body, _, err := c.do(ctx, http.MethodGet, c.target.URL+"/v2/models/"+url.PathEscape(name)+"/config", "")
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
	body, header, err := c.do(ctx, http.MethodGet, c.target.Metrics, "")
	if err != nil {
		return fmt.Errorf("%w; name the right place with --metrics-url", err)
	}
	if err := s.readMetrics(header, body); err != nil {
		return fmt.Errorf("the metrics at %s cannot be read: %w", c.target.Metrics, err)
	}
	return nil
}

// do sends a request and returns the answer's body.
func (c *Client) do(ctx context.Context, method, url, send string) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(send))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", acceptMetrics)
	resp, err := c.http.Do(req)
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
