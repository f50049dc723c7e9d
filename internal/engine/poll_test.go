package engine

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/backend"
	"shoal/internal/status"
)

// polling starts an engine that follows the repositories when it is told to.
func polling(t *testing.T, log *slog.Logger, dirs ...string) (*Engine, *counted) {
	t.Helper()
	c := &counted{}
	e := New(Options{Repositories: dirs, LoadThreads: 2, Backends: []backend.Backend{c}, Log: log})
	if err := e.LoadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e, c
}

func remove(t *testing.T, dir, path string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
		t.Fatal(err)
	}
}

func TestPollFollowsTheRepository(t *testing.T) {
	dir := repo(t, map[string]string{"a/config.pbtxt": oneInput, "a/1/": ""})
	var log strings.Builder
	e, c := polling(t, slog.New(slog.NewTextHandler(&log, nil)), dir)
	poll := func(opened int64, ready bool, want ...string) {
		t.Helper()
		before := c.opened.Load()
		for range 2 { // the second finds nothing to do
			if err := e.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			e.work.Wait()
		}
		wantStates(t, e, want...)
		if got := c.opened.Load() - before; got != opened {
			t.Errorf("got %d versions opened, want %d", got, opened)
		}
		if e.Ready() != ready {
			t.Errorf("got ready %v, want %v", e.Ready(), ready)
		}
	}
	poll(0, true, "a 1 READY")
	write(t, dir, "b/config.pbtxt", oneInput)
	write(t, dir, "b/1/model", "")
	poll(1, true, "a 1 READY", "b 1 READY")
	write(t, dir, "a/2/model", "")
	poll(1, true, "a 1 UNAVAILABLE unloaded", "a 2 READY", "b 1 READY")
	write(t, dir, "a/labels.txt", "one")
	poll(1, true, "a 1 UNAVAILABLE unloaded", "a 2 READY", "b 1 READY")
	write(t, dir, "a/config.pbtxt", oneInput+count(3))
	poll(0, true, "a 1 UNAVAILABLE unloaded", "a 2 READY", "b 1 READY")
	remove(t, dir, "b")
	poll(0, true, "a 1 UNAVAILABLE unloaded", "a 2 READY")

	good := oneInput + count(3)
	log.Reset()
	write(t, dir, "a/config.pbtxt", "input {")
	poll(0, true, "a 1 UNAVAILABLE unloaded", "a 2 READY Invalid argument: "+filepath.Join(dir, "a/config.pbtxt")+":1:8: input[0]: } is missing for the { at 1:7")
	if got := strings.Count(log.String(), "model not loaded"); got != 1 {
		t.Errorf("got the fault %d times in the log, want once:\n%s", got, &log)
	}
	write(t, dir, "a/config.pbtxt", good)
	poll(0, true, "a 1 UNAVAILABLE unloaded", "a 2 READY")
	write(t, dir, "a/2/broken", "")
	log.Reset()
	poll(0, true, "a 1 UNAVAILABLE unloaded", "a 2 READY Invalid argument: model 'a' is broken")
	if got := strings.Count(log.String(), "model not loaded"); got != 1 {
		t.Errorf("got the broken version tried %d times, want once:\n%s", got, &log)
	}
	remove(t, dir, "a/2/broken")
	poll(0, true, "a 1 UNAVAILABLE unloaded", "a 2 READY")
	write(t, dir, "c/config.pbtxt", "nope")
	poll(0, false, "a 1 UNAVAILABLE unloaded", "a 2 READY", "c -1 UNAVAILABLE Invalid argument: "+filepath.Join(dir, "c/config.pbtxt")+":1:1: unknown field nope; did you mean name?")
	remove(t, dir, "c")
	poll(0, true, "a 1 UNAVAILABLE unloaded", "a 2 READY")
}

func TestAModelMovesBetweenRepositories(t *testing.T) {
	here, there := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": ""}), repo(t, nil)
	e, c := polling(t, slog.New(slog.DiscardHandler), here, there)
	poll := func(want ...string) {
		t.Helper()
		for range 2 { // the second forgets what the first unloads
			if err := e.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			e.work.Wait()
		}
		wantStates(t, e, want...)
	}
	write(t, there, "m/config.pbtxt", oneInput)
	write(t, there, "m/1/model", "")
	poll("m -1 UNAVAILABLE model appears in two or more repositories")
	if _, err := askLatest(t.Context(), e, "m"); status.CodeOf(err) != status.NotFound {
		t.Errorf("while it is in both: got %v, want not found", err)
	}
	remove(t, here, "m")
	poll("m 1 READY")
	if got := c.opened.Load(); got != 2 {
		t.Errorf("got %d versions opened, want the one of the other folder, too", got)
	}
	remove(t, there, "m")
	poll()
	write(t, here, "m/config.pbtxt", oneInput)
	write(t, here, "m/1/model", "")
	poll("m 1 READY")
}

func TestARepositoryThatCannotBeReadChangesNothing(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": ""})
	e, _ := polling(t, slog.New(slog.DiscardHandler), dir)
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := e.Poll(t.Context()); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("got %v, want the folder named", err)
	}
	wantStates(t, e, "m 1 READY")
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	if err := e.Poll(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPollingLooksEveryIntervalUntilTheEngineStops(t *testing.T) {
	dir := repo(t, map[string]string{"a/config.pbtxt": oneInput, "a/1/": ""})
	synctest.Test(t, func(t *testing.T) {
		e, _ := polling(t, slog.New(slog.DiscardHandler), dir)
		e.StartPolling(15 * time.Second)
		write(t, dir, "b/config.pbtxt", oneInput)
		write(t, dir, "b/1/model", "")
		time.Sleep(15*time.Second - 1)
		synctest.Wait()
		if e.ModelReady("b", 1) {
			t.Error("got b ready before the interval was over")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !e.ModelReady("b", 1) {
			t.Error("got b not ready after the interval")
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := e.Poll(t.Context()); !errors.Is(err, errExiting) {
			t.Errorf("after Close: got %v, want %v", err, errExiting)
		}
	})
}

func TestExplicitStartLoadsWhatIsNamed(t *testing.T) {
	files := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		files[name+"/config.pbtxt"], files[name+"/1/"] = oneInput, ""
	}
	other := repo(t, map[string]string{"c/config.pbtxt": oneInput, "c/1/": ""})
	dir := repo(t, files)
	tests := []struct {
		name    string
		startup []string
		ready   bool
		want    []string
	}{
		{"nothing", []string{}, true, []string{"a -1", "b -1", "c -1 UNAVAILABLE model appears in two or more repositories"}},
		{"one", []string{"b"}, true, []string{"a -1", "b 1 READY", "c -1 UNAVAILABLE model appears in two or more repositories"}},
		{"unknown", []string{"a", "nosuch"}, false, []string{
			"a 1 READY", "b -1", "c -1 UNAVAILABLE model appears in two or more repositories",
			"nosuch -1 UNAVAILABLE Not found: no repository has a folder of that name; there are a, b, c",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := New(Options{
				Repositories: []string{dir, other}, LoadThreads: 2, Control: true, Startup: tt.startup,
				Backends: []backend.Backend{&counted{}}, Log: slog.New(slog.DiscardHandler),
			})
			if err := e.LoadAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer e.Close(context.Background())
			if e.Ready() != tt.ready {
				t.Errorf("got ready %v, want %v", e.Ready(), tt.ready)
			}
			wantStates(t, e, tt.want...)
			if got := len(e.Index(true)); got != len(tt.startup)+1-strings.Count(strings.Join(tt.startup, " "), "nosuch") {
				t.Errorf("got %d lines of what is ready, want that and the ambiguous one", got)
			}
			if err := e.Load(t.Context(), "c", Override{}); !strings.Contains(status.Public(err), "several repositories have it") {
				t.Errorf("got %v, want the ambiguous one refused", err)
			}
		})
	}
}

func TestOneNameInTwoRepositories(t *testing.T) {
	const twice = "a -1 UNAVAILABLE model appears in two or more repositories"
	for _, tt := range []struct {
		does string
		left int // the repository that keeps its folder
	}{
		{"the new folder is removed", 0},
		{"the old folder is removed", 1},
	} {
		t.Run(tt.does, func(t *testing.T) {
			dirs := []string{repo(t, map[string]string{"a/config.pbtxt": oneInput, "a/1/": ""}), t.TempDir()}
			e, c := polling(t, slog.New(slog.DiscardHandler), dirs...)
			poll := func(opened int64, served bool, want string) {
				t.Helper()
				before := c.opened.Load()
				for range 2 {
					if err := e.Poll(t.Context()); err != nil {
						t.Fatal(err)
					}
					e.work.Wait()
				}
				wantStates(t, e, want)
				if got := c.opened.Load() - before; got != opened || !e.Ready() || e.ModelReady("a", 1) != served {
					t.Errorf("got %d versions opened, server ready %v, model ready %v, want %d, true, %v", got, e.Ready(), e.ModelReady("a", 1), opened, served)
				}
			}
			write(t, dirs[1], "a/config.pbtxt", oneInput)
			write(t, dirs[1], "a/1/model", "")
			poll(0, false, twice) // as in Triton, what was served is unloaded
			remove(t, dirs[1-tt.left], "a")
			poll(1, true, "a 1 READY")
			write(t, dirs[1-tt.left], "a/config.pbtxt", oneInput)
			write(t, dirs[1-tt.left], "a/1/model", "")
			poll(0, false, twice)
		})
	}
}
