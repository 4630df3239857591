package proof

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/custody-project/custody/audit/proof/archive"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
)

// The longest files that are read; whatever is longer was not written by package wal.
const (
	maxSegment = wal.MaxSegment + wal.MaxRecord + 1<<10
	maxLeaves  = maxSegment
)

// Evidence is the files of one run: a run's directory or a bundle. Nothing in it
// is trusted.
type Evidence struct {
	// Live is set when a process still writes the run; a missing end is then no finding.
	Live bool
	// HostKey is the public key that came with a bundle. It proves nothing: compare it with one from a separate trusted
	// channel.
	HostKey string

	// Log is the host's log, for evidence from a directory: set it after OpenDir. Nil: the
	// log is not asked. A bundle brings its own proofs.
	Log Log
	// Past has earlier checkpoints of that log, from which Verify derives when the run's manifests were in it. Nil: it
	// has only the last checkpoint.
	Past Past
	// Stamp is the RFC 3161 response over the log's last checkpoint, and Rotations are the
	// host's signed rotations in order, for evidence from a directory.
	Stamp     []byte
	Rotations [][]byte

	bundle bool
	files  fs.FS
	close  func() error
	// Of a bundle only: its container, its bytes and how many there are, and where the header of its trailer begins.
	archive *archive.FS
	raw     io.ReaderAt
	size    int64
	trailer int64
}

// OpenDir opens a run's directory. Links out of it are not followed.
func OpenDir(dir string) (*Evidence, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	return &Evidence{Live: wal.Locked(dir), files: regular.FS(root), close: root.Close}, nil
}

// Close gives the files free.
func (e *Evidence) Close() error { return e.close() }

// Raw returns a reader of a bundle's bytes, from the first to the last; nil for a run's directory.
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

// readInto reads a whole file of at most limit bytes into the memory of buf, as far as it goes.
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
	buf = slices.Grow(buf[:0], int(info.Size())+1) // space to see the end
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
		case len(buf) == cap(buf): // it grew
			buf = slices.Grow(buf, len(buf))
		}
	}
}
