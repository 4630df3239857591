package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
)

// Writer writes a snapshot, which exists when Commit has returned without an error. It is safe for concurrent use.
type Writer struct {
	store    *Store
	manifest manifest
	what     string   // "pause" or "import", for errors
	path     string   // of the temporary file
	file     *os.File // has an exclusive flock, so that no other process removes it

	mu    sync.Mutex // guards the fields below
	enc   *encoder   // writes into file
	err   error      // the first error: the temporary file is gone
	ended bool
}

// Create begins a snapshot of a run. If the run has one already, Commit replaces it. The caller calls Commit or Abort.
func (s *Store) Create(ctx context.Context, m Meta) (*Writer, error) {
	made, err := newManifest(m, s.config.Now())
	if err != nil {
		return nil, err
	}
	return s.create(ctx, made, "pause")
}

func (s *Store) create(ctx context.Context, m manifest, what string) (*Writer, error) {
	w := &Writer{store: s, manifest: m, what: what}
	var err error
	if w.file, err = s.newTemp(ctx, m.Run); err != nil {
		return nil, fmt.Errorf("%s run %s: %w", what, m.Run, err)
	}
	w.path = w.file.Name()
	if w.enc, err = newEncoder(ctx, w.file, m, s.config.Keys); err != nil {
		w.Abort()
		return nil, w.explain(err)
	}
	w.enc.limit = s.config.Budget
	return w, nil
}

// keep stores the first error, after which nothing is left. w.mu is locked.
func (w *Writer) keep(err error) error {
	if err != nil && w.err == nil {
		w.err = w.explain(err)
		w.remove()
	}
	return w.err
}

func (w *Writer) explain(err error) error {
	return explain(w.what, w.manifest.Run, err)
}

func explain(what, run string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("the disk is full: free some of it, or delete paused sandboxes: %s run %s: %w", what, run, err)
	}
	return fmt.Errorf("%s run %s: %w", what, run, err)
}

// remove removes the temporary file. w.mu is locked.
func (w *Writer) remove() {
	if !w.ended {
		w.ended = true
		os.Remove(w.path) // if that fails, the next Open removes it
		w.file.Close()
	}
}

// Abort removes what was written. After Commit it does nothing.
func (w *Writer) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove()
	if w.err == nil {
		w.err = errors.New("the paused state was already committed or aborted")
	}
}

// Part writes a part of bytes, such as the state of a machine's devices.
func (w *Writer) Part(name string, r io.Reader) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	return w.keep(w.enc.bytes(name, r))
}

// fillFrom reads until buf is full, or r has no more. Unlike io.ReadFull it distinguishes the end of r from an io.ErrUnexpectedEOF of r.
func fillFrom(r io.Reader, buf []byte) (n int, more bool, err error) {
	for n < len(buf) && err == nil {
		var read int
		read, err = r.Read(buf[n:])
		n += read
	}
	if errors.Is(err, io.EOF) {
		return n, false, nil
	}
	return n, err == nil, err
}

// Pages begins a part of pages: a file of size bytes, relative to base. If base is nil, or where it ends, it has zeros.
func (w *Writer) Pages(name string, size int64, base io.ReaderAt) (*Pages, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	if base != nil && w.manifest.Base == NoBase {
		return nil, w.keep(fmt.Errorf("part %s has a base, and the base of the run's binding is %q", name, NoBase))
	}
	pages, err := w.enc.newPages(name, size, base)
	if err != nil {
		return nil, w.keep(err)
	}
	pages.w = w
	return pages, nil
}

// File writes a file as a part of pages relative to base, which may be nil. It does not read the holes of both files.
func (w *Writer) File(ctx context.Context, name string, file, base *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var below io.ReaderAt
	if base != nil {
		below = base
	}
	pages, err := w.Pages(name, info.Size(), below)
	if err != nil {
		return err
	}
	err = copySpans(ctx, pages, file, base, info.Size())
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keep(err)
}

func copySpans(ctx context.Context, to *Pages, file, base *os.File, size int64) error {
	spans, err := dataSpans(size, file, base)
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
			if err := readZeros(file, piece, at); err != nil {
				return err
			}
			if err := to.Page(at, piece); err != nil {
				return err
			}
		}
	}
	return nil
}

// readZeros fills p from f, and with zeros behind its end.
func readZeros(f io.ReaderAt, p []byte, at int64) error {
	n, err := f.ReadAt(p, at)
	clear(p[n:])
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Commit stores the snapshot durably, and replaces an older one of the run. It first removes the oldest snapshots of other runs until the
// budget suffices. After an error nothing of the new snapshot is left.
func (w *Writer) Commit(ctx context.Context) (Info, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return Info{}, w.err
	}
	info, err := w.finish(ctx)
	if w.keep(err) != nil {
		return Info{}, w.err
	}
	w.ended, w.err = true, errors.New("the paused state was already committed or aborted")
	return info, w.file.Close()
}

// finish completes the file and gives it its name. w.mu is locked.
func (w *Writer) finish(ctx context.Context) (Info, error) {
	if err := errors.Join(w.enc.close(), w.file.Sync(), ctx.Err()); err != nil {
		return Info{}, err
	}
	stat, err := w.file.Stat()
	if err != nil {
		return Info{}, err
	}
	info := w.manifest.info(stat.Size())
	return info, w.store.put(ctx, w.path, info)
}

// put gives a complete temporary file the name of its run's snapshot.
func (s *Store) put(ctx context.Context, temp string, info Info) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if enough, err := s.makeRoom(ctx, info.Size, info.Run); !enough {
		return errors.Join(ErrBudget, err)
	}
	old, err := s.open(ctx, info.Run, unix.LOCK_SH) // readers may continue with it
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err := os.Rename(temp, s.path(info.Run)); err != nil {
		return errors.Join(err, closeAll(old))
	}
	if old != nil && unix.Flock(int(old.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		wipe(old) // it has no name, so a failure leaves only its blocks
	}
	if err := errors.Join(closeAll(old), durable.SyncDir(string(s.files))); err != nil {
		return errors.Join(err, os.Remove(s.path(info.Run)))
	}
	return nil
}

func closeAll(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}
