// Package accesslog writes a line for each request that was answered: who asked
// what of which model, what the answer was and where the time went. Lines go to a
// sink that never blocks; those that it cannot take are dropped and counted.
//
// A transport begins an Entry when a request's head has arrived, the dialect
// adds what it knows, and the transport writes the line when the answer is
// written. All methods of a Log may be called from any goroutine; an Entry
// belongs to one request.
package accesslog

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"shoal/internal/infer"
)

// A Form is how a line is written.
type Form uint8

// The forms.
const (
	// Common is the Common Log Format with our own fields behind it.
	Common Form = iota
	// JSON is one object per line.
	JSON
)

// ParseForm reads the name of a form.
func ParseForm(name string) (Form, error) {
	switch name {
	case "common":
		return Common, nil
	case "json":
		return JSON, nil
	}
	return 0, fmt.Errorf("%q: want common or json", name)
}

// A Log writes entries.
type Log struct {
	to      io.Writer
	form    Form
	entries sync.Pool
	lines   sync.Pool
}

// New returns a log that writes each line with one Write to a stream that does not
// block, such as a logsink.Sink.
func New(to io.Writer, form Form) *Log {
	return &Log{
		to: to, form: form,
		entries: sync.Pool{New: func() any { return new(Entry) }},
		lines:   sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }},
	}
}

// An Entry is what is known of a request. It has its own memory for texts.
type Entry struct {
	begin    time.Time
	protocol string
	method   []byte
	target   []byte
	model    []byte
	version  []byte
	id       []byte
	rows     int

	// Client is the address of the client; nil when it is not known.
	Client net.Addr
	// Status is the answer's HTTP status.
	Status int
	// Code is the answer's status of gRPC; empty for another protocol.
	Code string
	// Bytes is the size of the answer's body.
	Bytes int64
	// Spent gets the times of the request's execution.
	Spent infer.Spent
}

// Begin returns an empty entry of a request whose head has just arrived. End takes
// it back.
func (l *Log) Begin(protocol string) *Entry {
	e := l.entries.Get().(*Entry)
	e.begin, e.protocol = time.Now(), protocol
	return e
}

// End writes the entry, which must not be used again.
func (l *Log) End(e *Entry) {
	line := l.lines.Get().(*[]byte)
	b := (*line)[:0]
	if took := time.Since(e.begin); l.form == JSON {
		b = e.appendJSON(b, took)
	} else {
		b = e.appendCommon(b, took)
	}
	_, _ = l.to.Write(b) // the sink counts what it cannot take
	*line = b
	if cap(b) <= maxKept {
		l.lines.Put(line)
	}
	e.reset()
	l.entries.Put(e)
}

// maxKept is how much memory for a line is kept, and twice as much as is kept
// for a text.
const maxKept = 16 << 10

func (e *Entry) reset() {
	for _, text := range []*[]byte{&e.method, &e.target, &e.model, &e.version, &e.id} {
		if *text = (*text)[:0]; cap(*text) > maxKept/2 {
			*text = nil
		}
	}
	e.rows = 0
	e.Client, e.Status, e.Code, e.Bytes = nil, 0, "", 0
	e.Spent.Reset()
}

// Ask sets the request's method and target.
func Ask[T ~string | ~[]byte](e *Entry, method, target T) {
	e.method, e.target = append(e.method[:0], method...), append(e.target[:0], target...)
}

// HasModel reports whether the model is known.
func (e *Entry) HasModel() bool { return len(e.model) > 0 }

// Model sets the model and its version; a version below 1 is unknown.
func (e *Entry) Model(name string, version int64) {
	e.model, e.version = append(e.model[:0], name...), e.version[:0]
	if version > 0 {
		e.version = strconv.AppendInt(e.version, version, 10)
	}
}

// ModelText is Model for versions that need not be numbers.
func (e *Entry) ModelText(name, version string) {
	e.model, e.version = append(e.model[:0], name...), append(e.version[:0], version...)
}

// Ran adds what is known of a request that was checked. It must be called before
// the request is released. A nil entry ignores it.
func (e *Entry) Ran(r *infer.Request) {
	if e != nil {
		e.id, e.rows = append(e.id[:0], r.ID...), r.Rows
	}
}

// appendCommon appends a line in the Common Log Format, followed by our fields.
func (e *Entry) appendCommon(b []byte, took time.Duration) []byte {
	b = e.appendHost(b)
	b = append(b, " - - ["...)
	b = e.begin.AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	b = appendEscaped(b, e.method)
	b = append(b, ' ')
	b = appendEscaped(b, e.target)
	b = append(b, ' ')
	b = append(b, e.protocol...)
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(e.Status), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, e.Bytes, 10)
	if e.Code != "" {
		b = append(b, " grpc="...)
		b = append(b, e.Code...)
	}
	b = appendText(b, ` model="`, e.model, appendEscaped)
	b = appendText(b, ` version="`, e.version, appendEscaped)
	if e.rows > 0 {
		b = appendNumber(b, " rows=", int64(e.rows))
		b = appendNumber(b, " queue_us=", e.Spent.Queue().Microseconds())
		b = appendNumber(b, " compute_us=", e.Spent.Compute().Microseconds())
	}
	b = appendNumber(b, " total_us=", took.Microseconds())
	b = appendText(b, ` id="`, e.id, appendEscaped)
	return append(b, '\n')
}

// appendHost appends the client's host; a client on a Unix socket has none.
func (e *Entry) appendHost(b []byte) []byte {
	switch a := e.Client.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap().AppendTo(b)
	case nil, *net.UnixAddr:
	default:
		return append(b, a.String()...)
	}
	return append(b, '-')
}

// appendJSON appends a line that is a JSON object.
func (e *Entry) appendJSON(b []byte, took time.Duration) []byte {
	b = append(b, `{"time":"`...)
	b = e.begin.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z07:00")
	b = append(b, `","client":"`...)
	switch a := e.Client.(type) {
	case *net.TCPAddr:
		at := a.AddrPort()
		b = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).AppendTo(b)
	case nil:
	case *net.UnixAddr:
		b = append(b, "unix"...)
	default:
		b = appendQuoted(b, []byte(a.String()))
	}
	b = append(b, `","protocol":"`...)
	b = append(b, e.protocol...)
	b = append(b, `","method":"`...)
	b = appendQuoted(b, e.method)
	b = append(b, `","path":"`...)
	b = appendQuoted(b, e.target)
	b = appendNumber(b, `","status":`, int64(e.Status))
	if e.Code != "" {
		b = append(b, `,"grpc_status":"`...)
		b = append(b, e.Code...)
		b = append(b, '"')
	}
	b = appendNumber(b, `,"response_bytes":`, e.Bytes)
	b = appendText(b, `,"model":"`, e.model, appendQuoted)
	b = appendText(b, `,"version":"`, e.version, appendQuoted)
	b = appendText(b, `,"request_id":"`, e.id, appendQuoted)
	if e.rows > 0 {
		b = appendNumber(b, `,"rows":`, int64(e.rows))
		b = appendNumber(b, `,"queue_us":`, e.Spent.Queue().Microseconds())
		b = appendNumber(b, `,"compute_us":`, e.Spent.Compute().Microseconds())
	}
	b = appendNumber(b, `,"total_us":`, took.Microseconds())
	return append(b, "}\n"...)
}

func appendNumber(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

// appendText appends a client's text unless it is empty, which means that it is not
// known.
func appendText(b []byte, name string, text []byte, escape func(b, text []byte) []byte) []byte {
	if len(text) == 0 {
		return b
	}
	return append(escape(append(b, name...), text), '"')
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends a client's text as Apache writes it: printable ASCII without
// quotes and backslashes stands for itself.
func appendEscaped(b, text []byte) []byte {
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c >= 0x7f:
			b = append(b, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}

// appendQuoted appends a client's text as the inside of a JSON string.
func appendQuoted(b, text []byte) []byte {
	for len(text) > 0 {
		c, size := text[0], 1
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			var r rune
			r, size = utf8.DecodeRune(text)
			b = utf8.AppendRune(b, r) // what is not valid becomes U+FFFD
		}
		text = text[size:]
	}
	return b
}
