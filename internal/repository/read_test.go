package repository

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"shoal/internal/status"
)

// A shiftyFile is a file that something else writes to: every Stat shows the
// next of its states.
type shiftyFile struct {
	io.Reader
	states []fileState
}

type fileState struct {
	size    int64
	written time.Time
	err     error
}

func (f *shiftyFile) Stat() (fs.FileInfo, error) {
	s := f.states[0]
	f.states = f.states[1:]
	return s, s.err
}

func (f *shiftyFile) Close() error { return nil }

func (s fileState) Name() string       { return "config.pbtxt" }
func (s fileState) Size() int64        { return s.size }
func (s fileState) Mode() fs.FileMode  { return 0o644 }
func (s fileState) ModTime() time.Time { return s.written }
func (s fileState) IsDir() bool        { return false }
func (s fileState) Sys() any           { return nil }

func TestReadWholeRefusesAFileThatChanges(t *testing.T) {
	then := time.Unix(1, 0)
	later := then.Add(time.Nanosecond)
	gone := errors.New("stale file handle")
	const changed = "the file changed while it was read; load the model again when it is written"
	for _, c := range []struct {
		name    string
		content io.Reader
		states  []fileState
		want    string
	}{
		{"nothing changes", strings.NewReader("abc"), []fileState{{3, then, nil}, {3, then, nil}}, ""},
		{"it is written to", strings.NewReader("abc"), []fileState{{3, then, nil}, {3, later, nil}}, changed},
		{"it grows while it is read", strings.NewReader("abcd"), []fileState{{3, then, nil}, {4, then, nil}}, changed},
		{"it grows after it was read", strings.NewReader("abc"), []fileState{{3, then, nil}, {4, then, nil}}, changed},
		{"it is cut short", strings.NewReader("ab"), []fileState{{3, then, nil}, {2, then, nil}}, changed},
		{"it cannot be looked at", strings.NewReader(""), []fileState{{err: gone}}, "stale file handle"},
		{"it vanishes", strings.NewReader("abc"), []fileState{{3, then, nil}, {err: gone}}, "stale file handle"},
		{"it cannot be read", io.MultiReader(strings.NewReader("a"), errReader{gone}), []fileState{{3, then, nil}}, "stale file handle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readWhole(&shiftyFile{c.content, c.states})
			switch {
			case c.want == "" && (err != nil || string(got) != "abc"):
				t.Errorf("got %q, %v, want abc", got, err)
			case c.want != "" && (err == nil || err.Error() != c.want):
				t.Errorf("got %q, %v, want error %q", got, err, c.want)
			}
		})
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestReadErrorKeepsTheCode(t *testing.T) {
	err := Entry{Name: "m"}.readError("config.pbtxt", status.Errorf(status.Unavailable, "the file changed"))
	checkError(t, err, status.Unavailable, `model "m": read config.pbtxt: the file changed`)
}
