package status

import (
	"context"
	"errors"
	"testing"

	"shoal/internal/reject"
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

func TestRejectKeepsTheFirstReason(t *testing.T) {
	shared := Errorf(InvalidArgument, "a")
	got := Reject(reject.BadInput, shared)
	if reject.ReasonOf(got) != reject.BadInput || CodeOf(got) != InvalidArgument || Public(got) != "a" {
		t.Errorf("got %v, %v and %q", reject.ReasonOf(got), CodeOf(got), Public(got))
	}
	if reject.ReasonOf(shared) != reject.None {
		t.Error("the error itself was changed")
	}
	if again := Prefix("b: ", Reject(reject.Malformed, got)); reject.ReasonOf(again) != reject.BadInput {
		t.Errorf("got %v, want the first reason", reject.ReasonOf(again))
	}
	if private := Reject(reject.Timeout, context.DeadlineExceeded); CodeOf(private) != DeadlineExceeded || reject.ReasonOf(private) != reject.Timeout {
		t.Errorf("got %v and %v", CodeOf(private), reject.ReasonOf(private))
	}
	if Reject(reject.Malformed, nil) != nil {
		t.Error("nil became an error")
	}
}
