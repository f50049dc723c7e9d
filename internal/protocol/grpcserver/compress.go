package grpcserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"shoal/internal/inflight"
	"shoal/internal/protocol/compression"
	"shoal/internal/reject"
)

// maxUnpacked returns what a message of so many bytes may be unpacked to.
func (o *Options) maxUnpacked(packed int) int {
	limit := int64(o.MaxReceive)
	if o.MaxUnpacked > 0 {
		limit = min(limit, o.MaxUnpacked)
	}
	if o.MaxRatio > 0 {
		limit = compression.Limit(packed, limit, o.MaxRatio)
	}
	return int(limit)
}

// decompress returns the bytes of a compressed message, within the options'
// limits. Memory is claimed as it is filled.
func decompress(by encoding.Compressor, data mem.BufferSlice, opt *Options) (mem.BufferSlice, error) {
	r := data.Reader()
	defer func() { _ = r.Close() }()
	z, err := by.Decompress(r)
	if err != nil {
		return nil, rejectf(reject.Malformed, codes.Internal, "grpc: failed to decompress the message: %v", err)
	}
	if closer, ok := z.(io.Closer); ok {
		defer func() { _ = closer.Close() }()
	}
	packed := data.Len()
	out, err := unpackAll(z, packed, opt.maxUnpacked(packed), opt.Memory)
	if err != nil {
		out.Free()
		return nil, err
	}
	return out, nil
}

// unpackAll reads r to its end, in pieces. It fails beyond limit bytes.
func unpackAll(r io.Reader, packed, limit int, memory *inflight.Pool) (out mem.BufferSlice, err error) {
	for total := 0; ; {
		size := min(maxPiece, max(minPiece, growth*max(packed, total)), limit-total+1)
		buf, err := memory.Claim(max(size, minPiece), int64(packed+total))
		if err != nil {
			return out, exhausted(err)
		}
		n, err := io.ReadFull(r, (*buf)[:size])
		*buf = (*buf)[:n]
		out = append(out, mem.NewBuffer(buf, memory))
		switch total += n; {
		case total > limit:
			return out, rejectf(reject.TooLarge, codes.ResourceExhausted,
				"grpc: received message after decompression larger than max %d (packed: %d bytes); send it uncompressed or raise --grpc-max-decompressed-size or --max-decompression-ratio", limit, packed)
		case err == io.EOF, err == io.ErrUnexpectedEOF:
			return out, nil
		case err != nil:
			return out, rejectf(reject.Malformed, codes.Internal, "grpc: failed to read decompressed data: %v", err)
		}
	}
}

// compress returns data compressed.
func compress(by encoding.Compressor, data mem.BufferSlice, pool mem.BufferPool) (mem.BufferSlice, error) {
	var out mem.BufferSlice
	err := func() error {
		z, err := by.Compress(mem.NewWriter(&out, pool))
		if err != nil {
			return err
		}
		for _, b := range data {
			if _, err := z.Write(b.ReadOnlyData()); err != nil {
				return err
			}
		}
		return z.Close()
	}()
	if err != nil {
		out.Free()
		return nil, status.Errorf(codes.Internal, "grpc: error while compressing: %v", err)
	}
	return out, nil
}

// encode returns v encoded, and whether it is compressed. The caller frees it.
func (c *call) encode(v any) (mem.BufferSlice, bool, error) {
	opt := &c.conn.server.opt
	data, err := opt.Codec.Marshal(v)
	if err != nil {
		return nil, false, status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	compressed := false
	if by := c.compressor; by != nil && data.Len() > 0 {
		packed, err := compress(by, data, opt.Memory)
		data.Free()
		if err != nil {
			return nil, false, err
		}
		data, compressed = packed, true
	}
	if n := data.Len(); n > opt.MaxSend {
		data.Free()
		return nil, false, status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", n, opt.MaxSend)
	}
	return data, compressed, nil
}

// callOf returns the call of a handler's ctx.
func callOf(ctx context.Context) (*call, bool) {
	c, ok := ctx.Value(callKey{}).(*call)
	return c, ok
}

// RequestCompressor returns the name of the request's compression; empty for
// none.
func RequestCompressor(ctx context.Context) string {
	c, ok := callOf(ctx)
	if !ok || c.req.encoding == encoding.Identity {
		return ""
	}
	return c.req.encoding
}

// ClientAccepts reports whether the client accepts messages with that
// compression.
func ClientAccepts(ctx context.Context, name string) bool {
	c, ok := callOf(ctx)
	return ok && c.req.accepts(name)
}

func (r *request) accepts(name string) bool {
	for part := range strings.SplitSeq(r.accept, ",") {
		if strings.TrimSpace(part) == name {
			return true
		}
	}
	return false
}

// SetSendCompressor chooses the compression of a call's answers, before the
// first is sent; encoding.Identity means none. The default is the request's.
func SetSendCompressor(ctx context.Context, name string) error {
	c, ok := callOf(ctx)
	if !ok {
		return errors.New("the context does not belong to a call")
	}
	var by encoding.Compressor
	if name != encoding.Identity {
		if by = encoding.GetCompressor(name); by == nil {
			return fmt.Errorf("compressor %q is not registered", name)
		}
		if !c.req.accepts(name) {
			return fmt.Errorf("the client does not accept compressor %q", name)
		}
	}
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.headerSent {
		return errHeaderSent
	}
	c.compress, c.compressor = name, by
	return nil
}
