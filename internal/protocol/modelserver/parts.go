package modelserver

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"strings"

	"shoal/internal/modelstore"
)

// parts returns what a handler gets of a request: the query's parameters where the
// route passes them, the parts of a form, or the body as one part.
func (c *call) parts(t target, body []byte) []modelstore.Part {
	var list []modelstore.Part
	if t.query {
		for _, p := range c.query {
			list = append(list, modelstore.Part{Name: p.name, Value: []byte(p.value)})
		}
	}
	contentType := string(c.x.Header.ContentType())
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.TrimSpace(media)
	switch {
	case strings.EqualFold(media, "application/x-www-form-urlencoded"):
		for item := range strings.SplitSeq(string(body), "&") {
			if name, value, ok := strings.Cut(item, "="); ok {
				list = append(list, modelstore.Part{Name: unescape(name), Value: []byte(unescape(value))})
			}
		}
		return list
	case strings.EqualFold(media, "multipart/form-data"):
		if _, params, err := mime.ParseMediaType(contentType); err == nil && params["boundary"] != "" {
			return append(list, formParts(body, params["boundary"])...)
		}
	}
	return append(list, modelstore.Part{Name: "body", Type: media, Value: body})
}

// maxFormParts bounds the parts of a form.
const maxFormParts = 1000

// formParts returns the parts of a form, up to the first that cannot be read.
func formParts(body []byte, boundary string) []modelstore.Part {
	var list []modelstore.Part
	r := multipart.NewReader(bytes.NewReader(body), boundary)
	for len(list) < maxFormParts {
		p, err := r.NextRawPart()
		if err != nil {
			return list
		}
		value, err := io.ReadAll(p)
		if err != nil {
			return list
		}
		_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
		if err != nil || params["name"] == "" {
			continue
		}
		part := modelstore.Part{Name: params["name"], Value: value}
		if _, isFile := params["filename"]; isFile {
			part.Type = p.Header.Get("Content-Type")
		}
		list = append(list, part)
	}
	return list
}
