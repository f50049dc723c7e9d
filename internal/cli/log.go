package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/charmbracelet/x/term"

	"shoal/internal/accesslog"
	"shoal/internal/cli/command"
	"shoal/internal/logset"
)

// logFlags say what is logged, where and in which form.
type logFlags struct {
	verbose              int
	info, warning, error bool
	format               string
	file                 string
	json                 bool
	style                string
	access               string
	accessFormat         string
	color                bool // no flag
}

// The forms of the log.
const (
	styleAuto     = "auto"
	styleTerminal = "terminal"
	styleLogfmt   = "logfmt"
	styleJSON     = "json"
)

func (l *logFlags) add(g *command.Group) {
	g.Number(&l.verbose, "log-verbose", 0, "log more with 1 and above")
	g.Truth(&l.info, "log-info", true, "log changes of state")
	g.Truth(&l.warning, "log-warning", true, "log problems that may resolve themselves")
	g.Truth(&l.error, "log-error", true, "log lost work")
	g.Text(&l.format, "log-format", "default", "how times are written: default (local, RFC 3339) or ISO8601 (UTC)")
	g.Text(&l.file, "log-file", "", "append the log to this file rather than standard error")
	g.Text(&l.style, "log-style", styleAuto, "form of the log, `auto|terminal|logfmt|json`; auto is terminal, with columns and colours, when standard error is one, else logfmt")
	g.Toggle(&l.json, "log-json", "log JSON lines: --log-style=json")
	g.Text(&l.access, "access-log", "", "write a line for each request to this `file`, or to standard output with -; off by default")
	g.Text(&l.accessFormat, "access-log-format", "common", "form of its lines, `common|json`: the Common Log Format with more fields behind it, or JSON")
}

// settings returns the settings of the log that may change while the server runs.
func (l *logFlags) settings() logset.Settings {
	return logset.Settings{File: l.file, Info: l.info, Warning: l.warning, Error: l.error, Verbose: uint32(max(0, l.verbose)), Format: l.format}
}

// check checks the values.
func (l *logFlags) check() error {
	if l.format != logset.FormatLocal && l.format != logset.FormatUTC {
		return fmt.Errorf("--log-format is %q, want %s or %s", l.format, logset.FormatLocal, logset.FormatUTC)
	}
	if _, err := accesslog.ParseForm(l.accessFormat); err != nil {
		return fmt.Errorf("--access-log-format is %w", err)
	}
	switch l.style {
	case styleAuto, styleTerminal, styleLogfmt, styleJSON:
		return nil
	}
	return fmt.Errorf("--log-style is %q, want auto, terminal, logfmt or json", l.style)
}

// resolve decides on the form of a log that goes to stderr or a file.
func (l *logFlags) resolve(stderr io.Writer) {
	terminal := false
	if file, ok := stderr.(*os.File); ok && l.file == "" {
		terminal = term.IsTerminal(file.Fd())
	}
	switch {
	case l.json:
		l.style = styleJSON
	case l.style == styleAuto && terminal:
		l.style = styleTerminal
	case l.style == styleAuto:
		l.style = styleLogfmt
	}
	l.json = l.style == styleJSON
	l.color = terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// onScreen reports whether errors in the log appear on standard error.
func (l *logFlags) onScreen() bool { return l.file == "" && l.error }

// handler returns a handler that writes to w as the settings say at the time of
// each line.
func (l *logFlags) handler(w io.Writer, control *logset.Control) slog.Handler {
	if l.style == styleTerminal {
		return &levelHandler{newTerminalHandler(w, l.color, control), control}
	}
	opt := &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime && control.UTC() {
				a.Value = slog.StringValue(a.Value.Time().UTC().Format(time.RFC3339))
			}
			if l.json {
				return durationsInSeconds(a)
			}
			return a
		},
	}
	if l.json {
		return &levelHandler{slog.NewJSONHandler(w, opt), control}
	}
	return &levelHandler{slog.NewTextHandler(w, opt), control}
}

// levelHandler turns each level on or off by itself.
type levelHandler struct {
	slog.Handler
	control *logset.Control
}

func (h *levelHandler) Enabled(_ context.Context, level slog.Level) bool {
	return h.control.Enabled(level)
}

func (h *levelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &levelHandler{h.Handler.WithAttrs(attrs), h.control}
}

func (h *levelHandler) WithGroup(name string) slog.Handler {
	return &levelHandler{h.Handler.WithGroup(name), h.control}
}
