// Package worker runs child processes that serve a model: Python workers, and
// whatever else a backend runs outside the server's memory. It knows nothing of
// tensors.
//
// A Process is one child. It has its own process group, its output goes to the
// log line by line, and it ends with the server, whatever ends that: the kernel
// kills it when the thread that started it dies (PR_SET_PDEATHSIG), and its
// whole group when the server's end of the lifeline closes.
//
// A Supervisor keeps one worker alive: it restarts it when it dies, the first
// time at once and then with growing pauses, and kills it when a batch takes
// longer than the model allows. Machine, which is pure, decides what it does. A
// Group tracks which workers of one model can be given work.
//
// All methods may be called from several goroutines.
package worker

import (
	"log/slog"
	"os"
	"time"
)

// LifelineEnv is the environment variable with the number of the file
// descriptor that is the child's lifeline: a pipe that nobody writes to and
// that reads end-of-file when the server is gone. The child should then exit at
// once.
const LifelineEnv = "SHOAL_LIFELINE_FD"

// A Command is the child to start and its name.
type Command struct {
	Model string // for the log and for errors
	Name  string // the instance's, such as "resnet_0_1"

	Path string   // the program: a path, or a name that is looked up in PATH
	Args []string // without the program's name
	Env  []string // the whole environment; Start adds LifelineEnv
	Dir  string   // where it starts; empty for the server's own

	// Files become the child's descriptors 3, 4 and so on. They stay the
	// caller's, who may close them after Start.
	Files []*os.File

	// Log gets each line that the child prints, with the model's and the
	// instance's name.
	Log *slog.Logger

	// Ask, when not nil, asks the child to end by itself. Stop calls it first
	// and gives the child Grace before it sends SIGTERM.
	Ask func()

	// Grace is how long Stop waits after asking, and again after SIGTERM,
	// before it kills; DefaultGrace when zero.
	Grace time.Duration
}

// DefaultGrace is how long a child may take to end when it is asked to.
const DefaultGrace = 5 * time.Second
