package modelserver

import (
	"fmt"
	"strconv"
	"strings"

	"shoal/internal/modelstore"
	"shoal/internal/protocol/httpserver"
)

// A call is one request.
type call struct {
	h      *handler
	x      *httpserver.Exchange
	id     string
	status int // of the answer, for the log

	method string
	path   string   // decoded
	seg    []string // of the path; the first is empty
	query  []pair

	badQuery error // why the query cannot be read, for the routes that use it
}

// A pair is a parameter of a query or a form.
type pair struct{ name, value string }

// split splits a path at its slashes; empty segments at its end vanish.
func split(path string) []string {
	seg := strings.Split(path, "/")
	for len(seg) > 0 && seg[len(seg)-1] == "" {
		seg = seg[:len(seg)-1]
	}
	return seg
}

func (c *call) at(i int) string {
	if i < len(c.seg) {
		return c.seg[i]
	}
	return ""
}

// serve answers the request.
func (c *call) serve() error {
	c.status = 200
	h := &c.x.Header
	uri := string(h.RequestURI())
	if len(h.Method())+len(uri)+11 > maxLine || len(h.RawHeaders()) > maxHeaders {
		c.x.CloseAfter()
		return errInvalidHTTP()
	}
	c.method = string(h.Method())
	path, _, _ := strings.Cut(uri, "?")
	var err error
	if c.path, err = c.decode(uri, 0, len(path), false); err != nil {
		return err
	}
	c.seg = split(c.path)
	c.query, c.badQuery = c.parseQuery(uri, len(path)+1)
	if done, err := c.description(); done {
		return err
	}
	if err := c.authorize(); err != nil {
		return err
	}
	if c.h.apis&Inference != 0 {
		if done, err := c.inference(); done {
			return err
		}
	}
	if c.h.apis&Management != 0 {
		if done, err := c.management(); done {
			return err
		}
	}
	if c.h.apis&Metrics != 0 && c.at(1) == "metrics" {
		return c.metrics()
	}
	return errNoRoute()
}

// decode decodes the percent signs of a part of the request's target, and in a query
// plus signs.
func (c *call) decode(uri string, from, to int, query bool) (string, error) {
	part := uri[from:to]
	if !strings.Contains(part, "%") && !(query && strings.Contains(part, "+")) {
		return part, nil
	}
	b := make([]byte, 0, len(part))
	for i := from; i < to; i++ {
		switch {
		case uri[i] == '+' && query:
			b = append(b, ' ')
			continue
		case uri[i] != '%':
			b = append(b, uri[i])
			continue
		case i+2 >= to:
			return "", c.errArgument(fmt.Sprintf("unterminated escape sequence at index %d of: %s", i, uri))
		}
		n, err := strconv.ParseUint(uri[i+1:i+3], 16, 8)
		if err != nil || uri[i+1] == '+' {
			return "", c.errArgument(fmt.Sprintf("invalid hex byte '%s' at index %d of '%s'", uri[i+1:i+3], i+1, uri))
		}
		b = append(b, byte(n))
		i += 2
	}
	return string(b), nil
}

// errArgument is the error of what cannot be decoded.
func (c *call) errArgument(text string) error {
	code := 500
	if c.h.ts {
		code = 403
	}
	return fault(code, "IllegalArgumentException", text)
}

// parseQuery reads the query that begins at a place in the request's target: pairs
// with & or ; between them, up to a #.
func (c *call) parseQuery(uri string, at int) ([]pair, error) {
	end := len(uri)
	if at < end {
		if n := strings.IndexByte(uri[at:], '#'); n >= 0 {
			end = at + n
		}
	}
	var list []pair
	for at < end {
		next := end
		if n := strings.IndexAny(uri[at:end], "&;"); n >= 0 {
			next = at + n
		}
		for at < next && uri[at] == '=' {
			at++
		}
		if at < next {
			equal := next
			if n := strings.IndexByte(uri[at:next], '='); n >= 0 {
				equal = at + n
			}
			name, err := c.decode(uri, at, equal, true)
			if err != nil {
				return nil, err
			}
			value, err := c.decode(uri, min(equal+1, next), next, true)
			if err != nil {
				return nil, err
			}
			list = append(list, pair{name, value})
		}
		at = next + 1
	}
	return list, nil
}

// param returns the first value of a parameter of the query.
func (c *call) param(name string) (string, bool) {
	for _, p := range c.query {
		if p.name == name {
			return p.value, true
		}
	}
	return "", false
}

// number returns a parameter of 32 bits, or another number when it is not one.
func (c *call) number(name string, other int) int {
	if text, ok := c.param(name); ok {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			return int(n)
		}
	}
	return other
}

// truth returns a parameter that is true or false.
func (c *call) truth(name string, other bool) bool {
	if text, ok := c.param(name); ok {
		return strings.EqualFold(text, "true")
	}
	return other
}

// inference answers the routes of the inference API; done says that it is one.
func (c *call) inference() (done bool, err error) {
	n := len(c.seg)
	switch {
	case n == 0:
		return true, errMethod()
	case n < 2:
		return false, nil
	}
	switch c.seg[1] {
	case "ping":
		word, well := c.h.opt.Store.Health()
		code := 200
		if !well {
			code = 500
		}
		c.reply(code, c.h.opt.Store.Encode(struct {
			Status string `json:"status"`
		}{word}))
		return true, nil
	case "predictions":
		if n < 3 {
			return true, errNoRoute()
		}
		return true, c.predict(target{model: c.seg[2], version: c.versionAt(3), path: c.pathFrom(4), explains: c.explains(false), urlPath: true})
	case "invocations":
		if n > 2 {
			return true, errNoRoute()
		}
		return true, c.invocations()
	case "models":
		if n != 4 {
			return false, nil
		}
		if c.seg[3] != "invoke" {
			if c.h.ts && c.h.apis&Management != 0 {
				return false, nil // /models/{model}/{version} on a listener for both
			}
			return true, errNoRoute()
		}
		return true, c.predict(target{model: c.seg[2], query: true})
	}
	if n == 3 && c.seg[2] == "predict" {
		return true, c.predict(target{model: c.seg[1], query: true})
	}
	if c.h.ts {
		return c.inferenceTS()
	}
	return false, nil
}

// versionAt returns the version in the path, which only TorchServe has.
func (c *call) versionAt(i int) string {
	if !c.h.ts {
		return ""
	}
	return c.at(i)
}

func (c *call) pathFrom(i int) string {
	if i >= len(c.seg) {
		return ""
	}
	return strings.Join(c.seg[i:], "/")
}

// explains returns the value of the header explain; empty for none.
func (c *call) explains(yes bool) string {
	switch {
	case !c.h.ts:
		return ""
	case yes:
		return "True"
	}
	return "False"
}

// inferenceTS answers the routes that only TorchServe has.
func (c *call) inferenceTS() (done bool, err error) {
	n := len(c.seg)
	switch {
	case c.seg[1] == "explanations":
		if n < 3 {
			return true, errNoRoute()
		}
		return true, c.predict(target{model: c.seg[2], version: c.at(3), path: c.pathFrom(4), explains: "True", urlPath: true})
	case n == 4 && c.seg[3] == "predict":
		return true, c.predict(target{model: c.seg[1], version: c.seg[2], query: true})
	case c.seg[1] == "v1" && n == 4 && c.seg[2] == "models":
		if name, ok := strings.CutSuffix(c.seg[3], ":predict"); ok {
			return true, c.predict(target{model: name, explains: "False"})
		}
		if name, ok := strings.CutSuffix(c.seg[3], ":explain"); ok {
			return true, c.predict(target{model: name, explains: "True"})
		}
	case c.seg[1] == "v2" && n == 5 && c.seg[2] == "models" && (c.seg[4] == "infer" || c.seg[4] == "explain"):
		return true, c.predict(target{model: c.seg[3], explains: c.explains(c.seg[4] == "explain")})
	case c.seg[1] == "v2" && c.h.opt.OpenInference:
		return c.openInference()
	case c.seg[1] == "wfpredict" && n > 2:
		return true, fault(404, "WorkflowNotFoundException", "Workflow not found: "+c.seg[2])
	}
	return false, nil
}

// openInference answers the server's own routes of the open inference protocol.
func (c *call) openInference() (done bool, err error) {
	store := c.h.opt.Store
	switch c.path {
	case "/v2":
		c.reply(200, store.Encode(struct {
			Name      string   `json:"name"`
			Version   string   `json:"version"`
			Extension []string `json:"extenstion"` // as clients of the original know it
		}{"Torchserve", modelstore.TorchServe.ServerVersion(), []string{"kserve", "kubeflow"}}))
	case "/v2/health/live":
		c.reply(200, store.Encode(map[string]bool{"live": true}))
	case "/v2/health/ready":
		_, well := store.Health()
		c.reply(200, store.Encode(map[string]bool{"ready": well}))
	default:
		return false, nil
	}
	return true, nil
}

// reply answers with a JSON text.
func (c *call) reply(code int, text []byte) {
	c.status = code
	c.x.SetStatus(code)
	c.x.SetType(jsonType)
	c.x.SetHeaders(c.h.appendHeaders(nil, c.id))
	c.x.SetBody(append(text, '\n'))
	if code >= 400 {
		c.x.CloseAfter()
	}
}

// done answers with the text of a change.
func (c *call) done(d modelstore.Done) {
	c.reply(d.Status, c.h.opt.Store.Encode(struct {
		Status string `json:"status"`
	}{d.Text}))
}
