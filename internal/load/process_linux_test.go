package load

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestProcessCPUGrowsWithWork(t *testing.T) {
	self := Watch(os.Getpid())
	before, err := self.CPU()
	if err != nil {
		t.Fatal(err)
	}
	const work = 30 * time.Millisecond
	for deadline := time.Now().Add(time.Minute); ; {
		after, err := self.CPU()
		if err != nil {
			t.Fatal(err)
		}
		if after-before >= work {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %v of CPU in a minute of work, want %v", after-before, work)
		}
	}
}

func TestProcessFindsItsDescendants(t *testing.T) {
	cmd := exec.Command("sh", "-c", "cat; true") // the shell starts cat, which waits for its input
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		found, err := Watch(os.Getpid()).Descendants()
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.Index(found, Watch(cmd.Process.Pid)); i >= 0 && len(found) >= 2 {
			if rss, err := found[i].RSS(); err != nil || rss < 4096 {
				t.Errorf("got %d bytes resident, %v, want at least a page", rss, err)
			}
			return
		}
	}
	t.Error("got no child and grandchild in a minute, want both")
}

func TestProcessThatIsGoneIsAnError(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if got, err := Watch(cmd.Process.Pid).CPU(); err == nil {
		t.Errorf("got %v, want an error", got)
	}
}

func TestParentOf(t *testing.T) {
	tests := []struct {
		name, stat string
		want       int
		ok         bool
	}{
		{"an ordinary line", "12 (cat) S 7 12 12 0", 7, true},
		{"a command with brackets and spaces", "12 (a) S 9 (b) R 7 1", 7, true},
		{"a line that ends early", "12 (cat) S", 0, false},
		{"no command", "12", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := parentOf([]byte(tt.stat)); got != tt.want || ok != tt.ok {
				t.Errorf("got %d, %v, want %d, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestDescendsEndsOnARing(t *testing.T) {
	if descends(map[int]int{2: 3, 3: 2}, 2, 9) {
		t.Error("got true, want false")
	}
}
