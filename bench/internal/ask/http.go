package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"shoal/bench/internal/peer"
)

// smallWidth is up to how many elements every other request is JSON rather than
// binary.
const smallWidth = 64

// HTTP asks over HTTP with net/http. It is safe for concurrent use.
type HTTP struct {
	base   string
	client *http.Client
}

// NewHTTP returns a client of the server at address.
func NewHTTP(address string) *HTTP {
	return &HTTP{"http://" + address, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// Close closes the client's idle connections.
func (c *HTTP) Close() { c.client.CloseIdleConnections() }

type wireTensor struct {
	Name       string         `json:"name"`
	Datatype   string         `json:"datatype,omitempty"`
	Shape      []int          `json:"shape,omitempty"`
	Data       []float32      `json:"data,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
}

type wireMessage struct {
	ID      string       `json:"id"`
	Inputs  []wireTensor `json:"inputs,omitempty"`
	Outputs []wireTensor `json:"outputs,omitempty"`
}

// Ask sends the question and checks the answer.
func (c *HTTP) Ask(ctx context.Context, q Question) error {
	plain := q.Model.Width <= smallWidth && q.Number%2 == 0
	head, body, err := q.encode(plain)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v2/models/"+q.Model.Name+"/infer", bytes.NewReader(body))
	if err != nil {
		return err
	}
	if !plain {
		request.Header.Set("Inference-Header-Content-Length", strconv.Itoa(head))
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return &RefusedError{response.StatusCode, string(answer)}
	}
	return q.checkHTTP(response.Header.Get("Inference-Header-Content-Length"), answer)
}

// encode returns the request's body and the length of the JSON at its begin.
func (q Question) encode(plain bool) (head int, body []byte, err error) {
	in := wireTensor{Name: peer.Input, Datatype: "FP32", Shape: []int{1, q.Model.Width}}
	out := wireTensor{Name: peer.Output, Parameters: map[string]any{"binary_data": !plain}}
	if plain {
		in.Data = q.numbers()
	} else {
		in.Parameters = map[string]any{"binary_data_size": 4 * q.Model.Width}
	}
	body, err = json.Marshal(wireMessage{q.ID(), []wireTensor{in}, []wireTensor{out}})
	head = len(body)
	if !plain {
		body = append(body, q.raw()...)
	}
	return head, body, err
}

// checkHTTP checks an answer whose first bytes, as many as head says, are JSON.
func (q Question) checkHTTP(head string, body []byte) error {
	n := len(body)
	if head != "" {
		var err error
		if n, err = strconv.Atoi(head); err != nil || n > len(body) {
			return fmt.Errorf("%w: model %s: Inference-Header-Content-Length is %q and the body has %d bytes", ErrWrong, q.Model.Name, head, len(body))
		}
	}
	var m wireMessage
	if err := json.Unmarshal(body[:n], &m); err != nil {
		return fmt.Errorf("%w: model %s: %w", ErrWrong, q.Model.Name, err)
	}
	if len(m.Outputs) != 1 {
		return fmt.Errorf("%w: model %s: got %d outputs, want 1", ErrWrong, q.Model.Name, len(m.Outputs))
	}
	if head != "" {
		return q.checkRaw(m.ID, body[n:])
	}
	data := m.Outputs[0].Data
	return q.check(m.ID, len(data), func(i int) float32 { return data[i] })
}
