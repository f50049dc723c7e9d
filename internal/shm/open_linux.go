package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// folder is where the system keeps named memory.
const folder = "/dev/shm/"

// maxName is the file system's limit.
const maxName = 255

// path returns the file of a key, which is a name with or without a slash in
// front. Names with a slash inside would lead elsewhere.
func path(key string) (string, error) {
	name := strings.TrimLeft(key, "/")
	if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("%.300q is not the key of shared memory", key)
	}
	return folder + name, nil
}

// open opens the memory object with that key and returns its length. Links and
// everything that is not plain memory are refused, and opening never blocks.
func open(key string) (*os.File, uint64, error) {
	name, err := path(key)
	if err != nil {
		return nil, 0, err
	}
	file, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a memory object")
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, uint64(info.Size()), nil
}

// An Own is shared memory that this process made. It lives until Remove, or
// until the machine restarts.
type Own struct {
	Key  string
	data []byte
}

// Create makes memory of that size, filled with zeros, which only this user may
// open. The key must not exist.
func Create(key string, size int) (*Own, error) {
	name, err := path(key)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the mapping stays
	data, err := reserve(file, size)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory %s of %d bytes: %w", key, size, err), os.Remove(name))
	}
	return &Own{Key: key, data: data}, nil
}

// reserve allocates the file's memory and maps it.
func reserve(file *os.File, size int) ([]byte, error) {
	fd := int(file.Fd())
	if err := unix.Fallocate(fd, 0, 0, int64(size)); err != nil {
		return nil, err
	}
	return unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// Bytes returns the memory. It must not be used after Remove.
func (m *Own) Bytes() []byte { return m.data }

// Remove unmaps the memory and removes its name; other processes that have it
// open keep it. A second call does nothing.
func (m *Own) Remove() error {
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	name, err := path(m.Key)
	if err != nil {
		return err
	}
	if err = os.Remove(name); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(unix.Munmap(data), err)
}
