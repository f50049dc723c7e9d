package cli

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"shoal/internal/logsink"
	"shoal/internal/modelstore"
)

// modelServerLogs are the log files that the original servers write, for whoever
// ships them. They are written when LOG_LOCATION or METRICS_LOCATION says where.
type modelServerLogs struct {
	files        []*logsink.Sink
	accesses     *logsink.Sink // access_log.log
	server       *logsink.Sink // mms_log.log or ts_log.log
	models       *logsink.Sink // model_log.log: what handlers print
	metrics      *logsink.Sink // mms_metrics.log or ts_metrics.log
	modelMetrics *logsink.Sink // model_metrics.log
}

// openModelServerLogs opens the files. It never returns nil.
func openModelServerLogs(d modelstore.Dialect, getenv func(string) string) (*modelServerLogs, error) {
	l := &modelServerLogs{}
	var errs []error
	open := func(dir, name string) *logsink.Sink {
		if dir == "" {
			return nil
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			errs = append(errs, err)
			return nil
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		s := logsink.Start(f, logsink.Options{})
		l.files = append(l.files, s)
		return s
	}
	short := [...]string{"mms", "ts"}[d]
	logs := getenv("LOG_LOCATION")
	metrics := cmp.Or(getenv("METRICS_LOCATION"), logs)
	l.accesses = open(logs, "access_log.log")
	l.server, l.models = open(logs, short+"_log.log"), open(logs, "model_log.log")
	l.metrics, l.modelMetrics = open(metrics, short+"_metrics.log"), open(metrics, "model_metrics.log")
	return l, errors.Join(errs...)
}

const logTime = "2006-01-02T15:04:05,000"

// lines returns what writes lines of access and metrics logs; nil for no file.
func lines(to *logsink.Sink) func(string) {
	if to == nil {
		return nil
	}
	return func(line string) {
		_, _ = to.Write([]byte(time.Now().Format(logTime) + " - " + line + "\n")) // never fails
	}
}

// handlerMetric takes a line of a handler's metrics.
func (f *serveFlags) handlerMetric(line string) {
	if f.registry == nil {
		return
	}
	if write := lines(f.registry.logs.modelMetrics); write != nil {
		write(line)
	}
	if f.registry.meter != nil {
		f.registry.meter.Handler(line)
	}
}

func (l *modelServerLogs) close() {
	for _, s := range l.files {
		s.Close(flushTime)
	}
}

// logger returns log, with its lines in the files too.
func (l *modelServerLogs) logger(log *slog.Logger) *slog.Logger {
	if l.server == nil {
		return log
	}
	return slog.New(&fileLog{next: log.Handler(), logs: l})
}

// A fileLog writes records to the files of the originals, in their format, and to
// another handler.
type fileLog struct {
	next  slog.Handler
	logs  *modelServerLogs
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (h *fileLog) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *fileLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &fileLog{h.next.WithAttrs(attrs), h.logs, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup implements slog.Handler. The server's log has no groups.
func (h *fileLog) WithGroup(name string) slog.Handler {
	return &fileLog{h.next.WithGroup(name), h.logs, h.attrs}
}

// Handle implements slog.Handler.
func (h *fileLog) Handle(ctx context.Context, r slog.Record) error {
	var instance, stream string
	var rest strings.Builder
	each := func(a slog.Attr) bool {
		switch a.Key {
		case "stream":
			stream = a.Value.String()
		case "instance":
			instance = a.Value.String()
		default:
			rest.WriteString(" " + a.Key + "=" + strings.ReplaceAll(a.Value.String(), "\n", `\n`))
		}
		return true
	}
	for _, a := range h.attrs {
		each(a)
	}
	r.Attrs(each)
	level := r.Level.String()
	begin := r.Time.Format(logTime) + " [" + level + strings.Repeat(" ", max(5-len(level), 0)) + "] "
	text := strings.TrimSuffix(r.Message, "\n")
	if stream != "" { // a worker's output
		_, _ = h.logs.models.Write([]byte(begin + "W-" + instance + "-" + stream + " MODEL_LOG - " + text + "\n")) // never fails
	} else {
		_, _ = h.logs.server.Write([]byte(begin + "main shoal - " + text + rest.String() + "\n"))
	}
	return h.next.Handle(ctx, r)
}
