// Package kserve has what the KServe dialects share, whatever they run over: the
// classes of APIs, restrictions on them, and names of parameters that mean
// something to the server. Its values are fixed after construction.
package kserve

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An API is a class of calls that can be restricted together.
type API uint8

// The classes, by the names that the flags know.
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

// A Restriction closes APIs to clients that do not send a header with the one
// right value.
type Restriction struct{ Header, Value string }

// Restrictions hold for each API the restriction that it has, if any. The zero
// value restricts nothing.
type Restrictions [apiCount]*Restriction

// ParseRestrictions reads rules of the form "<api>[,<api>...]:<header>=<value>".
// The error names all that is wrong with them.
func ParseRestrictions(rules []string) (all Restrictions, err error) {
	var errs []error
	for _, rule := range rules {
		if err := all.add(rule); err != nil {
			errs = append(errs, fmt.Errorf("rule %q: %w", rule, err))
		}
	}
	return all, errors.Join(errs...)
}

func (all *Restrictions) add(rule string) error {
	names, pair, ok := strings.Cut(rule, ":")
	header, value, ok2 := strings.Cut(pair, "=")
	if !ok || !ok2 || header == "" {
		return errors.New("want <api>[,<api>...]:<header>=<value>")
	}
	r := &Restriction{header, value}
	for name := range strings.SplitSeq(names, ",") {
		api := slices.Index(apiNames[:], name)
		switch {
		case api < 0:
			return fmt.Errorf("unknown API %q, want one of %s", name, strings.Join(apiNames[:], ", "))
		case all[api] != nil:
			return fmt.Errorf("API %q is restricted by two rules; name it in one", name)
		}
		all[api] = r
	}
	return nil
}

// Opens reports whether value is what the restriction asks for. It takes a time
// that says nothing about the values, nor about their lengths.
func (r *Restriction) Opens(value []byte) bool {
	x, y := sha256.Sum256(value), sha256.Sum256([]byte(r.Value))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
