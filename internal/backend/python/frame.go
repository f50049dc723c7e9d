package python

import (
	"bytes"
	"encoding/binary"
	"io"
)

// A frame is a message on the socket.
type frame struct {
	kind    byte
	payload []byte
}

// maxFrame bounds a frame from a worker.
const maxFrame = 1 << 30

// readFrame reads the next frame.
func readFrame(r io.Reader) (frame, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > maxFrame {
		return frame{}, wireFault("a message of %d bytes, and at most %d are read", size, maxFrame)
	}
	var b bytes.Buffer // it grows with the bytes that arrive, whatever length was announced
	if _, err := io.CopyN(&b, r, int64(size)); err != nil {
		return frame{}, err
	}
	return frame{head[4], b.Bytes()}, nil
}

// send writes a frame.
func (l *link) send(kind byte, payload []byte) error {
	b := appendFrame(make([]byte, 0, 5+len(payload)), kind, payload)
	l.sending.Lock()
	defer l.sending.Unlock()
	_, err := l.socket.Write(b)
	return err
}

func appendFrame(b []byte, kind byte, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(append(b, kind), payload...)
}
