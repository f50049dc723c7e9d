package cli

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"time"

	"shoal/internal/logsink"
	"shoal/internal/modelstore"
)

// modelServerLogs are the log files that the original servers write, for whoever
// ships them. They are written when LOG_LOCATION or METRICS_LOCATION says where.
type modelServerLogs struct {
	files        []*logsink.Sink
	accesses     *logsink.Sink // access_log.log
	modelMetrics *logsink.Sink // model_metrics.log
}

// openModelServerLogs opens the files. It never returns nil.
func openModelServerLogs(_ modelstore.Dialect, getenv func(string) string) (*modelServerLogs, error) {
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
	logs := getenv("LOG_LOCATION")
	l.accesses = open(logs, "access_log.log")
	l.modelMetrics = open(cmp.Or(getenv("METRICS_LOCATION"), logs), "model_metrics.log")
	return l, errors.Join(errs...)
}

const logTime = "2006-01-02T15:04:05,000"

// access returns what writes a line of the access log; nil when there is none.
func (l *modelServerLogs) access() func(string) {
	if l.accesses == nil {
		return nil
	}
	return func(line string) { writeLine(l.accesses, line) }
}

// handlerMetric writes a line of a handler's metrics.
func (f *serveFlags) handlerMetric(line string) {
	if f.registry != nil && f.registry.logs.modelMetrics != nil {
		writeLine(f.registry.logs.modelMetrics, line)
	}
}

func writeLine(s *logsink.Sink, line string) {
	_, _ = s.Write([]byte(time.Now().Format(logTime) + " - " + line + "\n")) // never fails
}

func (l *modelServerLogs) close() {
	for _, s := range l.files {
		s.Close(flushTime)
	}
}
