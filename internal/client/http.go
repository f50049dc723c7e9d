package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/proto"

	"shoal/internal/model/modelpb"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

const (
	// maxAnswer bounds the body of an answer.
	maxAnswer = 64 << 20
	// answerTimeout ends a request that a hung server does not answer.
	answerTimeout = 30 * time.Second
)

type httpAPI struct {
	base   string
	header []Header
	http   *http.Client
}

// OpenHTTP returns an API over HTTP. It connects with the first request.
func OpenHTTP(o Options, prefix string) API {
	scheme := "http://"
	if o.TLS != nil {
		scheme = "https://"
	}
	t := &http.Transport{TLSClientConfig: o.TLS, MaxIdleConnsPerHost: 1, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, o.Address) }}
	return &httpAPI{base: scheme + HostOf(o.Address) + prefix, header: o.Header, http: &http.Client{Transport: t, Timeout: answerTimeout}}
}

func (c *httpAPI) Server(ctx context.Context) (*pb.ServerMetadataResponse, error) {
	m := &pb.ServerMetadataResponse{}
	return m, c.ask(ctx, "/v2", m)
}

func (c *httpAPI) Model(ctx context.Context, name, version string) (*pb.ModelMetadataResponse, error) {
	m := &pb.ModelMetadataResponse{}
	return m, c.ask(ctx, modelPath(name, version), m)
}

func (c *httpAPI) Config(ctx context.Context, name, version string) (*modelpb.ModelConfig, error) {
	m := &modelpb.ModelConfig{}
	return m, c.ask(ctx, modelPath(name, version)+"/config", m)
}

func (c *httpAPI) Statistics(ctx context.Context, name, version string) ([]*pb.ModelStatistics, error) {
	m := &pb.ModelStatisticsResponse{}
	err := c.ask(ctx, modelPath(name, version)+"/stats", m)
	return m.GetModelStats(), err
}

func (c *httpAPI) Names(ctx context.Context) ([]string, error) {
	body, err := c.call(ctx, http.MethodPost, "/v2/repository/index", struct{}{})
	if err != nil {
		return nil, err
	}
	list, err := ParseIndex(body)
	return namesOf(list), err
}

func (c *httpAPI) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// modelPath returns the path of a model or of one version of it.
func modelPath(name, version string) string {
	path := "/v2/models/" + url.PathEscape(name)
	if version != "" {
		path += "/versions/" + url.PathEscape(version)
	}
	return path
}

func (c *httpAPI) Register(ctx context.Context, name, key string, size int) error {
	_, err := c.call(ctx, http.MethodPost, memoryPath(name)+"/register", map[string]any{"key": key, "offset": 0, "byte_size": size})
	return err
}

func (c *httpAPI) Unregister(ctx context.Context, name string) error {
	_, err := c.call(ctx, http.MethodPost, memoryPath(name)+"/unregister", nil)
	return err
}

func memoryPath(name string) string { return "/v2/systemsharedmemory/region/" + url.PathEscape(name) }

func (c *httpAPI) Trace(ctx context.Context, settings map[string]string) error {
	say := make(map[string]any)
	for name, value := range settings {
		say[name] = value
		if name == "trace_level" { // the only setting that may have several values
			say[name] = []string{value}
		}
	}
	_, err := c.call(ctx, http.MethodPost, "/v2/trace/setting", say)
	return err
}

// ask gets a path and reads the JSON answer into the message. Unknown fields
// are ignored.
func (c *httpAPI) ask(ctx context.Context, path string, m proto.Message) error {
	body, err := c.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if err := parse(body, m); err != nil {
		return fmt.Errorf("the answer to GET %s is not that of a v2 server: %w", path, err)
	}
	return nil
}

// call makes a request, with say as its JSON body unless nil, and returns the
// answer's body.
func (c *httpAPI) call(ctx context.Context, method, path string, say any) ([]byte, error) {
	var sent io.Reader = http.NoBody
	if say != nil {
		text, err := marshal(say)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, sent)
	if err != nil {
		return nil, err
	}
	for _, h := range c.header {
		req.Header.Add(h.Name, h.Value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or is not wanted
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer to %s %s broke off: %w", method, path, err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("the answer to %s %s has more than %d bytes", method, path, maxAnswer)
	case resp.StatusCode != http.StatusOK:
		return nil, errors.New(ErrorText(resp.StatusCode, body))
	}
	return body, nil
}

// ErrorText returns the text of an HTTP error: the server's own if the body has
// one.
func ErrorText(status int, body []byte) string {
	var answer struct{ Error, Message string } // TorchServe has a message
	if json.Unmarshal(body, &answer) == nil && answer.Error+answer.Message != "" {
		return cmp.Or(answer.Error, answer.Message)
	}
	if len(body) == 0 {
		return fmt.Sprintf("HTTP %d %s", status, http.StatusText(status))
	}
	return fmt.Sprintf("HTTP %d %s: %.300s", status, http.StatusText(status), body)
}

// unreachable removes the method and the URL from an error of the HTTP client
// and marks errors of the connection.
func unreachable(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	var inner *net.OpError
	if errors.As(err, &inner) && inner.Op == "dial" {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}
