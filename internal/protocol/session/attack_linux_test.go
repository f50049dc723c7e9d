package session

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"shoal/internal/tensor"
)

// good calls the model from another session and fails the test unless it gets the
// right answer.
func (r *rig) good(t *testing.T) {
	t.Helper()
	c := r.open(t, "plain")
	defer c.close()
	c.room(0, 1<<16)
	data := []byte("the answer to this is itself....")
	c.floats(0, data, 8)
	c.push(0)
	if got, fault := c.result(0); fault != "" || !bytes.Equal(got, data) {
		t.Errorf("another client got %q %s, want %q", got, fault, data)
	}
}

// A client changes its tables all the time, while the server reads them.
func TestAClientThatChangesShapesAfterSubmission(t *testing.T) {
	r := startRig(t, testModels, nil)
	for _, model := range []string{"plain", "rows", "text"} {
		c := r.open(t, model)
		c.room(0, 1<<16)
		kind, shape := tensor.FP32, []int64{4}
		switch model {
		case "rows":
			shape = []int64{1, 4}
		case "text":
			kind = tensor.Bytes
		}
		good := table(sent{"INPUT0", kind, shape, dataAt, 16})
		wild := [][]byte{
			table(sent{"INPUT0", kind, shape, dataAt, 1 << 40}),
			table(sent{"INPUT0", kind, shape, 1 << 60, 16}),
			table(sent{"INPUT0", kind, []int64{1 << 40}, dataAt, 16}),
			table(sent{"INPUT0", kind, []int64{-1, 7}, dataAt, 16}),
			bytes.Repeat([]byte{0xff}, len(good)),
		}
		in := c.in[0]
		var stop atomic.Bool
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := 0; !stop.Load(); i++ {
				copy(in[inHead:], wild[i%len(wild)])
				copy(in[dataAt:], []byte{0xff, 0xff, 0xff, byte(i)}) // the length of a string
				copy(in[inHead:], good)
			}
		})
		for range 200 {
			c.calls[0]++
			le.PutUint32(in, c.calls[0])
			le.PutUint32(in[4:], uint32(len(good)))
			c.push(0)
			c.await(0)
		}
		stop.Store(true)
		writer.Wait()
	}
	r.good(t)
}

func TestAClientThatBreaksTheRing(t *testing.T) {
	r := startRig(t, testModels, nil)
	for name, breakIt := range map[string]func(*client){
		"a slot that does not exist": func(c *client) { c.push(7) },
		"a slot beyond all":          func(c *client) { c.push(1 << 31) },
		"more calls than slots": func(c *client) {
			store(word(c.page, tailAt), c.tail+maxSlots+1)
			c.send(le.AppendUint32(nil, msgWake))
		},
		"an unknown message":                    func(c *client) { c.send([]byte{99, 0, 0, 0}) },
		"a message that is too long":            func(c *client) { c.send(make([]byte, maxMessage+1)) },
		"memory for a slot that does not exist": func(c *client) { c.ask(maxSlots, 100) },
		"a second hello":                        func(c *client) { c.hello(protocolVersion, "plain") },
	} {
		c := r.open(t, "plain")
		c.room(0, 1<<16)
		breakIt(c)
		c.ended()
		if t.Failed() {
			t.Fatal(name)
		}
	}
	r.good(t)
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestAClientThatSendsDescriptors(t *testing.T) {
	r := startRig(t, testModels, nil)
	c := r.open(t, "plain")
	c.room(0, 1<<16)
	mine, err := unix.MemfdCreate("mine", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(mine)
	before := descriptors(t)
	for range 100 {
		if _, _, err := c.conn.WriteMsgUnix(le.AppendUint32(nil, msgWake), unix.UnixRights(mine, mine, mine), nil); err != nil {
			t.Fatal(err)
		}
	}
	c.floats(0, make([]byte, 8), 2)
	c.push(0)
	c.await(0) // the messages before were read
	if after := descriptors(t); after > before {
		t.Errorf("got %d open files, want %d: the server kept descriptors of a client", after, before)
	}
}

func TestAClientCannotChangeTheSizeOfItsMemory(t *testing.T) {
	r := startRig(t, testModels, nil)
	c := r.open(t, "plain")
	c.room(0, 1<<16)
	for i, fd := range c.fds {
		for _, size := range []int64{0, 1 << 30} {
			if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
				t.Errorf("memory %d to %d bytes: got %v, want EPERM", i, size, err)
			}
		}
	}
	// The pages that the server writes: its own, and the outputs.
	for _, i := range []int{1, 3} {
		if b, err := unix.Mmap(c.fds[i], 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			unix.Munmap(b)
			t.Errorf("memory %d can be written", i)
		}
		if _, err := unix.Pwrite(c.fds[i], []byte{1}, 0); err == nil {
			t.Errorf("memory %d can be written to as a file", i)
		}
	}
	// Holes are memory of zeros, not faults.
	c.floats(0, bytes.Repeat([]byte{1}, 8), 2)
	if err := unix.Fallocate(c.fds[2], unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1<<16); err != nil {
		t.Fatal(err)
	}
	c.floats(0, make([]byte, 8), 2)
	c.push(0)
	if got, fault := c.result(0); fault != "" || !bytes.Equal(got, make([]byte, 8)) {
		t.Errorf("got %v %s, want zeros", got, fault)
	}
}

func TestAClientThatFloodsTheSocket(t *testing.T) {
	r := startRig(t, testModels, nil)
	var stop atomic.Bool
	var flood sync.WaitGroup
	for range 4 {
		c := r.open(t, "plain")
		c.room(0, 1<<16)
		flood.Go(func() {
			for i := uint32(0); !stop.Load(); i++ {
				b := le.AppendUint32(nil, []uint32{msgWake, msgRoom, msgCancel}[i%3])
				switch i % 3 {
				case 1:
					b = le.AppendUint64(le.AppendUint32(b, 0), 1)
				case 2:
					b = le.AppendUint32(le.AppendUint32(b, 0), i)
				}
				c.send(b)
			}
		})
	}
	for range 20 {
		r.good(t)
	}
	stop.Store(true)
	flood.Wait()
	if got := r.Bytes(); got > 5*(2*pageSize+2*minRegion) {
		t.Errorf("got %d bytes of shared memory for requests that ask for no more", got)
	}
}

// A client that asks for memory and never reads the answers is cut off; one that
// wants its event loop to be told of answers only misses them.
func TestAClientThatNeverReads(t *testing.T) {
	r := startRig(t, testModels, func(o *Options) { o.MaxBytes = 1 << 30 })
	c := r.open(t, "plain")
	c.room(0, 1<<16)
	c.floats(0, make([]byte, 8), 2)
	for i := range uint32(1000) {
		store(word(c.page, waitsAt), waitLoop)
		c.calls[0] = i + 2
		le.PutUint32(c.in[0], c.calls[0])
		c.push(0)
		c.await(0)
	}
	r.good(t)
	for slot := uint32(1); slot < maxSlots; slot++ {
		b := le.AppendUint32(le.AppendUint32(nil, msgRoom), slot)
		if _, err := c.conn.Write(le.AppendUint64(b, 1)); err != nil {
			break // it is cut off already
		}
	}
	until(t, "the end of its session", func() bool { return r.Sessions() == 0 })
	r.good(t)
}
