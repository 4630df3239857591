package proof

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/custody-project/custody/audit/proof/archive"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
)

// OpenBundle opens a bundle as evidence. It checks every header before it reads any contents, and refuses
// what archive.Writer would not have written.
func OpenBundle(path string) (*Evidence, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		var e *Evidence
		if e, err = readBundle(f, info.Size()); err == nil {
			e.close = f.Close
			return e, nil
		}
	}
	f.Close()
	return nil, fmt.Errorf("open bundle %s: %w", path, err)
}

func readBundle(r io.ReaderAt, size int64) (*Evidence, error) {
	if oldBundle(r) {
		return nil, verdict.Broken(verdict.ErrBundle, 0, "", "it is a zip file, which different readers can interpret differently: make it again with this version of custody bundle")
	}
	a, err := archive.Open(r, size, inspector())
	var known *verdict.Verdict
	switch {
	case errors.As(err, &known):
		return nil, err
	case err != nil:
		return nil, verdict.Broken(verdict.ErrBundle, 0, "", "%v", err)
	}
	if alsoZip(r, size) {
		return nil, verdict.Broken(verdict.ErrBundle, 0, "", "it is a zip file as well, with other contents")
	}
	last, start := a.Last()
	if last != trailerFile {
		return nil, verdict.Broken(verdict.ErrBundle, 0, trailerFile, "it is not the last file")
	}
	e := &Evidence{bundle: true, files: a, archive: a, raw: r, size: size, trailer: start, close: func() error { return nil }}
	if err := e.fixedFiles(); err != nil {
		return nil, err
	}
	return e, nil
}

// oldBundle reports whether it is a bundle of a version that wrote zip files.
func oldBundle(r io.ReaderAt) bool {
	var magic [4]byte
	_, err := r.ReadAt(magic[:], 0)
	return err == nil && (string(magic[:]) == "PK\x03\x04" || string(magic[:]) == "PK\x05\x06")
}

// zipTail is how far from a file's end programs search for the end of a zip file: at most 66,000 bytes, with a margin.
const zipTail = 128 << 10

// alsoZip reports whether programs that read zip files find one at the end: the end record of a directory, and a
// directory at its offset.
func alsoZip(r io.ReaderAt, size int64) bool {
	start := max(size-zipTail, 0)
	tail := make([]byte, size-start)
	if _, err := r.ReadAt(tail, start); err != nil && err != io.EOF {
		return false // the check of the contents reports it
	}
	has := func(at int64, magic string) bool {
		b := make([]byte, len(magic))
		_, err := r.ReadAt(b, max(at, 0))
		return err == nil && string(b) == magic
	}
	for i := 0; len(tail)-i >= 22; i++ {
		if string(tail[i:i+4]) != "PK\x05\x06" {
			continue
		}
		at := start + int64(i)
		length, offset := int64(binary.LittleEndian.Uint32(tail[i+12:])), int64(binary.LittleEndian.Uint32(tail[i+16:]))
		if has(at-length, "PK\x01\x02") || has(offset, "PK\x01\x02") || has(at-20, "PK\x06\x07") { // the last: of Zip64
			return true
		}
	}
	return false
}

// fixedFiles reads the files that every bundle has.
func (e *Evidence) fixedFiles() error {
	if _, err := e.read(bundleReadme, maxSmall); err != nil {
		return verdict.Broken(verdict.ErrBundle, 0, bundleReadme, "%v", err)
	}
	key, err := e.read(hostKeyFile, maxSmall)
	if err != nil {
		return verdict.Broken(verdict.ErrBundle, 0, hostKeyFile, "%v", err)
	}
	for name, other := range map[string]string{sinceFile: consistencyFile, consistencyFile: sinceFile} {
		if e.has(name) && !e.has(other) {
			return verdict.Broken(verdict.ErrBundle, 0, name, "there is no %s with it", other)
		}
	}
	if e.HostKey = strings.TrimSuffix(string(key), "\n"); e.HostKey+"\n" != string(key) {
		return verdict.Broken(verdict.ErrBundle, 0, hostKeyFile, "it is not one line")
	}
	return nil
}

// has reports whether a bundle has a file of that name.
func (e *Evidence) has(name string) bool {
	f, err := e.files.Open(name)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// inspector returns a function that refuses files which WriteBundle would not have written.
func inspector() func(name string, size int64) error {
	var total int64
	files := 0
	return func(name string, size int64) error {
		files++
		total += size
		most := limit(name)
		switch {
		case most == 0:
			return verdict.Broken(verdict.ErrBundle, 0, "", "unexpected file %.200q", name)
		case size > most:
			return verdict.Broken(verdict.ErrBundleSize, 0, name, "%d bytes, at most %d", size, most)
		case files > maxEntries:
			return verdict.Broken(verdict.ErrBundleSize, 0, "", "over %d files", maxEntries)
		case total > maxBundle:
			return verdict.Broken(verdict.ErrBundleSize, 0, "", "over %d bytes", int64(maxBundle))
		}
		return nil
	}
}

// limit returns the maximum size of a bundle's file of that name, 0 if a bundle has no such file.
func limit(name string) int64 {
	switch name {
	case bundleReadme, hostKeyFile, stampFile:
		return maxSmall
	case checkpointFile, sinceFile:
		return statement.MaxCheckpoint
	case consistencyFile:
		return maxProof
	case selectionFile, attachmentsFile, trailerFile:
		return statement.MaxNote
	}
	if statement.Attachable(name) {
		return statement.MaxAttachment
	}
	for suffix, n := range map[string]int64{
		wal.SegmentSuffix: maxSegment, wal.LeavesSuffix: maxLeaves, wal.ManifestSuffix: statement.MaxNote,
		statement.ErasureSuffix: statement.MaxNote, statement.RotationSuffix: statement.MaxNote, statement.HostSuffix: statement.MaxNote,
		proofSuffix: maxProof, erasureProofSuffix: maxProof, rotationProofSuffix: maxProof,
		witnessedSuffix: maxProof, witnessedStampSuffix: maxSmall, ancestorSuffix: maxAncestor,
	} {
		if numbered(name, suffix) {
			return n
		}
	}
	return 0
}
