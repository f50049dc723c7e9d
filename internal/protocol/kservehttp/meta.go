package kservehttp

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"shoal/internal/model"
)

// health answers with no body.
func (h *handler) health(ctx *fasthttp.RequestCtx, good bool) error {
	if h.engine.Stopping() {
		return errExiting
	}
	ctx.Response.Header.SetContentType(textType)
	if !good {
		ctx.Response.SetStatusCode(fasthttp.StatusBadRequest)
	}
	return nil
}

func (h *handler) modelReady(ctx *fasthttp.RequestCtx, rt route) error {
	if !h.engine.ModelReady(rt.model, rt.version) {
		return errNotReady
	}
	ctx.Response.Header.SetContentType(textType)
	return nil
}

// server answers with the server's metadata.
func (h *handler) server(ctx *fasthttp.RequestCtx) error {
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
	reply(ctx, append(b, ']', '}'))
	return nil
}

// model answers with a model's metadata.
func (h *handler) model(ctx *fasthttp.RequestCtx, rt route) error {
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
	reply(ctx, append(b, '}'))
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
func (h *handler) config(ctx *fasthttp.RequestCtx, rt route) error {
	cfg, err := h.engine.Config(rt.model, rt.version)
	if err != nil {
		return err
	}
	reply(ctx, model.JSON(cfg))
	return nil
}

// reply answers with a JSON text, which becomes the response's.
func reply(ctx *fasthttp.RequestCtx, json []byte) {
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBodyRaw(json)
}
