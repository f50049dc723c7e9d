package worker

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestOutputGoesToTheLogWithNames(t *testing.T) {
	cmd, log := shell("echo to stdout; echo to stderr >&2; printf 'no end of line'")
	p := start(t, cmd)
	exitOf(t, p)
	eventually(t, 10*time.Second, "three lines in the log", func() bool { return strings.Count(log.String(), "\n") == 3 })
	for _, want := range []string{
		`msg="to stdout" model=m instance=m_0_0 stream=stdout`,
		`msg="to stderr" model=m instance=m_0_0 stream=stderr`,
		`msg="no end of line" model=m instance=m_0_0 stream=stdout`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got log %q, want %q in it", log, want)
		}
	}
}

func TestTailKeepsTheLastLinesOfStderr(t *testing.T) {
	cmd, _ := shell("for i in $(seq 1 50); do echo line $i >&2; done; exit 1")
	exit := exitOf(t, start(t, cmd))
	if len(exit.Stderr) != tailLines || exit.Stderr[0] != "line 31" || exit.Stderr[tailLines-1] != "line 50" {
		t.Errorf("got %q, want lines 31 to 50", exit.Stderr)
	}
	if got := exit.Error(); !strings.Contains(got, "exit code 1; the end of its stderr:\nline 31\n") {
		t.Errorf("got %q, want the reason and the lines", got)
	}
}

func TestLinesAreCutAndMadeValid(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, c := range []struct{ name, in, want string }{
		{"plain", "abc\n", "abc"},
		{"windows", "abc\r\n", "abc"},
		{"empty", "\n", ""},
		{"no end", "abc", "abc"},
		{"not UTF-8", "a\xff\xfeb\n", "a\uFFFDb"},
		{"zero bytes", "a\x00b\n", "a\x00b"},
		{"long", long + "yyy\n", long + " ... (4 bytes more)"},
		{"very long without an end", long + long + long, long + " ... (8192 bytes more)"},
	} {
		r := bufio.NewReaderSize(strings.NewReader(c.in), maxLine)
		got, err := readLine(r)
		if got != c.want || (err != nil && err != io.EOF) {
			t.Errorf("%s: got %.60q (%d bytes) and %v, want %.60q (%d bytes)", c.name, got, len(got), err, c.want, len(c.want))
		}
	}
}

func FuzzReadLine(f *testing.F) {
	f.Add([]byte("a\nb\r\n\xff\n"))
	f.Add(bytes.Repeat([]byte("x"), 9000))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(in), maxLine)
		lines := 0
		for {
			text, err := readLine(r)
			if !utf8.ValidString(text) || len(text) > 3*maxLine+40 {
				t.Fatalf("got a line of %d bytes, want valid UTF-8 of bounded size", len(text))
			}
			if err != nil {
				break
			}
			lines++
		}
		if want := bytes.Count(in, []byte("\n")); lines != want {
			t.Errorf("got %d lines, want %d", lines, want)
		}
	})
}

// A stuckLog blocks until it is freed.
type stuckLog struct{ free chan struct{} }

func (l stuckLog) Write(p []byte) (int, error) { <-l.free; return len(p), nil }

func TestAStuckLogHoldsUpNeitherTheChildNorItsEnd(t *testing.T) {
	cmd, _ := shell(fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i of a talkative child; i=$((i+1)); done; echo last >&2; exit 4", 5*maxPending))
	stuck := stuckLog{make(chan struct{})}
	defer close(stuck.free)
	cmd.Log = slog.New(slog.NewTextHandler(stuck, nil))
	exit := exitOf(t, start(t, cmd))
	if exit.Code != 4 || exit.LastLine() != "last" {
		t.Errorf("got %v, want exit code 4 and the last line", exit)
	}
}

func TestALogThatIsTooSlowIsToldWhatItMissed(t *testing.T) {
	cmd, log := shell("")
	o := &output{cmd: cmd, lines: make(chan line, 2)}
	o.read("stdout", strings.NewReader("1\n2\n3\n4\n5\n"), nil)
	close(o.lines)
	o.write()
	if !strings.Contains(log.String(), "lines were left out") || !strings.Contains(log.String(), "lines=3") {
		t.Errorf("got log %q, want it told of 3 lines left out", log)
	}
}

func TestOutputEndsThoughSomebodyOutsideTheGroupHoldsThePipe(t *testing.T) {
	cmd, _ := shell(`setsid sh -c 'echo out >"$FLAG"; exec sleep 5' & while [ ! -s "$FLAG" ]; do sleep 0.01; done; echo gone >&2; exit 2`)
	cmd.Env = append(cmd.Env, "FLAG="+filepath.Join(t.TempDir(), "flag"))
	begin := time.Now()
	exit := exitOf(t, start(t, cmd))
	if exit.Code != 2 || exit.LastLine() != "gone" {
		t.Errorf("got %v, want exit code 2 and the last line", exit)
	}
	if took := time.Since(begin); took < drainTime || took > 4*time.Second {
		t.Errorf("took %v, want the end to wait a little, but not for the one that holds the pipe", took)
	}
}
