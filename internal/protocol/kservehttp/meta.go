package kservehttp

import (
	"strconv"

	"shoal/internal/model"
	"shoal/internal/protocol/httpserver"
)

// health answers with no body.
func (h *handler) health(x *httpserver.Exchange, good bool) error {
	if h.engine.Stopping() {
		return errExiting
	}
	x.SetType(textType)
	if !good {
		x.SetStatus(400)
	}
	return nil
}

func (h *handler) modelReady(x *httpserver.Exchange, rt route) error {
	if !h.engine.ModelReady(rt.model, rt.version) {
		return errNotReady
	}
	x.SetType(textType)
	return nil
}

// metadata answers with the server's metadata.
func (h *handler) metadata(x *httpserver.Exchange) error {
	b := append([]byte(nil), '{')
	b = appendMember(b, "name")
	b = appendQuoted(b, h.engine.ServerName())
	b = appendMember(b, "version")
	b = appendQuoted(b, h.engine.ServerVersion())
	b = appendMember(b, "extensions")
	b = append(b, '[')
	for i, e := range h.engine.Extensions() {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, e)
	}
	reply(x, append(b, ']', '}'))
	return nil
}

// model answers with a model's metadata.
func (h *handler) model(x *httpserver.Exchange, rt route) error {
	md, err := h.engine.Metadata(rt.model, rt.version)
	if err != nil {
		return err
	}
	b := append([]byte(nil), '{')
	b = appendMember(b, "name")
	b = appendQuoted(b, md.Name)
	b = appendMember(b, "versions")
	b = append(b, '[')
	for i, v := range md.Versions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = strconv.AppendInt(b, v, 10)
		b = append(b, '"')
	}
	b = append(b, ']')
	b = appendMember(b, "platform")
	b = appendQuoted(b, md.Platform)
	b = appendMember(b, "inputs")
	b = appendTensors(b, md.Inputs)
	b = appendMember(b, "outputs")
	b = appendTensors(b, md.Outputs)
	reply(x, append(b, '}'))
	return nil
}

func appendTensors(b []byte, list []model.Tensor) []byte {
	b = append(b, '[')
	for i := range list {
		t := &list[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = appendMember(b, "name")
		b = appendQuoted(b, t.Name)
		b = appendMember(b, "datatype")
		b = appendQuoted(b, t.Type.String())
		b = appendMember(b, "shape")
		b = appendInts(b, t.Full)
		b = append(b, '}')
	}
	return append(b, ']')
}

// config answers with a model's complete configuration.
func (h *handler) config(x *httpserver.Exchange, rt route) error {
	cfg, err := h.engine.Config(rt.model, rt.version)
	if err != nil {
		return err
	}
	reply(x, model.JSON(cfg))
	return nil
}
