package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"shoal/internal/logset"
)

// terminalHandler writes the log for a person at a terminal: the time of day,
// the level, the model, the message, then the other values. An error comes last,
// with its further lines, such as a traceback, below it.
type terminalHandler struct {
	to      io.Writer
	color   bool
	control *logset.Control
	attrs   []slog.Attr
	group   string // the prefix of keys, with its dot
	columns *terminalColumns
}

// terminalColumns are the widths so far, which only grow, so that lines stay
// aligned.
type terminalColumns struct {
	mu    sync.Mutex // protects the fields below, and the order of lines
	model int
}

// The column of models is as wide as the longest name so far, within these
// bounds; a message has at least that width.
const (
	narrowestModel = 8
	widestModel    = 24
	messageWidth   = 11 // listening with an address fits 80 columns
)

func newTerminalHandler(to io.Writer, color bool, control *logset.Control) *terminalHandler {
	return &terminalHandler{to: to, color: color, control: control, columns: &terminalColumns{model: narrowestModel}}
}

// Enabled implements slog.Handler; levelHandler decides.
func (h *terminalHandler) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (h *terminalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		c.attrs = append(c.attrs, a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *terminalHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.group += name + "."
	return &c
}

// The colours of terminals: of a level, and of what matters less.
const (
	colorReset  = "\x1b[0m"
	colorDim    = "\x1b[2m"
	colorRed    = "\x1b[31m"
	colorYellow = "\x1b[33m"
	colorGreen  = "\x1b[32m"
	colorBold   = "\x1b[1m"
)

// Handle implements slog.Handler.
func (h *terminalHandler) Handle(_ context.Context, r slog.Record) error {
	var modelName, version, failure string
	var rest []string
	add := func(a slog.Attr) bool {
		text := a.Value.Resolve().String()
		switch a.Key {
		case "model":
			modelName = text
		case "version":
			version = text
		case "err":
			failure = text
		default:
			rest = append(rest, h.paint(colorDim, a.Key+"=")+quoted(text))
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(func(a slog.Attr) bool { a.Key = h.group + a.Key; return add(a) })
	switch {
	case modelName == "" && version != "": // of something else
		rest = append(rest, h.paint(colorDim, "version=")+quoted(version))
	case version != "" && version != "1":
		modelName += " " + version
	}
	at := r.Time
	if h.control.UTC() {
		at = at.UTC()
	}
	level, color := levelName(r.Level)
	name, _, _ := strings.Cut(modelName, " ")

	h.columns.mu.Lock()
	defer h.columns.mu.Unlock()
	h.columns.model = max(h.columns.model, min(utf8.RuneCountInString(modelName), widestModel))
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s  ", h.paint(colorDim, at.Format("15:04:05.000")), h.paint(color, fmt.Sprintf("%-5s", level)))
	b.WriteString(h.paint(colorBold, fmt.Sprintf("%-*s", h.columns.model, modelName)) + "  ")
	const indent = "  " // a traceback of 80 columns would be folded below the message
	message, more := firstLine(r.Message)
	if failure != "" {
		first, further := firstLine(strings.TrimPrefix(failure, "model '"+name+"': ")) // the column has it
		message, more = message+": "+first, more+further
	}
	if len(rest) > 0 {
		message = fmt.Sprintf("%-*s  %s", messageWidth, message, strings.Join(rest, " "))
	}
	b.WriteString(strings.TrimRight(message, " ") + "\n")
	for line := range strings.Lines(more) {
		b.WriteString(strings.TrimRight(indent+strings.TrimRight(line, "\n"), " ") + "\n")
	}
	_, err := h.to.Write(b.Bytes())
	return err
}

func (h *terminalHandler) paint(color, text string) string {
	if !h.color || color == "" {
		return text
	}
	return color + text + colorReset
}

func levelName(l slog.Level) (name, color string) {
	switch {
	case l >= slog.LevelError:
		return "ERROR", colorRed
	case l >= slog.LevelWarn:
		return "WARN", colorYellow
	case l >= slog.LevelInfo:
		return "INFO", colorGreen
	}
	return "DEBUG", colorDim
}

// firstLine splits a text into its first line and the others.
func firstLine(text string) (first, more string) {
	first, more, _ = strings.Cut(strings.TrimRight(text, "\n"), "\n")
	if more != "" {
		more += "\n"
	}
	return first, more
}

// quoted returns a value as one word.
func quoted(text string) string {
	if text == "" || strings.ContainsAny(text, " \"\n\t") {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// durationsInSeconds gives a duration in a JSON log its unit: after=1.2s becomes
// after_seconds: 1.2.
func durationsInSeconds(a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_seconds", a.Value.Duration().Round(time.Microsecond).Seconds())
	}
	return a
}
