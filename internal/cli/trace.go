package cli

import (
	"fmt"
	"log/slog"
	"os"
	"slices"

	"shoal/internal/cli/command"
	"shoal/internal/trace"
	"shoal/internal/trace/otlp"
)

// traceFlags say which requests are traced, and where their traces go.
type traceFlags struct {
	config []string

	// Older names of some settings.
	file, rate, count, frequency string
	level                        []string

	parsed trace.Config // by check
}

// receiverVariables name the receiver of traces when no setting does.
var receiverVariables = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}

func (f *traceFlags) add(g *command.Group) {
	g.Texts(&f.config, "trace-config", "`setting` of traces: level=TIMESTAMPS and level=TENSORS, rate=N for one in N requests, count=N, mode=triton or mode=opentelemetry; triton,file=PATH; opentelemetry,url=URL; docs/tracing.md has the others; may be given several times")
	g.Text(&f.file, "trace-file", "", "an older name for --trace-config triton,file=")
	g.Texts(&f.level, "trace-level", "an older name for --trace-config level=")
	g.Text(&f.rate, "trace-rate", "", "an older name for --trace-config rate=")
	g.Text(&f.count, "trace-count", "", "an older name for --trace-config count=")
	g.Text(&f.frequency, "trace-log-frequency", "", "an older name for --trace-config triton,log-frequency=")
	for _, name := range []string{"trace-file", "trace-level", "trace-rate", "trace-count", "trace-log-frequency"} {
		g.Set.Lookup(name).Hidden = true
	}
}

// check checks the settings.
func (f *traceFlags) check() (err error) {
	var all []string
	for _, old := range []struct{ setting, value string }{
		{"triton,file", f.file}, {"rate", f.rate}, {"count", f.count}, {"triton,log-frequency", f.frequency},
	} {
		if old.value != "" {
			all = append(all, old.setting+"="+old.value)
		}
	}
	for _, level := range f.level {
		all = append(all, "level="+level)
	}
	if f.parsed, err = trace.ParseConfig(append(all, f.config...), os.Getenv); err != nil {
		return fmt.Errorf("--trace-config is %w", err)
	}
	return nil
}

// start returns the tracer, which the caller must close. The service is this server's
// name among those that send traces.
func (f *traceFlags) start(service string, log *slog.Logger) (*trace.Tracer, error) {
	c := f.parsed
	if why := c.Silent(); why != "" {
		log.Warn("--trace-config asks for traces, but none will be taken", "reason", why)
	}
	var x trace.Exporter
	if c.Mode == trace.ModeOpenTelemetry {
		sender, err := otlp.Start(otlp.Options{
			OpenTelemetry: c.OpenTelemetry, Service: service, Version: Version, Log: log,
			Environment: slices.ContainsFunc(receiverVariables, func(name string) bool { return os.Getenv(name) != "" }),
		})
		if err != nil {
			return nil, fmt.Errorf("--trace-config: %w", err)
		}
		x = sender
	}
	t, err := trace.Start(c, x, log)
	if err != nil {
		return nil, fmt.Errorf("--trace-config: %w", err)
	}
	return t, nil
}
