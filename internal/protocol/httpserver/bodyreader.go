package httpserver

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/valyala/fasthttp"

	"shoal/internal/reject"
	"shoal/internal/status"
)

// A bodyReader reads the body of a request from its connection.
type bodyReader struct {
	in     *bufio.Reader
	header *fasthttp.RequestHeader

	chunked bool
	chunks  int   // those that have come
	left    int64 // bytes that the body, or the current chunk, still has
	done    bool  // all of the body was read
	err     error // why no more of it can be read
}

var (
	errRefused = errors.New("the body is not wanted")
	errChunk   = errors.New("invalid chunk")
	errChunks  = status.Rejectf(reject.TooLarge, status.InvalidArgument,
		"Chunked request body exceeds maximum of %d non-empty chunks. Send fewer or larger HTTP chunks.", maxChunks)
)

// begin starts to read the body that the header announces.
func (r *bodyReader) begin() {
	n := r.header.ContentLength() // -1 for chunks, -2 for none
	*r = bodyReader{in: r.in, header: r.header, chunked: n == -1, left: int64(max(n, 0)), done: n == 0 || n == -2}
}

// refuse stops reading the body.
func (r *bodyReader) refuse() { r.err = errRefused }

// Read implements io.Reader. The last bytes come with io.EOF where their number
// is known.
func (r *bodyReader) Read(p []byte) (n int, err error) {
	switch {
	case r.err != nil:
		return 0, r.err
	case r.done:
		return 0, io.EOF
	case r.chunked && r.left == 0:
		r.left, err = r.nextChunk()
	}
	if err == nil && !r.done {
		n, err = r.in.Read(p[:min(int64(len(p)), r.left)])
		if r.left -= int64(n); r.left == 0 {
			err = r.end()
		}
	}
	if r.done {
		return n, io.EOF
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	r.err = err
	return n, err
}

// end ends a chunk, or the body.
func (r *bodyReader) end() error {
	if !r.chunked {
		r.done = true
		return nil
	}
	line, err := r.in.ReadSlice('\n')
	if err == nil && string(line) != "\r\n" {
		err = errChunk
	}
	return err
}

// nextChunk reads the size of the next chunk and, after the last one, the
// trailer.
func (r *bodyReader) nextChunk() (int64, error) {
	line, err := r.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	size, err := parseChunkSize(line)
	if err != nil {
		return 0, err
	}
	if size > 0 {
		if r.chunks++; r.chunks > maxChunks {
			return 0, errChunks
		}
		return size, nil
	}
	if err := r.header.ReadTrailer(r.in); err != nil && err != io.EOF {
		return 0, err
	}
	r.done = true
	return 0, nil
}

// parseChunkSize reads the line before a chunk: its size, and extensions, which
// are ignored. It is strict, since a proxy in front must not read it
// differently.
func parseChunkSize(line []byte) (int64, error) {
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || bytes.IndexByte(line, '\r') >= 0 {
		return 0, errChunk
	}
	digits, _, extended := bytes.Cut(line, []byte(";"))
	if !extended {
		digits = bytes.TrimRight(digits, " \t")
	}
	if len(digits) == 0 || len(digits) > 15 || digits[0] == '+' || digits[0] == '-' {
		return 0, errChunk
	}
	size, err := strconv.ParseInt(string(digits), 16, 64)
	if err != nil {
		return 0, errChunk
	}
	return size, nil
}
