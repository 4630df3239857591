package state

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// encoder writes a snapshot: the manifest, and what is encrypted, the chunks and the index. It is not safe for concurrent use.
type encoder struct {
	age    io.WriteCloser
	at     int64 // bytes of plaintext that were written
	limit  int64 // of at; 0: none
	index  index
	pages  []*Pages
	plain  []byte // a chunk before its compression
	packed []byte // a chunk after it
	zstd   *zstd.Encoder
}

// newEncoder writes the manifest and the header of age.
func newEncoder(ctx context.Context, w io.Writer, m manifest, keys Wrapper) (*encoder, error) {
	head, err := m.encode()
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	e := &encoder{}
	if e.age, err = age.Encrypt(w, seal{ctx, keys, sha256.Sum256(head)}); err != nil {
		return nil, err
	}
	e.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	return e, err
}

// begin adds a part.
func (e *encoder) begin(name string, pages bool, size int64) (*part, error) {
	switch {
	case !validPart(name):
		return nil, fmt.Errorf("%.80q is not the name of a part", name)
	case e.index.find(name) != nil:
		return nil, fmt.Errorf("part %s is there already", name)
	case len(e.index.Parts) == maxParts:
		return nil, fmt.Errorf("part %s is one more than the %d that are possible", name, maxParts)
	case size < 0 || size > maxSize || pages && size%PageSize != 0:
		return nil, fmt.Errorf("part %s cannot have %d bytes: want whole pages of %d bytes", name, size, PageSize)
	}
	p := &part{Name: name, Pages: pages, Size: size, Chunks: []chunk{}}
	e.index.Parts = append(e.index.Parts, p)
	return p, nil
}

// newPages begins a part of pages relative to base, or to zeros.
func (e *encoder) newPages(name string, size int64, base io.ReaderAt) (*Pages, error) {
	p, err := e.begin(name, true, size)
	if err != nil {
		return nil, err
	}
	pages := &Pages{enc: e, part: p, base: base, stored: make([]uint64, size/PageSize/64+1)}
	e.pages = append(e.pages, pages)
	return pages, nil
}

// bytes writes a part of bytes.
func (e *encoder) bytes(name string, r io.Reader) error {
	p, err := e.begin(name, false, 0)
	buf := make([]byte, chunkData)
	for more := true; more && err == nil; {
		var n int
		if n, more, err = fillFrom(r, buf); err == nil && n > 0 {
			p.Size += int64(n)
			err = e.chunk(p, buf[:n])
		}
	}
	return err
}

// chunk compresses and writes a chunk.
func (e *encoder) chunk(p *part, plain []byte) error {
	e.packed = e.zstd.EncodeAll(plain, e.packed[:0])
	stored := e.packed
	if len(stored) >= len(plain)-len(plain)/8 { // not worth the time to decompress it
		stored = plain
	}
	return e.write(p, stored, len(plain))
}

// write writes a chunk, which has plain bytes without its compression.
func (e *encoder) write(p *part, stored []byte, plain int) error {
	if e.limit > 0 && e.at+int64(len(stored)) > e.limit {
		return ErrBudget
	}
	if _, err := e.age.Write(stored); err != nil {
		return err
	}
	p.Chunks = append(p.Chunks, chunk{At: e.at, Stored: len(stored), Plain: plain})
	e.at += int64(len(stored))
	return nil
}

// close writes the last chunks and the index.
func (e *encoder) close() error {
	for _, p := range e.pages {
		if err := p.flush(); err != nil {
			return err
		}
	}
	end, err := e.index.encode(e.at)
	if err == nil {
		_, err = e.age.Write(end)
	}
	return errors.Join(err, e.age.Close())
}
