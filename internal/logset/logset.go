// Package logset has the settings of the log that clients may see and change while
// the server runs. The command line makes a Control, which its log handler asks
// about every line; the protocols show and change it. A Control is safe for
// concurrent use.
package logset

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"shoal/internal/status"
)

// The formats of a line's time.
const (
	FormatLocal = "default" // the machine's time zone
	FormatUTC   = "ISO8601"
)

// Settings say what is logged and how.
type Settings struct {
	File                 string // where the log goes; empty is standard error
	Info, Warning, Error bool
	Verbose              uint32 // from 1 on there is more
	Format               string
}

// A Change has the settings to be changed; those that are nil stay.
type Change struct {
	File                 *string
	Info, Warning, Error *bool
	Verbose              *uint32
	Format               *string
}

// A Control has the settings that hold now.
type Control struct {
	now atomic.Pointer[Settings]
	mu  sync.Mutex // serialises changes
}

// New returns a control with these settings.
func New(s Settings) *Control {
	c := new(Control)
	c.now.Store(&s)
	return c
}

// Settings returns the settings that hold now.
func (c *Control) Settings() Settings { return *c.now.Load() }

// Update makes a change and returns the settings after it. A change with a fault
// changes nothing. Where the log goes cannot be changed by clients: they could write
// to any file.
func (c *Control) Update(change Change) (Settings, error) {
	if change.File != nil {
		return Settings{}, status.Errorf(status.Unsupported, "log file location can not be updated through network protocol")
	}
	if f := change.Format; f != nil && *f != FormatLocal && *f != FormatUTC {
		return Settings{}, BadFormat{*f}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.Settings()
	set(&s.Info, change.Info)
	set(&s.Warning, change.Warning)
	set(&s.Error, change.Error)
	set(&s.Verbose, change.Verbose)
	set(&s.Format, change.Format)
	c.now.Store(&s)
	return s, nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// A BadFormat is a format that there is not. Each protocol has its own words for it.
type BadFormat struct{ Format string }

func (b BadFormat) Error() string { return "invalid argument for log_format, got: " + b.Format }

// Enabled reports whether lines of a level are logged.
func (c *Control) Enabled(level slog.Level) bool {
	s := c.now.Load()
	switch {
	case level >= slog.LevelError:
		return s.Error
	case level >= slog.LevelWarn:
		return s.Warning
	case level >= slog.LevelInfo:
		return s.Info
	}
	return s.Verbose > 0
}

// UTC reports whether times are written in UTC.
func (c *Control) UTC() bool { return c.now.Load().Format == FormatUTC }
