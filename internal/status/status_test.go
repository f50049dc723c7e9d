package status

import (
	"context"
	"errors"
	"testing"
)

func TestPrefixSaysNothingTwice(t *testing.T) {
	cause := errors.New("the disk is full")
	cases := []struct {
		name   string
		err    error
		code   Code
		public string
		log    string
	}{
		{"all public", Errorf(NotFound, "no such file"), NotFound, "m: no such file", "m: no such file"},
		{"with a cause", Wrap(Unavailable, cause, "not now"), Unavailable, "m: not now", "m: not now: the disk is full"},
		{
			"private", cause, Internal,
			"m: internal error; the server's log has the details", "m: internal error; the server's log has the details: the disk is full",
		},
		{"of a context", context.Canceled, Cancelled, "m: the request was cancelled", "m: the request was cancelled: context canceled"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := Prefix("m: ", c.err)
			if CodeOf(got) != c.code || Public(got) != c.public || got.Error() != c.log {
				t.Errorf("got %v, %q and %q in the log, want %v, %q and %q", CodeOf(got), Public(got), got, c.code, c.public, c.log)
			}
		})
	}
}
