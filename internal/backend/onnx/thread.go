package onnx

import "runtime"

// A thread is a thread of the system that makes the calls of one session: ONNX
// Runtime keeps handles of CUDA's libraries for each thread that calls it, and
// keeps them until the session ends if it is prepared for CUDA graphs.
type thread struct {
	work chan func()
	done chan struct{}
}

// startThread returns a running thread, which the caller must close.
func startThread() *thread {
	t := &thread{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range t.work {
			f()
		}
	}()
	return t
}

// do calls f on the thread and returns when it has.
func (t *thread) do(f func() error) (err error) {
	ran := make(chan struct{})
	t.work <- func() {
		defer close(ran)
		err = f()
	}
	<-ran
	return err
}

func (t *thread) close() {
	close(t.work)
	<-t.done
}
