package kservegrpc

import (
	"io"
	"sync/atomic"

	"google.golang.org/grpc/encoding"

	"shoal/internal/protocol/compression"
)

// gzipName is the compression that is spoken in both directions. Clients may
// send deflate beside it; answers are never sent in that.
var gzipName = compression.Gzip.String()

// grpc knows compressors by name, once for the process, and wants them before
// the first server starts.
func init() {
	level.Store(compression.DefaultLevel)
	encoding.RegisterCompressor(compressor(compression.Gzip))
	encoding.RegisterCompressor(compressor(compression.Deflate))
}

// level is how hard is compressed.
var level atomic.Int32

// levels are those behind the names.
var levels = [...]int32{CompressNone: compression.DefaultLevel, CompressLow: 1, CompressMedium: 6, CompressHigh: 9}

// compressor implements encoding.Compressor.
type compressor compression.Format

// Name implements encoding.Compressor.
func (c compressor) Name() string { return compression.Format(c).String() }

// Compress implements encoding.Compressor.
func (c compressor) Compress(w io.Writer) (io.WriteCloser, error) {
	return compression.Format(c).NewWriter(w, int(level.Load())), nil
}

// Decompress implements encoding.Compressor. The transport closes the reader when
// it has read all.
func (c compressor) Decompress(r io.Reader) (io.Reader, error) {
	return compression.Format(c).NewReader(r)
}
