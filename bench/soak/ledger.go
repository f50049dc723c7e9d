package main

import (
	"errors"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shoal/bench/internal/ask"
	"shoal/bench/internal/watch"
)

// An entry counts what became of the requests to one model.
type entry struct {
	Good      int `json:"good"`      // answered, and the answer was right
	Killed    int `json:"killed"`    // failed because their worker was killed
	Cancelled int `json:"cancelled"` // by the client, or by its deadline
}

// A ledger counts what became of all requests. It is safe for concurrent use.
type ledger struct {
	mu      sync.Mutex // protects the fields below
	number  uint32
	entries map[string]*entry
	kills   int
	halves  int      // connections that were cut within a request
	wrong   []string // answers that are wrong, the first few
	failed  []string // requests that failed for no reason that we know, the first few
}

func newLedger() *ledger {
	return &ledger{entries: make(map[string]*entry)}
}

// question returns a question that no other has.
func (l *ledger) question(m ask.Model) ask.Question {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	return ask.Question{Model: m, Number: l.number}
}

// most is how many errors are kept as text.
const most = 20

// note enters what became of a request. Withdrawn says that the client has
// cancelled it, or meant to.
func (l *ledger) note(m ask.Model, err error, withdrawn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[m.Name]
	if e == nil {
		e = new(entry)
		l.entries[m.Name] = e
	}
	switch {
	case err == nil:
		e.Good++
	case errors.Is(err, ask.ErrWrong):
		if len(l.wrong) < most {
			l.wrong = append(l.wrong, err.Error())
		}
	case isKilled(err):
		e.Killed++
	case withdrawn && isWithdrawn(err):
		e.Cancelled++
	default:
		if len(l.failed) < most {
			l.failed = append(l.failed, m.Name+": "+err.Error())
		}
	}
}

// isKilled says whether killed workers explain err. The server cannot name the
// signal where the system reports a worker's exit only seconds after its
// connection ended, as on a busy machine, nor where the worker was killed before
// it had started.
func isKilled(err error) bool {
	text := err.Error()
	for _, sign := range []string{"SIGKILL", "ended with exit code 137", "the worker closed its connection to the server"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// isWithdrawn says whether err may come of a request that was cancelled. Over
// HTTP the client's own error says no more than that.
func isWithdrawn(err error) bool {
	if s, ok := status.FromError(err); ok {
		return s.Code() == codes.Canceled || s.Code() == codes.DeadlineExceeded || s.Code() == codes.Unavailable
	}
	var refused *ask.RefusedError
	return !errors.As(err, &refused)
}

func (l *ledger) add(count *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*count++
}

// An account holds the clients' counts of a model against the server's.
type account struct {
	Model string `json:"model"`
	entry
	Success int `json:"success"` // the server's counts
	Failure int `json:"failure"`
}

func (l *ledger) account(m ask.Model, metrics watch.Metrics) account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := account{
		Model:   m.Name,
		Success: int(metrics.Sum("nv_inference_request_success", "model", m.Name)),
		Failure: int(metrics.Sum("nv_inference_request_failure", "model", m.Name)),
	}
	if e := l.entries[m.Name]; e != nil {
		a.entry = *e
	}
	return a
}

// agrees says whether the counts can be of the same requests: what a client has
// cancelled may have succeeded, failed, or never have come to the server.
func (a account) agrees() bool {
	within := func(n, least, slack int) bool { return n >= least && n <= least+slack }
	return within(a.Success, a.Good, a.Cancelled) && within(a.Failure, a.Killed, a.Cancelled) &&
		within(a.Success+a.Failure, a.Good+a.Killed, a.Cancelled)
}
