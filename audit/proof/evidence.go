package proof

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/custody-project/custody/audit/wal"
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
	// HostKey is the public key that came with a bundle. It proves nothing: compare it
	// with one that came another way.
	HostKey string

	// Log is the host's log, for evidence from a directory: set it after OpenDir. Nil: the
	// log is not asked. A bundle brings its own proofs.
	Log Log
	// Stamp is the RFC 3161 response over the log's last checkpoint, and Rotations are the
	// host's signed rotations in order, for evidence from a directory.
	Stamp     []byte
	Rotations [][]byte

	files fs.FS
	close func() error
}

// OpenDir opens a run's directory. Links out of it are not followed.
func OpenDir(dir string) (*Evidence, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	return &Evidence{Live: wal.Locked(dir), files: root.FS(), close: root.Close}, nil
}

// Close gives the files free.
func (e *Evidence) Close() error { return e.close() }

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
	f, err := e.files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return data, err
}

// leaves returns the leaf hashes of the segment, nil if the file is missing or malformed.
func (e *Evidence) leaves(first uint64) []Hash {
	data, err := e.read(wal.FileName(first, wal.LeavesSuffix), maxLeaves)
	if err != nil || len(data)%len(Hash{}) != 0 {
		return nil
	}
	leaves := make([]Hash, 0, len(data)/len(Hash{}))
	for c := range slices.Chunk(data, len(Hash{})) {
		leaves = append(leaves, Hash(c))
	}
	return leaves
}
