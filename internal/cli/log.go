package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"shoal/internal/cli/command"
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

// utcFormat is the --log-format whose times are UTC.
const utcFormat = "ISO8601"

// check checks the values.
func (l *logFlags) check() error {
	if l.format != "default" && l.format != utcFormat {
		return fmt.Errorf("--log-format is %q, want default or %s", l.format, utcFormat)
	}
	return nil
}

// handler returns a handler that writes to w in the form that the flags ask for.
func (l *logFlags) handler(w io.Writer) slog.Handler {
	opt := &slog.HandlerOptions{Level: slog.LevelInfo}
	if l.verbose > 0 {
		opt.Level = slog.LevelDebug
	}
	if l.format == utcFormat {
		opt.ReplaceAttr = utcTimes
	}
	if l.json {
		return slog.NewJSONHandler(w, opt)
	}
	return slog.NewTextHandler(w, opt)
}

func utcTimes(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.StringValue(a.Value.Time().UTC().Format(time.RFC3339))
	}
	return a
}

// levelHandler turns each level on or off by itself.
type levelHandler struct {
	slog.Handler
	flags *logFlags
}

func (h *levelHandler) Enabled(ctx context.Context, level slog.Level) bool {
	switch {
	case level >= slog.LevelError && !h.flags.error,
		level >= slog.LevelWarn && level < slog.LevelError && !h.flags.warning,
		level >= slog.LevelInfo && level < slog.LevelWarn && !h.flags.info:
		return false
	}
	return h.Handler.Enabled(ctx, level)
}

func (h *levelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &levelHandler{h.Handler.WithAttrs(attrs), h.flags}
}

func (h *levelHandler) WithGroup(name string) slog.Handler {
	return &levelHandler{h.Handler.WithGroup(name), h.flags}
}
