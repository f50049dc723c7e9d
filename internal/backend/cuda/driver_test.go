package cuda

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// driver returns the driver with a GPU; a test is skipped without one.
func driver(t *testing.T) *Driver {
	t.Helper()
	d, err := Open()
	if err != nil {
		t.Skipf("no GPU: %v", err)
	}
	if d.Count() == 0 {
		t.Skip("no GPU: the driver shows none")
	}
	return d
}

func TestWithoutADriverTheErrorSaysSo(t *testing.T) {
	if _, err := os.Stat("/proc/driver/nvidia"); err == nil {
		t.Skip("there is a driver")
	}
	_, err := Open()
	if want := "NVIDIA's driver is not installed: libcuda.so.1 was not found"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestMemoryGoesToTheDeviceAndBack(t *testing.T) {
	dev, err := driver(t).Device(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Enter(); err != nil {
		t.Fatal(err)
	}
	defer dev.Leave()
	host, err := dev.AllocHost(2 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.FreeHost(host)
	at, err := dev.Alloc(len(host))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Free(at)
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.DestroyStream(s)
	e, err := dev.NewEvent(false)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.DestroyEvent(e)
	for i := range host {
		host[i] = byte(i)
	}
	want := bytes.Clone(host)
	n := len(host) / 2
	g, err := dev.Capture(s, func() error {
		return errors.Join(dev.Copy(at+Address(n), at, n, s), dev.Zero(at, n/2, s))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.DestroyGraph(g)
	if err := errors.Join(dev.CopyIn(at, host, s), dev.Launch(g, s), dev.CopyOut(host, at, s), dev.Record(e, s), dev.Synchronize(e)); err != nil {
		t.Fatal(err)
	}
	copy(want[n:], want[:n])
	clear(want[:n/2])
	if !bytes.Equal(host, want) {
		t.Error("got other bytes back, want the first half doubled and its first half cleared")
	}
	if done, err := dev.Done(e); !done || err != nil {
		t.Errorf("got done %v %v, want that it is done", done, err)
	}
}

func TestTooMuchMemoryIsAnErrorOfThatKind(t *testing.T) {
	dev, err := driver(t).Device(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Enter(); err != nil {
		t.Fatal(err)
	}
	defer dev.Leave()
	var ce *Error
	if _, err := dev.Alloc(1 << 46); !errors.As(err, &ce) || !ce.OutOfMemory() {
		t.Errorf("got %v, want that the memory is not there", err)
	}
}
