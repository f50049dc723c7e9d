package perf

import (
	"net/url"

	"shoal/internal/load"
	"shoal/internal/perf/input"
)

// prepareTorchServe makes the requests for a TorchServe or MMS server: the files
// that the data names, each the body of a prediction. Such a server tells neither
// shapes nor statistics.
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
		s.messages = append(s.messages, l.Message(path, s.lines(), body))
	}
	s.findServer()
	return nil
}
