package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// PageSize is the unit of the parts of pages, in bytes.
const PageSize = 4096

const (
	chunkData = 1 << 20 // bytes of data in a chunk
	maxRuns   = 4096    // of pages in a chunk
	maxChunk  = chunkData + (1+2*maxRuns)*binary.MaxVarintLen64
)

var zeroPage [PageSize]byte

// run is consecutive pages of a part: with data, or all zeros. A chunk of pages is the number of its runs, the first page and twice the
// length of each run, plus 1 if it is of zeros, all as uvarints; then the data of the runs.
type run struct {
	first, n uint64
	zero     bool
}

// Pages writes a part of pages: the contents of a file, relative to those of a base file. It is safe for concurrent use with other parts.
type Pages struct {
	w    *Writer // nil in an export, which one goroutine writes
	enc  *encoder
	part *part
	base io.ReaderAt // nil: zeros

	// Guarded by w.mu:
	stored []uint64 // a bit for each page that has been written: a later write of it must be, too
	runs   []run    // of the chunk that is being filled
	data   []byte   // their data
	below  []byte   // the pages of the base below those that are being written
}

// Page writes the page or pages at an offset. What equals the base is not stored. Pages can be written in any order, and again. Pages
// that are never written are those of the base. Larger writes are faster.
func (p *Pages) Page(at int64, pages []byte) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.w.err != nil {
		return p.w.err
	}
	return p.w.keep(p.page(at, pages))
}

func (p *Pages) page(at int64, pages []byte) error {
	n := int64(len(pages))
	if at < 0 || at%PageSize != 0 || n%PageSize != 0 || at > p.part.Size-n {
		return fmt.Errorf("part %s of %d bytes has no %d bytes of pages at %d", p.part.Name, p.part.Size, n, at)
	}
	for len(pages) > 0 {
		piece := pages[:min(len(pages), chunkData)]
		if err := p.piece(uint64(at/PageSize), piece); err != nil {
			return err
		}
		pages, at = pages[len(piece):], at+int64(len(piece))
	}
	return nil
}

// piece writes up to chunkData bytes of pages.
func (p *Pages) piece(first uint64, pages []byte) error {
	below, err := p.baseAt(int64(first)*PageSize, len(pages))
	if err != nil {
		return err
	}
	for i := 0; i < len(pages); i += PageSize {
		page, number := pages[i:i+PageSize], first+uint64(i/PageSize)
		old := zeroPage[:]
		if below != nil {
			old = below[i : i+PageSize]
		}
		if !p.has(number) && bytes.Equal(page, old) {
			continue
		}
		p.mark(number)
		if err := p.add(number, page); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a page has been written.
func (p *Pages) has(number uint64) bool { return p.stored[number/64]&(1<<(number%64)) != 0 }

func (p *Pages) mark(number uint64) { p.stored[number/64] |= 1 << (number % 64) }

// baseAt returns bytes of the base, or nil if there is none. Behind its end are zeros.
func (p *Pages) baseAt(at int64, n int) ([]byte, error) {
	if p.base == nil {
		return nil, nil
	}
	if p.below == nil {
		p.below = make([]byte, chunkData)
	}
	got, err := p.base.ReadAt(p.below[:n], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the base of part %s: %w", p.part.Name, err)
	}
	clear(p.below[got:n])
	return p.below[:n], nil
}

// add adds a page to the chunk that is being filled.
func (p *Pages) add(number uint64, page []byte) error {
	zero := bytes.Equal(page, zeroPage[:])
	if last := len(p.runs) - 1; last >= 0 && p.runs[last].zero == zero && p.runs[last].first+p.runs[last].n == number {
		p.runs[last].n++
	} else {
		if len(p.runs) == maxRuns {
			if err := p.flush(); err != nil {
				return err
			}
		}
		p.runs = append(p.runs, run{number, 1, zero})
	}
	if !zero {
		p.data = append(p.data, page...)
	}
	if len(p.data) == chunkData {
		return p.flush()
	}
	return nil
}

// flush writes the chunk that is being filled.
func (p *Pages) flush() error {
	if len(p.runs) == 0 {
		return nil
	}
	plain := encodeRuns(p.enc.plain[:0], p.runs, p.data)
	p.enc.plain = plain
	p.runs, p.data = p.runs[:0], p.data[:0]
	return p.enc.chunk(p.part, plain)
}

func encodeRuns(b []byte, runs []run, data []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(runs)))
	for _, r := range runs {
		b = binary.AppendUvarint(b, r.first)
		kind := uint64(0)
		if r.zero {
			kind = 1
		}
		b = binary.AppendUvarint(b, r.n<<1|kind)
	}
	return append(b, data...)
}

// decodeRuns returns the runs of a chunk for a file of size bytes, and their data.
func decodeRuns(b []byte, size int64) (runs []run, data []byte, err error) {
	bad := errors.New("a chunk of pages is malformed")
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			err, n = bad, 0
		}
		b = b[n:]
		return v
	}
	count := next()
	if err != nil || count == 0 || count > maxRuns {
		return nil, nil, bad
	}
	pages, need := uint64(size/PageSize), uint64(0)
	for range count {
		first, length := next(), next()
		r := run{first, length >> 1, length&1 == 1}
		if err != nil || r.n == 0 || r.n > pages || r.first > pages-r.n {
			return nil, nil, bad
		}
		if !r.zero {
			need += r.n // below maxRuns times maxSize/PageSize
		}
		runs = append(runs, r)
	}
	if need*PageSize != uint64(len(b)) {
		return nil, nil, bad
	}
	return runs, b, nil
}
