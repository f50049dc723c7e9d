package kservegrpc

import (
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
	"google.golang.org/grpc/encoding"
)

// deflateName is the compression that clients may send beside gzip: zlib's
// format, whatever its name. Answers are never sent in it.
const deflateName = "deflate"

func init() { encoding.RegisterCompressor(new(deflateCompressor)) }

// deflateCompressor implements encoding.Compressor.
type deflateCompressor struct{ readers sync.Pool }

// Name implements encoding.Compressor.
func (c *deflateCompressor) Name() string { return deflateName }

// Compress implements encoding.Compressor.
func (c *deflateCompressor) Compress(w io.Writer) (io.WriteCloser, error) {
	return zlib.NewWriter(w), nil
}

// Decompress implements encoding.Compressor.
func (c *deflateCompressor) Decompress(r io.Reader) (io.Reader, error) {
	if z, ok := c.readers.Get().(*deflateReader); ok {
		if err := z.ReadCloser.(zlib.Resetter).Reset(r, nil); err != nil {
			c.readers.Put(z)
			return nil, err
		}
		return z, nil
	}
	inner, err := zlib.NewReader(r)
	if err != nil {
		return nil, err
	}
	return &deflateReader{ReadCloser: inner, owner: c}, nil
}

type deflateReader struct {
	io.ReadCloser
	owner *deflateCompressor
}

// Close gives the reader back. grpc calls it when it has read all.
func (z *deflateReader) Close() error {
	err := z.ReadCloser.Close()
	z.owner.readers.Put(z)
	return err
}
