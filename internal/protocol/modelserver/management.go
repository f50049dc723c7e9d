package modelserver

import (
	"bytes"
	"context"
	"strings"
	"time"

	"shoal/internal/modelstore"
)

// management answers the routes of the management API; done says that it is one.
func (c *call) management() (done bool, err error) {
	n := len(c.seg)
	switch {
	case n == 0:
		return true, errMethod()
	case n < 2:
		return false, nil
	case c.seg[1] == "models":
		if c.h.ts && n == 5 && c.seg[4] == "set-default" {
			if c.method == "PUT" {
				text, err := c.h.opt.Store.SetDefault(c.seg[2], c.seg[3])
				if err == nil {
					c.done(modelstore.Done{Status: 200, Text: text})
				}
				return true, err
			}
			n = 4 // the other methods see the version
		}
		if n <= 3 || c.h.ts && n == 4 {
			return true, c.models()
		}
	case !c.h.ts:
	case c.seg[1] == "v1" && n == 4 && c.seg[2] == "models":
		if c.method != "GET" {
			return true, errMethod()
		}
		name, _, _ := strings.Cut(c.seg[3], ":")
		ready, err := c.h.opt.Store.Ready(name)
		if err == nil {
			c.reply(200, c.h.opt.Store.Encode(struct {
				Name  string `json:"name"`
				Ready bool   `json:"ready"`
			}{name, ready}))
		}
		return true, err
	case c.seg[1] == "token" && c.h.opt.Keys != nil:
		return true, c.token()
	case c.seg[1] == "workflows" && n <= 3:
		return true, c.workflows()
	}
	return false, nil
}

// models answers /models, /models/{model} and /models/{model}/{version}.
func (c *call) models() error {
	s, ctx := c.h.opt.Store, c.x.Context()
	if c.badQuery != nil {
		return c.badQuery
	}
	name, version := c.at(2), c.at(3)
	if len(c.seg) < 3 {
		switch c.method {
		case "GET":
			c.reply(200, s.List(c.number("limit", 100), c.number("next_page_token", 0)))
			return nil
		case "POST":
			if c.h.ts && !c.h.opt.ModelAPI {
				return errMethod()
			}
			return c.register()
		}
		return errMethod()
	}
	switch c.method {
	case "GET":
		return c.describe(name, version)
	case "PUT":
		low := c.number("min_worker", 1)
		r := modelstore.Scaling{Name: name, Version: version, Min: low, Max: c.number("max_worker", low), Synchronous: c.truth("synchronous", false)}
		if v, ok := c.param("model_version"); ok && c.h.ts && version == "" {
			r.Version = v
		}
		d, err := s.Scale(ctx, r)
		if err == nil {
			c.done(d)
		}
		return err
	case "DELETE":
		if c.h.ts && !c.h.opt.ModelAPI {
			return errMethod()
		}
		d, err := s.Unregister(ctx, name, version)
		if err == nil {
			c.done(d)
		}
		return err
	case "OPTIONS":
		if c.h.ts {
			v, err := s.Find(name, version)
			if err != nil {
				return err
			}
			c.reply(200, s.Encode(modelDocument(v.Name(), true)))
			return nil
		}
	}
	return errMethod()
}

// describe answers with a model's description.
func (c *call) describe(name, version string) error {
	asks := c.h.ts && c.truth("customized", false)
	text, err := c.h.describe(c.x.Context(), name, version, asks, c.headers(target{}, 0))
	if err == nil {
		c.reply(200, text)
		if asks {
			c.x.SetPhrase("") // it is the handler's answer
		}
	}
	return err
}

// describe returns a model's description; when the client asks for it, with what the
// handler says of itself.
func (h *handler) describe(ctx context.Context, name, version string, asks bool, headers []modelstore.Header) ([]byte, error) {
	s := h.opt.Store
	if !asks || version == modelstore.All {
		return s.Describe(name, version, nil)
	}
	v, err := s.Find(name, version)
	if err != nil {
		return nil, err
	}
	if !v.HasWorkers() {
		return nil, fault(503, "ServiceUnavailableException", "Model \""+name+"\" has no worker to serve describe request. Please use scale workers API to add workers.")
	}
	said, err := h.askDescription(ctx, v, headers)
	if err != nil {
		return nil, err
	}
	return s.Describe(name, version, said)
}

// register registers a model with the parameters of the query, or of a JSON body.
func (c *call) register() error {
	r := modelstore.Registration{Synchronous: true}
	mediaType, _, _ := strings.Cut(string(c.x.Header.ContentType()), ";")
	isJSON := strings.EqualFold(strings.TrimSpace(mediaType), jsonType)
	body, err := c.x.Receive(c.h.opt.MaxRequestSize, tooLarge)
	if err != nil {
		return err
	}
	defer body.Release()
	if isJSON {
		if c.query, err = parseLenient(bytes.Clone(body.B)); err != nil {
			return fault(500, "JsonSyntaxException", err.Error())
		}
	}
	r.URL, r.HasURL = c.param("url")
	r.Name, _ = c.param("model_name")
	r.Handler, _ = c.param("handler")
	r.Runtime, _ = c.param("runtime")
	r.BatchSize, r.BatchDelay, r.InitialWorkers = c.optional("batch_size"), c.optional("max_batch_delay"), c.optional("initial_workers")
	r.Synchronous = c.truth("synchronous", true)
	unit := time.Second
	if !c.h.ts && !isJSON {
		unit = time.Minute // as the original takes it
	}
	r.ResponseTimeout, r.StartupTimeout = c.duration("response_timeout", unit), c.duration("startup_timeout", time.Second)
	d, err := c.h.opt.Store.Register(c.x.Context(), r)
	if err == nil {
		c.done(d)
	}
	return err
}

// optional returns a number when the client gives one.
func (c *call) optional(name string) *int {
	const none = -1 << 40
	if n := c.number(name, none); n != none {
		return &n
	}
	return nil
}

func (c *call) duration(name string, unit time.Duration) *time.Duration {
	n := c.optional(name)
	if n == nil {
		return nil
	}
	d := time.Duration(*n) * unit
	return &d
}

// workflows answers the routes of workflows, which are not supported: there are
// none.
func (c *call) workflows() error {
	switch {
	case len(c.seg) == 2 && c.method == "GET":
		c.reply(200, c.h.opt.Store.Encode(struct {
			Workflows []struct{} `json:"workflows"`
		}{[]struct{}{}}))
		return nil
	case len(c.seg) == 2 && c.method == "POST":
		url, ok := c.param("url")
		if !ok {
			return errBad("Parameter url is required.")
		}
		return fault(404, "WorkflowNotFoundException", "Workflow not found in workflow store: "+url)
	case len(c.seg) == 3 && (c.method == "GET" || c.method == "DELETE"):
		return fault(404, "WorkflowNotFoundException", "Workflow not found: "+c.seg[2])
	}
	return errMethod()
}
