package proof

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/custody-project/custody/audit/wal"
)

// OpenBundle opens a bundle as evidence. Names and sizes are checked before
// anything is unpacked, and sizes again while reading.
func OpenBundle(path string) (*Evidence, error) {
	f, err := os.Open(path)
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
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, broken(ErrBundle, 0, "", "%v", err)
	}
	if err := inspect(z.File); err != nil {
		return nil, err
	}
	e := &Evidence{bundle: true, files: z, close: func() error { return nil }}
	key, err := e.read(PublicFile, maxSmall)
	if err != nil {
		return nil, broken(ErrBundle, 0, PublicFile, "%v", err)
	}
	e.HostKey = strings.TrimSpace(string(key))
	return e, nil
}

// inspect refuses everything that WriteBundle would not have written.
func inspect(files []*zip.File) error {
	if len(files) > maxEntries {
		return broken(ErrBundleSize, 0, "", "%d files", len(files))
	}
	var total uint64
	seen := map[string]bool{}
	for _, f := range files {
		most := limit(f.Name)
		switch {
		case most == 0:
			return broken(ErrBundle, 0, "", "it has no business holding %.200q", f.Name)
		case seen[f.Name]:
			return broken(ErrBundle, 0, f.Name, "it is there twice")
		case f.UncompressedSize64 > most:
			return broken(ErrBundleSize, 0, f.Name, "%d bytes, at most %d", f.UncompressedSize64, most)
		}
		seen[f.Name] = true
		if total += f.UncompressedSize64; total > maxBundle {
			return broken(ErrBundleSize, 0, "", "over %d bytes unpacked", int64(maxBundle))
		}
	}
	return nil
}

// limit returns how long a bundle's file of that name may be, 0 if a bundle has no such file.
func limit(name string) uint64 {
	switch name {
	case bundleReadme, PublicFile, stampFile:
		return maxSmall
	case checkpointFile, sinceFile:
		return maxCheckpoint
	case consistencyFile:
		return maxProof
	case selectionFile, attachmentsFile:
		return maxManifest
	}
	if attachable(name) {
		return maxAttachment
	}
	for suffix, n := range map[string]uint64{
		wal.SegmentSuffix: maxSegment, wal.LeavesSuffix: maxLeaves, wal.ManifestSuffix: maxManifest,
		ErasureSuffix: maxManifest, RotationSuffix: maxManifest,
		proofSuffix: maxProof, erasureProofSuffix: maxProof, rotationProofSuffix: maxProof,
	} {
		if numbered(name, suffix) {
			return n
		}
	}
	return 0
}
