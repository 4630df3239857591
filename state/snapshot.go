package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Snapshot is a stored snapshot that is open for reading. It is safe for concurrent use, until Consume or Release.
type Snapshot struct {
	Info
	store *Store
	path  string
	file  *os.File // with the flock
	how   int      // of the flock
	*contents
	done sync.Once
}

// Claim opens the snapshot of a run for one resume. While it is claimed, no other Claim or Share succeeds and it is not removed. The claim ends with
// Consume, Release, or this process.
func (s *Store) Claim(ctx context.Context, b Binding) (*Snapshot, error) {
	return s.use(ctx, b, unix.LOCK_EX)
}

// Share opens the snapshot of a run for forks, which can read it concurrently. Until Release it is not removed, and no Claim succeeds.
func (s *Store) Share(ctx context.Context, b Binding) (*Snapshot, error) {
	return s.use(ctx, b, unix.LOCK_SH)
}

func (s *Store) use(ctx context.Context, b Binding, how int) (*Snapshot, error) {
	file, err := s.open(ctx, b.Run, how)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", b.Run, err)
	}
	snap := &Snapshot{store: s, path: s.path(b.Run), file: file, how: how}
	if err := snap.read(ctx, b); err != nil {
		return nil, errors.Join(fmt.Errorf("run %s: %w", b.Run, err), file.Close())
	}
	return snap, nil
}

// read checks the header, and reads the index.
func (s *Snapshot) read(ctx context.Context, b Binding) error {
	h, err := readHeader(s.file)
	if err != nil {
		return err
	}
	if err := h.compare(b); err != nil {
		return err
	}
	stat, err := s.file.Stat()
	if err != nil {
		return err
	}
	if s.Info = h.info(stat.Size()); s.store.expired(s.Info) {
		return ErrExpired
	}
	s.contents, err = h.open(ctx, s.file, stat.Size(), s.store.config.Keys)
	return err
}

// Has reports whether the snapshot has a part with this name.
func (s *Snapshot) Has(name string) bool { return s.index.find(name) != nil }

// part returns a part of a kind.
func (s *Snapshot) part(name string, pages bool) (*part, error) {
	p := s.index.find(name)
	if p == nil || p.Pages != pages {
		return nil, fmt.Errorf("%w: %.80q of run %s", ErrNoPart, name, s.Run)
	}
	return p, nil
}

// Part returns a reader of a part of bytes, and its length. What the reader returns is authentic.
func (s *Snapshot) Part(name string) (io.Reader, int64, error) {
	p, err := s.part(name, false)
	if err != nil {
		return nil, 0, err
	}
	return &reader{snap: s, chunks: p.Chunks}, p.Size, nil
}

// reader reads a part of bytes.
type reader struct {
	snap   *Snapshot
	chunks []chunk // which were not read
	rest   []byte  // of the last one
	buf    *buffers
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.buf == nil {
		r.buf = newBuffers()
	}
	for len(r.rest) == 0 {
		if len(r.chunks) == 0 {
			return 0, io.EOF
		}
		var err error
		if r.rest, err = r.snap.chunk(r.chunks[0], r.buf); err != nil {
			return 0, fmt.Errorf("run %s: %w", r.snap.Run, err)
		}
		r.chunks = r.chunks[1:]
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// File writes a part of pages to a file, whose former contents it removes. base must have the contents that it had for the Writer; nil: there
// was none. A snapshot without a base does not use it. After an error the file is empty.
func (s *Snapshot) File(ctx context.Context, name string, to, base *os.File) error {
	p, err := s.part(name, true)
	if err != nil {
		return err
	}
	if err := s.write(ctx, p, to, base); err != nil {
		return errors.Join(fmt.Errorf("run %s, part %s: %w", s.Run, name, err), to.Truncate(0))
	}
	return nil
}

func (s *Snapshot) write(ctx context.Context, p *part, to, base *os.File) error {
	if s.Base == NoBase {
		base = nil
	}
	err := to.Truncate(0)
	switch {
	case err != nil:
	case base != nil:
		err = fill(ctx, to, base, p.Size)
	default:
		err = to.Truncate(p.Size)
	}
	if err != nil {
		return err
	}
	return s.each(ctx, p, func(at, n int64, data []byte) error {
		if data == nil {
			return zero(to, at, n)
		}
		_, err := to.WriteAt(data, at)
		return err
	})
}

// Pages calls f with each range of pages of a part that differs from the base, or from zeros if the snapshot's Base is NoBase, in the order in which they were written: a page that was written
// twice can occur twice. data is nil for n bytes of zeros; it is valid during the call.
func (s *Snapshot) Pages(ctx context.Context, name string, f func(at, n int64, data []byte) error) error {
	p, err := s.part(name, true)
	if err != nil {
		return err
	}
	if err := s.each(ctx, p, f); err != nil {
		return fmt.Errorf("run %s, part %s: %w", s.Run, name, err)
	}
	return nil
}

// zero makes a hole, or writes zeros in a file system without holes.
func zero(f *os.File, at, n int64) error {
	if unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n) == nil {
		return nil
	}
	for end := at + n; at < end; at += PageSize {
		if _, err := f.WriteAt(zeroPage[:], at); err != nil {
			return err
		}
	}
	return nil
}

// Release gives the snapshot up and keeps it. After Consume or Release it does nothing.
func (s *Snapshot) Release() (err error) {
	s.done.Do(func() { err = s.close() })
	return err
}

// Consume removes a claimed snapshot after its resume.
func (s *Snapshot) Consume() (err error) {
	if s.how != unix.LOCK_EX {
		return fmt.Errorf("run %s: the paused state is shared: release it, and delete it", s.Run)
	}
	s.done.Do(func() { err = errors.Join(s.store.remove(s.file, s.path), s.close()) })
	return err
}

func (s *Snapshot) close() error {
	s.contents.close()
	return s.file.Close()
}
