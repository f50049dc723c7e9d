package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"shoal/internal/logset"
)

// logged returns what a handler of that form writes of some lines.
func logged(t *testing.T, f logFlags, write func(*slog.Logger)) string {
	t.Helper()
	var b bytes.Buffer
	control := logset.New(logset.Settings{Info: true, Warning: true, Error: true, Format: logset.FormatLocal})
	write(slog.New(f.handler(&b, control)))
	return b.String()
}

func TestTheLogOfATerminalHasColumns(t *testing.T) {
	got := logged(t, logFlags{style: styleTerminal}, func(log *slog.Logger) {
		h := log.Handler()
		at := time.Date(2026, 11, 16, 7, 51, 2, 423e6, time.UTC)
		say := func(level slog.Level, msg string, args ...any) {
			r := slog.NewRecord(at, level, msg, 0)
			r.Add(args...)
			if err := h.Handle(context.Background(), r); err != nil {
				t.Error(err)
			}
		}
		say(slog.LevelInfo, "listening", "protocol", "http", "address", "[::]:8000")
		say(slog.LevelInfo, "loaded ONNX Runtime", "version", "1.30.0")
		say(slog.LevelInfo, "model ready", "model", "digits", "version", 1, "after", 31*time.Millisecond)
		say(slog.LevelError, "model not loaded", "model", "mean", "version", 2, "err", errors.New("model 'mean': its code raised an exception\nTraceback (most recent call last):\n  File \"mean.py\", line 3\nValueError: no"))
		say(slog.LevelWarn, "slow disk", "file", "a b")
	})
	want := strings.Join([]string{
		`07:51:02.423  INFO             listening    protocol=http address=[::]:8000`,
		`07:51:02.423  INFO             loaded ONNX Runtime  version=1.30.0`,
		`07:51:02.423  INFO   digits    model ready  after=31ms`,
		`07:51:02.423  ERROR  mean 2    model not loaded: its code raised an exception`,
		`  Traceback (most recent call last):`,
		`    File "mean.py", line 3`,
		`  ValueError: no`,
		`07:51:02.423  WARN             slow disk    file="a b"`,
	}, "\n") + "\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestColoursAreForTerminalsOnly(t *testing.T) {
	say := func(log *slog.Logger) { log.With("model", "m").Error("lost") }
	if got := logged(t, logFlags{style: styleTerminal, color: true}, say); !strings.Contains(got, colorRed+"ERROR"+colorReset) {
		t.Errorf("got %q, want a red level", got)
	}
	for _, f := range []logFlags{{style: styleTerminal}, {style: styleLogfmt}, {style: styleJSON, json: true}} {
		if got := logged(t, f, say); strings.Contains(got, "\x1b") {
			t.Errorf("%s: got %q, want no colours", f.style, got)
		}
	}
}

func TestDurationsInJSONHaveTheirUnit(t *testing.T) {
	got := logged(t, logFlags{style: styleJSON, json: true}, func(log *slog.Logger) { log.Info("ready", "after", 1500*time.Millisecond) })
	if !strings.Contains(got, `"after_seconds":1.5`) {
		t.Errorf("got %q, want after_seconds", got)
	}
}

func TestTheStyleOfTheLogFollowsWhereItGoes(t *testing.T) {
	for _, c := range []struct {
		flags logFlags
		want  string
	}{
		{logFlags{style: styleAuto}, styleLogfmt}, // a buffer is no terminal
		{logFlags{style: styleAuto, json: true}, styleJSON},
		{logFlags{style: styleTerminal}, styleTerminal},
		{logFlags{style: styleTerminal, json: true}, styleJSON},
		{logFlags{style: styleJSON}, styleJSON},
	} {
		f := c.flags
		f.resolve(&bytes.Buffer{})
		if f.style != c.want || f.json != (c.want == styleJSON) || f.color {
			t.Errorf("%+v: got %s, want %s", c.flags, f.style, c.want)
		}
	}
}
