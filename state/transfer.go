package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/custody-project/custody/store"
)

// Elsewhere is where an exported snapshot can be imported.
type Elsewhere struct {
	// Host is the Binding.Host of the export: the name of a group of hosts. It includes what must be equal on them and Binding does not have, such as the version of the
	// machine monitor.
	Host    string
	Keys    Wrapper   // encrypts the export
	Expires time.Time // zero: when the snapshot expires
	// Parts are parts of bytes that the export has in place of those of the snapshot with the same names, or in addition.
	Parts map[string][]byte
}

// Export writes the snapshot to w for other hosts, without a base: it includes the pages of the base. bases has the base of each part of pages, nil
// for one that has none. Import reads what it writes.
func (s *Snapshot) Export(ctx context.Context, w io.Writer, to Elsewhere, bases map[string]*os.File) (Info, error) {
	m := manifest{Binding: s.Binding, Created: s.Created.UTC(), Expires: s.Expires.UTC()}
	m.Host, m.Base = to.Host, NoBase
	if !to.Expires.IsZero() {
		m.Expires = to.Expires.UTC().Truncate(time.Millisecond)
	}
	out := &counter{Writer: w}
	err := s.allowed(m)
	if err == nil {
		err = s.export(ctx, out, m, to, bases)
	}
	if err != nil {
		return Info{}, fmt.Errorf("export run %s: %w", s.Run, err)
	}
	return m.info(out.n), nil
}

// allowed checks the manifest of an export.
func (s *Snapshot) allowed(m manifest) error {
	if keep := m.Expires.Sub(s.store.config.Now()); keep <= 0 || keep > MaxKeep {
		return fmt.Errorf("a paused state cannot expire in %v: name a time of at most %v", keep, MaxKeep)
	}
	return m.check()
}

func (s *Snapshot) export(ctx context.Context, w io.Writer, m manifest, to Elsewhere, bases map[string]*os.File) error {
	e, err := newEncoder(ctx, w, m, to.Keys)
	if err != nil {
		return err
	}
	for _, p := range s.index.Parts {
		if _, replaced := to.Parts[p.Name]; replaced {
			continue
		}
		base, named := bases[p.Name]
		if s.Base == NoBase {
			base = nil
		} else if p.Pages && !named {
			return fmt.Errorf("part %s: its base is missing", p.Name)
		}
		if err := s.copyPart(ctx, e, p, base); err != nil {
			return fmt.Errorf("part %s: %w", p.Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to.Parts)) {
		if err := e.bytes(name, bytes.NewReader(to.Parts[name])); err != nil {
			return fmt.Errorf("part %s: %w", name, err)
		}
	}
	return e.close()
}

// counter counts what is written.
type counter struct {
	io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	return n, err
}

// copyPart copies a part with its chunks as they are stored, which it checks, and adds those pages of base that they do not replace.
func (c *contents) copyPart(ctx context.Context, e *encoder, p *part, base *os.File) error {
	if !p.Pages {
		to, err := e.begin(p.Name, false, p.Size)
		if err != nil {
			return err
		}
		return c.copyChunks(ctx, e, p, to, func([]byte) error { return nil })
	}
	pages, err := e.newPages(p.Name, p.Size, nil)
	if err != nil {
		return err
	}
	err = c.copyChunks(ctx, e, p, pages.part, func(plain []byte) error {
		runs, _, err := decodeRuns(plain, p.Size)
		for _, r := range runs {
			for i := range r.n {
				pages.mark(r.first + i)
			}
		}
		return altered(err)
	})
	if err != nil || base == nil {
		return err
	}
	return pages.fillFrom(ctx, base)
}

// copyChunks copies the chunks of a part, if check accepts what is in them.
func (c *contents) copyChunks(ctx context.Context, e *encoder, from, to *part, check func(plain []byte) error) error {
	buf := newBuffers()
	for _, of := range from.Chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		plain, err := c.chunk(of, buf)
		if err == nil {
			err = check(plain)
		}
		if err == nil {
			err = e.write(to, buf.stored[:of.Stored], of.Plain)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fillFrom adds the pages of a base that were not written and are not zeros.
func (p *Pages) fillFrom(ctx context.Context, base *os.File) error {
	spans, err := dataSpans(p.part.Size, base)
	if err != nil {
		return err
	}
	buf := make([]byte, chunkData)
	for _, s := range spans {
		for at := s.at; at < s.end; at += chunkData {
			if err := ctx.Err(); err != nil {
				return err
			}
			piece := buf[:min(chunkData, s.end-at)]
			if err := readZeros(base, piece, at); err != nil {
				return err
			}
			for i := 0; i < len(piece); i += PageSize {
				number, page := uint64(at+int64(i))/PageSize, piece[i:i+PageSize]
				if p.has(number) || bytes.Equal(page, zeroPage[:]) {
					continue
				}
				if err := p.add(number, page); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Import stores what Export wrote as this host's snapshot of the run, if it is for want and keys opens it. r must have size bytes. want.Host is
// Elsewhere.Host, and host the Binding.Host of the new snapshot; when it was paused and expires stays. r is read first, into a temporary file, then authenticated and checked,
// and encrypted with this host's key. After an error nothing of it is left. If the run has a snapshot here, it is replaced.
func (s *Store) Import(ctx context.Context, r io.Reader, size int64, want Binding, keys Wrapper, host string) (Info, error) {
	f, h, c, err := s.openExport(ctx, r, size, want, keys)
	if err == nil {
		defer f.Close()
		defer c.close()
		h.Host = host
		err = h.check()
	}
	if err != nil {
		return Info{}, explain("import", want.Run, err)
	}
	return s.store(ctx, h.manifest, c)
}

// openExport copies an export to a file, and checks all but its chunks.
func (s *Store) openExport(ctx context.Context, r io.Reader, size int64, want Binding, keys Wrapper) (f *os.File, h header, c *contents, err error) {
	if s.config.Budget > 0 && size > s.config.Budget {
		return nil, h, nil, ErrBudget
	}
	if f, err = s.spool(ctx, r, size, want.Run); err != nil {
		return nil, h, nil, err
	}
	if h, err = readHeader(f); err == nil {
		want.Base = NoBase
		err = h.compare(want)
		if b := (*BoundError)(nil); errors.As(err, &b) && b.What == BoundHost {
			b.What = BoundGroup
		}
	}
	if err == nil && s.expired(h.info(size)) {
		err = ErrExpired
	}
	if err == nil {
		c, err = h.open(ctx, f, size, keys)
	}
	if err != nil {
		err = errors.Join(err, f.Close())
	}
	return f, h, c, err
}

// store stores the contents of another snapshot.
func (s *Store) store(ctx context.Context, m manifest, c *contents) (Info, error) {
	w, err := s.create(ctx, m, "import")
	if err != nil {
		return Info{}, err
	}
	defer w.Abort()
	for _, p := range c.index.Parts {
		if err := w.copyPart(ctx, c, p); err != nil {
			return Info{}, err
		}
	}
	return w.Commit(ctx)
}

// copyPart copies a part of another snapshot.
func (w *Writer) copyPart(ctx context.Context, c *contents, p *part) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keep(c.copyPart(ctx, w.enc, p, nil))
}

// spool copies r, which must have size bytes, to a file without a name.
func (s *Store) spool(ctx context.Context, r io.Reader, size int64, run string) (*os.File, error) {
	if !store.ValidRun(run) {
		return nil, fmt.Errorf("%.80q is not the ID of a run", run)
	}
	f, err := s.newTemp(ctx, run)
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		var n int64
		if n, err = io.Copy(f, io.LimitReader(untilDone{ctx, r}, size+1)); err == nil && n != size {
			err = altered(fmt.Errorf("it has %s of %d bytes", amount(n, size), size))
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func amount(n, size int64) string {
	if n > size {
		return "more than all"
	}
	return fmt.Sprint(n)
}

// untilDone reads until ctx ends.
type untilDone struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}

// ReadInfo reads the manifest of an export that has size bytes. It is not authenticated: only Import does that. The error is ErrAltered if it has none.
func ReadInfo(r io.Reader, size int64) (Info, error) {
	head := make([]byte, MaxInfo)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Info{}, err
	}
	return ParseInfo(head[:n], size)
}

// MaxInfo is how many bytes the manifest of an export has at most, with what precedes it.
const MaxInfo = len(magic) + maxManifest + 1

// ParseInfo is ReadInfo for the first bytes of an export, MaxInfo if it has as many.
func ParseInfo(head []byte, size int64) (Info, error) {
	m, _, err := parseManifest(head)
	if err != nil {
		return Info{}, altered(err)
	}
	return m.info(size), nil
}
