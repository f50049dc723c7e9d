package modelserver

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"strings"

	"shoal/internal/modelstore"
)

// parts returns what a handler gets of a request: the query's parameters where the
// route passes them, the parts of a form, or the body as one part.
func (c *call) parts(t target, body []byte) ([]modelstore.Part, error) {
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
		return formPairs(list, string(body))
	case strings.EqualFold(media, "multipart/form-data"):
		if _, params, err := mime.ParseMediaType(contentType); err == nil && params["boundary"] != "" {
			return formParts(list, body, params["boundary"])
		}
	}
	return append(list, modelstore.Part{Name: "body", Type: media, Value: body}), nil
}

// formPairs appends the pairs of a form: up to the end of its line, and without a
// last name that has no value.
func formPairs(list []modelstore.Part, form string) ([]modelstore.Part, error) {
	if n := strings.IndexAny(form, "\r\n"); n >= 0 {
		form = form[:n]
	}
	for form != "" {
		if len(list) >= maxFormParts {
			return nil, errFormParts
		}
		item, rest, more := strings.Cut(form, "&")
		form = rest
		name, value, ok := strings.Cut(item, "=")
		if !ok && (!more || name == "") {
			continue
		}
		part := modelstore.Part{Name: name}
		for _, text := range []*string{&part.Name, &value} {
			decoded, err := url.QueryUnescape(*text)
			if err != nil {
				return nil, fault(500, "ErrorDataDecoderException", fmt.Sprintf("Invalid hex byte at index '%d' in string: '%s'", badEscape(*text), *text))
			}
			*text = decoded
		}
		if part.Name == "" {
			return nil, fault(500, "ErrorDataDecoderException", "java.lang.IllegalArgumentException: Param 'name' must not be empty")
		}
		part.Value = []byte(value)
		list = append(list, part)
	}
	return list, nil
}

// badEscape returns where the first escape is that cannot be decoded.
func badEscape(text string) int {
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			continue
		}
		if _, err := url.QueryUnescape(text[i:min(i+3, len(text))]); err != nil {
			return i
		}
		i += 2
	}
	return 0
}

// maxFormParts bounds the parts of a form, each of which takes more memory than it
// has bytes.
const maxFormParts = 1000

var errFormParts = fault(413, "RequestEntityTooLargeException", fmt.Sprintf("The form has more than %d fields.", maxFormParts))

// formParts appends the parts of a form, up to the first that cannot be read.
func formParts(list []modelstore.Part, body []byte, boundary string) ([]modelstore.Part, error) {
	r := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		p, err := r.NextRawPart()
		if err != nil {
			return list, nil // the originals take what they could read
		}
		if len(list) >= maxFormParts {
			return nil, errFormParts
		}
		value, err := io.ReadAll(p)
		if err != nil {
			return list, nil
		}
		_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
		if err != nil || params["name"] == "" {
			continue
		}
		part := modelstore.Part{Name: params["name"], Value: value}
		if _, isFile := params["filename"]; isFile {
			media, _, _ := strings.Cut(p.Header.Get("Content-Type"), ";")
			part.Type = cmp.Or(strings.TrimSpace(media), "application/octet-stream")
		}
		list = append(list, part)
	}
}
