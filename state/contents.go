package state

import (
	"context"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// contents is what is encrypted in a snapshot. Chunks are read when they are needed. It is safe for concurrent use, until close.
type contents struct {
	plain *plaintext
	index index
	zstd  *zstd.Decoder
}

// open reads the index of a file of size bytes.
func (h header) open(ctx context.Context, r io.ReaderAt, size int64, keys Wrapper) (*contents, error) {
	c := &contents{}
	size -= h.start
	var err error
	if c.plain, err = (seal{ctx, keys, h.sum}).unseal(io.NewSectionReader(r, h.start, size), size); err != nil {
		return nil, err
	}
	if c.index, err = readIndex(c.plain); err != nil {
		return nil, err
	}
	c.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxChunk))
	return c, err
}

func (c *contents) close() { c.zstd.Close() }

// buffers hold one chunk.
type buffers struct{ stored, plain []byte }

func newBuffers() *buffers { return &buffers{make([]byte, maxChunk), make([]byte, 0, maxChunk)} }

// chunk returns the bytes of a chunk, in buf.stored or decompressed into buf.plain.
func (c *contents) chunk(of chunk, buf *buffers) ([]byte, error) {
	stored := buf.stored[:of.Stored]
	if err := c.plain.read(stored, of.At); err != nil {
		return nil, err
	}
	if of.Stored == of.Plain {
		return stored, nil
	}
	plain, err := c.zstd.DecodeAll(stored, buf.plain[:0])
	if err == nil && len(plain) != of.Plain {
		err = fmt.Errorf("a chunk has %d bytes instead of %d", len(plain), of.Plain)
	}
	return plain, altered(err)
}

// each calls f with each range of pages of a part.
func (c *contents) each(ctx context.Context, p *part, f func(at, n int64, data []byte) error) error {
	buf := newBuffers()
	for _, of := range p.Chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		plain, err := c.chunk(of, buf)
		if err != nil {
			return err
		}
		runs, data, err := decodeRuns(plain, p.Size)
		if err != nil {
			return altered(err)
		}
		for _, r := range runs {
			var own []byte
			if !r.zero {
				own, data = data[:r.n*PageSize], data[r.n*PageSize:]
			}
			if err := f(int64(r.first)*PageSize, int64(r.n)*PageSize, own); err != nil {
				return err
			}
		}
	}
	return nil
}
