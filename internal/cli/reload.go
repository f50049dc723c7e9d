package cli

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"shoal/internal/engine"
	"shoal/internal/repository"
)

// reloadInterval is how often --reload looks at the files.
const reloadInterval = 100 * time.Millisecond

// A reloader loads models anew when their files change, for --reload.
type reloader struct {
	watched []string // files, models' folders and repositories
	engine  *engine.Engine
	log     *slog.Logger
	stop    chan struct{}
	wg      sync.WaitGroup
}

// startReload starts to watch the files of --model and --model-repository. The
// caller must call the function that it returns.
func (f *serveFlags) startReload(e *engine.Engine, log *slog.Logger) (end func(), err error) {
	r := &reloader{watched: f.userRepositories, engine: e, log: log, stop: make(chan struct{})}
	for _, m := range f.models {
		_, path, err := splitModel(m)
		if err != nil {
			return nil, err
		}
		r.watched = append(r.watched, path)
	}
	r.wg.Go(r.run)
	return func() {
		close(r.stop)
		r.wg.Wait()
	}, nil
}

// run loads what has changed. A file that is being written is left alone until
// it is the same twice.
func (r *reloader) run() {
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	loaded := r.stamp()
	last := loaded
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
		now := r.stamp()
		if now != loaded && now == last {
			loaded = now
			r.reload()
		}
		last = now
	}
}

// reload makes the engine follow the files. What does not load is in the log, and
// what was served goes on.
func (r *reloader) reload() {
	begin := time.Now()
	failed, err := r.engine.Follow(context.Background())
	switch {
	case err != nil:
		r.log.Warn("the changed files cannot be read; what is loaded goes on", "err", err)
		return
	case len(failed) > 0:
		r.log.Warn("the change does not load; the one before it goes on", "models", strings.Join(failed, ", "))
		return
	}
	r.log.Info("changed files are served", "after", time.Since(begin).Round(time.Millisecond))
}

// stamp returns a number that changes with the files.
func (r *reloader) stamp() uint64 {
	h := fnv.New64a()
	for _, path := range r.watched {
		info, err := os.Stat(path)
		switch {
		case err != nil: // an editor may be about to put it back
			fmt.Fprintf(h, "%s?", path)
		case !info.IsDir():
			stampFile(h, path)
			beside, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.py")) // the pattern is good
			for _, other := range beside {
				stampFile(h, other)
			}
		default:
			fmt.Fprintf(h, "%s:%d", path, repository.Entry{Dir: path}.TreeStamp())
		}
	}
	return h.Sum64()
}

func stampFile(w io.Writer, path string) {
	if info, err := os.Stat(path); err == nil {
		fmt.Fprintf(w, "%s:%d:%d", path, info.Size(), info.ModTime().UnixNano())
	}
}
