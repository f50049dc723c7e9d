package kservehttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"

	"github.com/valyala/fasthttp"
)

// An API is a class of routes that can be restricted together.
type API uint8

// The classes, by the names that --http-restricted-api knows.
const (
	Health API = iota
	Metadata
	Inference
	SharedMemory
	ModelConfig
	ModelRepository
	Statistics
	Trace
	Logging
	apiCount
)

var apiNames = [apiCount]string{
	Health:          "health",
	Metadata:        "metadata",
	Inference:       "inference",
	SharedMemory:    "shared-memory",
	ModelConfig:     "model-config",
	ModelRepository: "model-repository",
	Statistics:      "statistics",
	Trace:           "trace",
	Logging:         "logging",
}

// String returns the API's name.
func (a API) String() string { return apiNames[a] }

// ParseAPI returns the API with that name.
func ParseAPI(name string) (API, error) {
	for a, n := range apiNames {
		if n == name {
			return API(a), nil
		}
	}
	return 0, fmt.Errorf("unknown API %q, want one of %s", name, strings.Join(apiNames[:], ", "))
}

// A Restriction closes APIs to requests that do not carry a header with the
// one right value.
type Restriction struct {
	APIs   []API
	Header string
	Value  string
}

// ParseRestriction reads the flag's form "<api>[,<api>...]:<header>=<value>".
func ParseRestriction(s string) (Restriction, error) {
	names, pair, ok := strings.Cut(s, ":")
	header, value, ok2 := strings.Cut(pair, "=")
	if !ok || !ok2 || header == "" {
		return Restriction{}, fmt.Errorf("restricted API %q: want <api>[,<api>...]:<header>=<value>", s)
	}
	r := Restriction{Header: header, Value: value}
	for name := range strings.SplitSeq(names, ",") {
		api, err := ParseAPI(name)
		if err != nil {
			return Restriction{}, fmt.Errorf("restricted API %q: %w", s, err)
		}
		r.APIs = append(r.APIs, api)
	}
	return r, nil
}

// restrictions hold for each API the header it asks for, if any.
type restrictions [apiCount]*Restriction

func newRestrictions(list []Restriction) (r restrictions) {
	for i := range list {
		for _, api := range list[i].APIs {
			r[api] = &list[i]
		}
	}
	return r
}

// check refuses a request to an API that it lacks the header for.
func (r *restrictions) check(api API, ctx *fasthttp.RequestCtx) error {
	need := r[api]
	if need == nil || sameSecret(ctx.Request.Header.Peek(need.Header), []byte(need.Value)) {
		return nil
	}
	return errRestricted(need.Header)
}

// sameSecret compares in a time that says nothing about the values, nor about
// their lengths.
func sameSecret(a, b []byte) bool {
	x, y := sha256.Sum256(a), sha256.Sum256(b)
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
