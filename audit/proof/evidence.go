package proof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/custody-project/custody/audit/proof/archive"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
)

// Maximum sizes of files: package wal writes no longer ones.
const (
	maxSegment = wal.MaxSegment + wal.MaxRecord + 1<<10
	maxLeaves  = maxSegment
)

// Evidence has the files of one run, from a run's directory or a bundle. They are
// not trusted.
type Evidence struct {
	// Live is set while a process writes the run; a missing end is then not a finding.
	Live bool
	// HostKey is the public key in a bundle. It proves nothing: compare it with one from a separate trusted
	// channel.
	HostKey string

	// Log is the host's log, for evidence from a directory: set it after OpenDir. Nil: Verify does not use
	// the log. A bundle has its own proofs.
	Log Log
	// Past has earlier checkpoints of that log, from which Verify derives when the run's manifests were in it. Nil:
	// only the last checkpoint is known.
	Past Past
	// Stamp is the RFC 3161 response over the log's last checkpoint, and Rotations are the
	// host's signed rotations in order, for evidence from a directory.
	Stamp     []byte
	Rotations [][]byte

	// Ancestors opens the record of an ancestor of a run from a directory, or returns the statement of that run's deletion;
	// neither if it is not here. Nil: Verify does not look for ancestors. A bundle has its own.
	Ancestors func(ctx context.Context, run string) (*Evidence, *statement.Deletion, error)

	bundle bool
	files  fs.FS
	close  func() error
	// For a bundle only: its container, its bytes and their number, and the offset of its trailer's header.
	archive *archive.FS
	raw     io.ReaderAt
	size    int64
	trailer int64
}

// OpenDir opens a run's directory. It does not follow links out of it.
func OpenDir(dir string) (*Evidence, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	return &Evidence{Live: wal.Locked(dir), files: regular.FS(root), close: root.Close}, nil
}

// Close closes the files.
func (e *Evidence) Close() error { return e.close() }

// OnClose makes Close call f, too.
func (e *Evidence) OnClose(f func() error) {
	first := e.close
	e.close = func() error { return errors.Join(first(), f()) }
}

// Raw returns a reader of all bytes of a bundle; nil for a run's directory.
func (e *Evidence) Raw() io.Reader {
	if !e.bundle {
		return nil
	}
	return io.NewSectionReader(e.raw, 0, e.size)
}

// list returns the first seqs of the files with that suffix in order.
func (e *Evidence) list(suffix string) ([]uint64, error) {
	entries, err := fs.ReadDir(e.files, ".")
	if err != nil {
		return nil, err
	}
	var firsts []uint64
	for _, entry := range entries {
		if first, ok := wal.ParseName(entry.Name(), suffix); ok {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

// read returns a whole file of at most limit bytes.
func (e *Evidence) read(name string, limit int64) ([]byte, error) {
	return e.readInto(nil, name, limit)
}

// readInto reads a whole file of at most limit bytes. It reuses the memory of buf.
func (e *Evidence) readInto(buf []byte, name string, limit int64) ([]byte, error) {
	f, err := e.files.Open(name)
	if err != nil {
		return buf[:0], err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return buf[:0], err
	}
	if !info.Mode().IsRegular() {
		return buf[:0], fmt.Errorf("%s is not a regular file", name)
	}
	if info.Size() > limit {
		return buf[:0], fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	buf = slices.Grow(buf[:0], int(info.Size())+1) // one byte more to detect the end
	for {
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return buf[:0], fmt.Errorf("%s is longer than %d bytes", name, limit)
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		case len(buf) == cap(buf): // the file grew
			buf = slices.Grow(buf, len(buf))
		}
	}
}
