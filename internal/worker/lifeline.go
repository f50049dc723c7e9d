package worker

import "os"

// A lifeline is a pipe whose write end only the server has. When the server is
// gone, for whatever reason, the pipe's read end, which the child has too,
// reads end-of-file.
type lifeline struct{ read, write *os.File }

func newLifeline() (lifeline, error) {
	read, write, err := os.Pipe()
	return lifeline{read, write}, err
}

func (l lifeline) close() {
	l.write.Close()
	l.read.Close()
}
