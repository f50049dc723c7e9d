package kservegrpc

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/grpc/encoding"
)

// gzipName is the compression that is spoken in both directions.
const gzipName = "gzip"

// grpc knows compressors by name, once for the process, and wants them before
// the first server starts.
func init() { encoding.RegisterCompressor(gzipCodec) }

var gzipCodec = new(gzipCompressor)

// gzipCompressor implements encoding.Compressor. Readers and writers are large,
// so they are kept.
type gzipCompressor struct {
	level   atomic.Int32 // 0 means the library's default
	writers sync.Pool
	readers sync.Pool
}

// gzipLevels are the levels behind the names.
var gzipLevels = [...]int32{CompressNone: 0, CompressLow: gzip.BestSpeed, CompressMedium: 6, CompressHigh: gzip.BestCompression}

// Name implements encoding.Compressor.
func (c *gzipCompressor) Name() string { return gzipName }

// Compress implements encoding.Compressor.
func (c *gzipCompressor) Compress(w io.Writer) (io.WriteCloser, error) {
	level := int(c.level.Load())
	if level == 0 {
		level = gzip.DefaultCompression
	}
	if z, ok := c.writers.Get().(*gzipWriter); ok && z.level == level {
		z.Reset(w)
		return z, nil
	}
	inner, err := gzip.NewWriterLevel(w, level)
	if err != nil {
		return nil, err
	}
	return &gzipWriter{Writer: inner, owner: c, level: level}, nil
}

// Decompress implements encoding.Compressor.
func (c *gzipCompressor) Decompress(r io.Reader) (io.Reader, error) {
	if z, ok := c.readers.Get().(*gzipReader); ok {
		if err := z.Reset(r); err != nil {
			c.readers.Put(z)
			return nil, err
		}
		return z, nil
	}
	inner, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	return &gzipReader{Reader: inner, owner: c}, nil
}

type gzipWriter struct {
	*gzip.Writer
	owner *gzipCompressor
	level int
}

// Close ends the stream and gives the writer back.
func (z *gzipWriter) Close() error {
	err := z.Writer.Close()
	z.Reset(io.Discard) // let go of the message
	z.owner.writers.Put(z)
	return err
}

type gzipReader struct {
	*gzip.Reader
	owner *gzipCompressor
}

// Close gives the reader back. grpc calls it when it has read all.
func (z *gzipReader) Close() error {
	err := z.Reader.Close()
	z.owner.readers.Put(z)
	return err
}
