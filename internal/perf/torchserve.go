package perf

import (
	"bytes"
	"mime/multipart"
	"net/url"

	"shoal/internal/client"
	"shoal/internal/load"
	"shoal/internal/perf/input"
)

// prepareTorchServe makes the requests for a TorchServe or MMS server: the
// files that the data names, each as the form of a prediction. Such a server
// reports neither shapes nor statistics.
func (s *Session) prepareTorchServe() error {
	var bodies [][]byte
	var err error
	if s.data, bodies, err = input.LoadFiles(s.settings.Input.Sources); err != nil {
		return err
	}
	path := s.settings.Address.Prefix + "/predictions/" + url.PathEscape(s.settings.Model)
	if s.settings.Version != "" {
		path += "/" + url.PathEscape(s.settings.Version)
	}
	l := load.NewHTTPLink(s.settings.Address.Host, s.settings.TLS)
	s.link = l
	for _, body := range bodies {
		kind, form, err := torchForm(body)
		if err != nil {
			return err
		}
		s.messages = append(s.messages, l.Message(path, append([]client.Header{{Name: "Content-Type", Value: kind}}, s.settings.Header...), form))
	}
	s.findServer()
	return nil
}

// torchForm returns a file as the field "data" of a form, which is how
// perf_analyzer sends it: handlers look for that name.
func torchForm(file []byte) (contentType string, form []byte, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	field, err := w.CreateFormField("data")
	if err != nil {
		return "", nil, err
	}
	if _, err := field.Write(file); err != nil {
		return "", nil, err
	}
	err = w.Close()
	return w.FormDataContentType(), b.Bytes(), err
}
