package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

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
}

func (l *logFlags) add(g *command.Group) {
	g.Number(&l.verbose, "log-verbose", 0, "log more with 1 and above")
	g.Truth(&l.info, "log-info", true, "log changes of state")
	g.Truth(&l.warning, "log-warning", true, "log problems that may resolve themselves")
	g.Truth(&l.error, "log-error", true, "log lost work")
	g.Text(&l.format, "log-format", "default", "how times are written: default (local, RFC 3339) or ISO8601 (UTC)")
	g.Text(&l.file, "log-file", "", "append the log to this file rather than standard error")
	g.Toggle(&l.json, "log-json", "log JSON lines")
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
	return nil
}

// logHandler returns a handler that writes to w as the settings say at the time of
// each line.
func logHandler(w io.Writer, json bool, control *logset.Control) slog.Handler {
	opt := &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime && control.UTC() {
				a.Value = slog.StringValue(a.Value.Time().UTC().Format(time.RFC3339))
			}
			return a
		},
	}
	if json {
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
