package logset

import (
	"errors"
	"log/slog"
	"testing"

	"shoal/internal/status"
)

func TestUpdateChangesWhatIsGiven(t *testing.T) {
	c := New(Settings{Info: true, Warning: true, Error: true, Format: FormatLocal})
	off, verbose, utc := false, uint32(2), FormatUTC
	got, err := c.Update(Change{Info: &off, Verbose: &verbose, Format: &utc})
	want := Settings{Warning: true, Error: true, Verbose: 2, Format: FormatUTC}
	if err != nil || got != want || c.Settings() != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for level, want := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false, slog.LevelWarn: true, slog.LevelError: true} {
		if got := c.Enabled(level); got != want {
			t.Errorf("%v: got %v, want %v", level, got, want)
		}
	}
	if !c.UTC() {
		t.Error("got local times, want UTC")
	}
}

func TestUpdateWithAFaultChangesNothing(t *testing.T) {
	c := New(Settings{Error: true, Format: FormatLocal})
	on, file, format := true, "/etc/passwd", "fancy"
	if _, err := c.Update(Change{Info: &on, File: &file}); status.CodeOf(err) != status.Unsupported {
		t.Errorf("a file: got %v, want it refused", err)
	}
	var bad BadFormat
	if _, err := c.Update(Change{Info: &on, Format: &format}); !errors.As(err, &bad) || bad.Format != "fancy" {
		t.Errorf("a format: got %v, want it refused", err)
	}
	if got := c.Settings(); got != (Settings{Error: true, Format: FormatLocal}) {
		t.Errorf("got %+v, want what was there", got)
	}
}
