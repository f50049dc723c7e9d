package cudatest

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"shoal/internal/backend/cuda"
	"shoal/internal/shm"
)

func lender(d Devices) func(int, []byte) (shm.Memory, error) {
	return func(gpu int, handle []byte) (shm.Memory, error) { return cuda.OpenShared(d, gpu, handle) }
}

func TestMemoryThatAClientLendsIsReadAndWrittenWithinItsBounds(t *testing.T) {
	gpus := New(2)
	lent := []byte("0123456789")
	handle := gpus[1].Lend(lent)
	r := shm.NewRegistry(4)
	r.OpenCUDA = lender(gpus)
	if err := r.RegisterCUDA("g", handle, 1, 8); err != nil {
		t.Fatal(err)
	}
	list, err := r.Status(shm.CUDA, "g")
	if want := (shm.Info{Kind: shm.CUDA, Name: "g", Device: 1, Size: 8}); err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("status: got %v, %v, want %v", list, err, want)
	}
	if list, err := r.Status(shm.System, ""); err != nil || len(list) != 0 {
		t.Errorf("status of the system's memory: got %v, %v, want none", list, err)
	}
	if _, err := r.Use("g", 4, 5); err == nil {
		t.Error("a part beyond the region: got no error, want one")
	}
	p, err := r.Use("g", 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if err := p.Read(got); err != nil || string(got) != "2345" {
		t.Errorf("got %q, %v, want 2345", got, err)
	}
	if err := p.Write("OUT", []byte("abc")); err != nil || string(lent) != "01abc56789" {
		t.Errorf("got %q, %v, want 01abc56789", lent, err)
	}
	if err := p.Write("OUT", bytes.Repeat([]byte("x"), 5)); err == nil || !strings.Contains(err.Error(), "should be at least 5 bytes") {
		t.Errorf("an output that is too large: got %v, want an error", err)
	}
	if err := r.Unregister(shm.System, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.Unregister(shm.CUDA, "g"); err != nil {
		t.Fatal(err)
	}
	if calls := gpus[1].Calls(); slices.Contains(calls, "CloseShared") {
		t.Error("it was closed while a request used it")
	}
	p.Release()
	if calls := gpus[1].Calls(); !slices.Equal(calls, []string{"CloseShared"}) {
		t.Errorf("after the request: got calls %v, want CloseShared", calls)
	}
	if left := gpus[1].Left(); left != "" {
		t.Errorf("left: %s", left)
	}
}

func TestMemoryThatCannotBeOpenedIsRefused(t *testing.T) {
	gpus := New(1)
	handle := gpus[0].Lend(make([]byte, 16))
	r := shm.NewRegistry(4)
	r.OpenCUDA = lender(gpus)
	t.Cleanup(r.Close)
	for _, c := range []struct {
		name   string
		handle []byte
		gpu    int64
		size   uint64
		want   string
	}{
		{"", handle, 0, 16, "'region name' is necessary to register cuda shared memory region"},
		{"g", handle, 1, 16, "there is no GPU 1"},
		{"g", handle, -1, 16, "there is no GPU -1"},
		{"g", handle[:63], 0, 16, "a handle has 63 bytes, want 64"},
		{"g", make([]byte, 64), 0, 16, "cuIpcOpenMemHandle_v2"},
		{"g", handle, 0, 17, "17 bytes of memory that has 16"},
		{"g", handle, 0, 0, "invalid args"},
		{"g", handle, 0, 16, ""},
		{"g", handle, 0, 16, "already in manager"},
	} {
		err := r.RegisterCUDA(c.name, c.handle, c.gpu, c.size)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q, GPU %d, %d bytes: got %v, want ...%s", c.name, c.gpu, c.size, err, c.want)
		}
	}
	r.Close()
	if left := gpus[0].Left(); left != "" {
		t.Errorf("left: %s", left)
	}
	none := shm.NewRegistry(4)
	if err := none.RegisterCUDA("g", handle, 0, 16); err == nil || !strings.Contains(err.Error(), "GPUs not supported") {
		t.Errorf("without a GPU: got %v", err)
	}
	var off *shm.Registry
	if err := off.RegisterCUDA("g", handle, 0, 16); err != shm.ErrDisabled {
		t.Errorf("where it is not allowed: got %v", err)
	}
}
