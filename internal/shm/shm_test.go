//go:build linux

package shm

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"shoal/internal/status"
)

// memory makes memory for a test and returns its key.
func memory(t *testing.T, size int) *Own {
	t.Helper()
	key := fmt.Sprintf("/shoal_test_%d_%s_%d", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "_"), size)
	m, err := Create(key, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Remove(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// files counts what this process has open.
func files(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func wantError(t *testing.T, what string, err error, code status.Code, text string) {
	t.Helper()
	if err == nil || status.CodeOf(err) != code || !strings.Contains(status.Public(err), text) {
		t.Errorf("%s: got %v (%v), want %v: %s", what, err, status.CodeOf(err), code, text)
	}
}

func TestRegionIsReadAndWrittenWhereTheClientSays(t *testing.T) {
	m := memory(t, 64)
	copy(m.Bytes()[8:], "hello")
	r := NewRegistry(4)
	t.Cleanup(r.Close)
	if err := r.Register("in", m.Key, 4, 32); err != nil {
		t.Fatal(err)
	}
	p, err := r.Use("in", 4, 5)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, p.Size())
	if err := p.Read(got); err != nil || string(got) != "hello" {
		t.Errorf("read: got %q, %v, want hello", got, err)
	}
	if err := p.Write("OUT", []byte("HEY")); err != nil {
		t.Error(err)
	}
	if want := []byte("HEYlo"); !bytes.Equal(m.Bytes()[8:13], want) {
		t.Errorf("memory after the write: got %q, want %q", m.Bytes()[8:13], want)
	}
	wantError(t, "too long an output", p.Write("OUT", make([]byte, 6)), status.Internal,
		"shared memory size specified with the request for output 'OUT' (5 bytes) should be at least 6 bytes to hold the results")
	p.Release()
}

func TestRegisterRefusesWhatIsNoMemory(t *testing.T) {
	m := memory(t, 64)
	link, dir, fifo := m.Key+"_link", m.Key+"_dir", m.Key+"_elsewhere"
	if err := os.Symlink("/etc/hostname", "/dev/shm"+link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove("/dev/shm" + link) })
	if err := os.Mkdir("/dev/shm"+dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove("/dev/shm" + dir) })
	r := NewRegistry(4)
	t.Cleanup(r.Close)
	before := files(t)
	for _, key := range []string{"", "/", ".", "..", "/..", "/../etc/passwd", "../dev/shm" + m.Key, "/a/b", "a\x00b", "/" + strings.Repeat("x", 300), link, dir, fifo} {
		wantError(t, key, r.Register("a", key, 0, 1), status.Internal, "Unable to open shared memory region: '"+key+"'")
	}
	const invalid = "failed to register shared memory region 'a': invalid args"
	huge := ^uint64(0)
	for _, c := range [][2]uint64{{0, 0}, {0, 65}, {64, 1}, {65, 1}, {huge, 1}, {huge, huge}, {1, huge}} {
		wantError(t, fmt.Sprint(c), r.Register("a", m.Key, c[0], c[1]), status.InvalidArgument, invalid)
	}
	wantError(t, "no name", r.Register("", m.Key, 0, 1), status.InvalidArgument, "'region name' is necessary")
	wantError(t, "the server's own", r.Register("a", "/"+reservedPrefix+"1", 0, 1), status.InvalidArgument, "reserved key")
	if after := files(t); after != before {
		t.Errorf("refused registrations left files open: got %d, want %d", after, before)
	}
	if err := r.Register("a", strings.TrimPrefix(m.Key, "/"), 0, 64); err != nil {
		t.Errorf("a key without a slash: got %v, want none", err)
	}
	wantError(t, "a name again", r.Register("a", m.Key, 0, 1), status.AlreadyExists, "shared memory region 'a' already in manager")
	wantError(t, "beyond memory that is known", r.Register("b", strings.TrimPrefix(m.Key, "/"), 0, 65), status.Internal, "Invalid shared memory region: '")
}

func TestRegistryHasALimit(t *testing.T) {
	m := memory(t, 8)
	r := NewRegistry(2)
	t.Cleanup(r.Close)
	for _, name := range []string{"a", "b"} {
		if err := r.Register(name, m.Key, 0, 8); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, "a third", r.Register("c", m.Key, 0, 8), status.Unavailable, "--client-shm-max-regions")
}

func TestUseRefusesWhatLiesOutside(t *testing.T) {
	m := memory(t, 64)
	r := NewRegistry(4)
	t.Cleanup(r.Close)
	if err := r.Register("a", m.Key, 0, 32); err != nil {
		t.Fatal(err)
	}
	huge := ^uint64(0)
	for _, c := range []struct {
		offset, size uint64
		text         string
	}{
		{32, 1, "Invalid offset for shared memory region: 'a'"},
		{huge, 1, "Invalid offset for shared memory region: 'a'"},
		{0, 0, "Invalid offset + byte size for shared memory region: 'a'"},
		{0, 33, "Invalid offset + byte size for shared memory region: 'a'"},
		{31, 2, "Invalid offset + byte size for shared memory region: 'a'"},
		{1, huge, "Invalid offset + byte size for shared memory region: 'a'"},
	} {
		_, err := r.Use("a", c.offset, c.size)
		wantError(t, fmt.Sprint(c.offset, c.size), err, status.InvalidArgument, c.text)
	}
	_, err := r.Use("b", 0, 1)
	wantError(t, "unknown", err, status.NotFound, "Unable to find shared memory region: 'b'")
	_, err = r.Status(System, "b")
	wantError(t, "status of an unknown one", err, status.NotFound, "Unable to find system shared memory region: 'b'")
}

func TestRegionInUseIsClosedWithItsLastRequest(t *testing.T) {
	m := memory(t, 8)
	before := files(t)
	r := NewRegistry(4)
	if err := r.Register("a", m.Key, 0, 8); err != nil {
		t.Fatal(err)
	}
	p, err := r.Use("a", 0, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Unregister(System, "a"); err != nil {
		t.Fatal(err)
	}
	if list, err := r.Status(System, ""); err != nil || len(list) != 0 {
		t.Errorf("status after unregister: got %v, %v, want none", list, err)
	}
	if err := p.Write("OUT", []byte("x")); err != nil || m.Bytes()[0] != 'x' {
		t.Errorf("a write after unregister: got %v and %q, want it done", err, m.Bytes()[0])
	}
	if got := files(t); got != before+1 {
		t.Errorf("files while the request uses the region: got %d, want %d", got, before+1)
	}
	p.Release()
	if got := files(t); got != before {
		t.Errorf("files after the request: got %d, want %d", got, before)
	}
	if err := r.Unregister(System, "never was"); err != nil {
		t.Errorf("unregister of what is not there: got %v, want none", err)
	}
}

// A client may cut its memory short while the server uses it. With a mapping that
// would be a fault of the whole process.
func TestMemoryCutShortFailsOneRequest(t *testing.T) {
	m := memory(t, 1<<16)
	r := NewRegistry(4)
	t.Cleanup(r.Close)
	if err := r.Register("a", m.Key, 0, 1<<16); err != nil {
		t.Fatal(err)
	}
	p, err := r.Use("a", 0, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if err := os.Truncate("/dev/shm"+m.Key, 10); err != nil {
		t.Fatal(err)
	}
	wantError(t, "read", p.Read(make([]byte, 1<<16)), status.Internal, "Unable to read shared memory region: 'a'")
	wantError(t, "write", p.Write("OUT", make([]byte, 100)), status.Internal, "Unable to write shared memory region: 'a'")
	if info, err := os.Stat("/dev/shm" + m.Key); err != nil || info.Size() != 10 {
		t.Errorf("after the write: got %v, %v, want 10 bytes still", info.Size(), err)
	}
}

func TestDisabledRegistryRefusesEverything(t *testing.T) {
	var r *Registry
	_, used := r.Use("a", 0, 1)
	_, asked := r.Status(System, "")
	for _, err := range []error{r.Register("a", "/a", 0, 1), r.Unregister(System, ""), used, asked} {
		wantError(t, "disabled", err, status.Unsupported, "--allow-client-shm=true")
	}
	r.Close()
}

// FuzzKey holds that no key leads out of the folder of named memory.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"/a", "a", "", "/", "..", "/../x", "//a", "a/b", "a\x00", "\\..\\", strings.Repeat("y", 256)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		p, err := path(key)
		if err != nil {
			return
		}
		name, ok := strings.CutPrefix(p, folder)
		if !ok || strings.ContainsAny(name, "/\x00") || name == "" || name == "." || name == ".." {
			t.Errorf("key %q: got path %q, want one straight in %s", key, p, folder)
		}
	})
}
