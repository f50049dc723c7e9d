package cuda

import "fmt"

// HandleSize is the size of a handle to memory that a process lends to others.
const HandleSize = 64

// A Shared is memory of a GPU that another process lends. Its methods may be
// called from many goroutines; callers keep within its size.
type Shared struct {
	device Device
	at     Address
	size   int
}

// OpenShared opens the memory of a GPU behind a handle. The caller must close
// it.
func OpenShared(devices Devices, gpu int, handle []byte) (*Shared, error) {
	if len(handle) != HandleSize {
		return nil, fmt.Errorf("a handle has %d bytes, want %d", len(handle), HandleSize)
	}
	dev, err := devices.Device(gpu)
	if err != nil {
		return nil, err
	}
	if err := dev.Enter(); err != nil {
		return nil, err
	}
	defer dev.Leave()
	s := &Shared{device: dev}
	s.at, s.size, err = dev.OpenShared(handle)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Size returns the bytes that there are.
func (s *Shared) Size() (uint64, error) { return uint64(s.size), nil }

// ReadAt fills b with what is there from an offset on.
func (s *Shared) ReadAt(b []byte, offset int64) (int, error) {
	if err := s.device.Enter(); err != nil {
		return 0, err
	}
	defer s.device.Leave()
	if err := s.device.Read(b, s.at+Address(offset)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WriteAt writes b from an offset on.
func (s *Shared) WriteAt(b []byte, offset int64) (int, error) {
	if err := s.device.Enter(); err != nil {
		return 0, err
	}
	defer s.device.Leave()
	if err := s.device.Write(s.at+Address(offset), b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close gives the memory back to its process.
func (s *Shared) Close() error {
	if err := s.device.Enter(); err != nil {
		return err
	}
	defer s.device.Leave()
	s.device.CloseShared(s.at)
	return nil
}
