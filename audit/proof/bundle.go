package proof

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/wal"
)

// Errors of bundles.
var (
	ErrBundle     = errors.New("not a bundle that custody wrote")
	ErrBundleSize = errors.New("the bundle holds more than a bundle may")
)

const (
	bundleReadme = "README.txt"
	maxBundle    = 64 << 30 // bytes of all files, unpacked
	maxEntries   = 3 * 1_000_000
	maxSmall     = 64 << 10 // bytes of README.txt and of host.pub
)

const readme = `This is the record of one run under custody: what happened, in order, signed.

To check it, with a public key that you got from somebody you trust:

    custody verify --key host.pub THIS-FILE

The host.pub in this bundle says which key signed. It proves nothing by itself, because
whoever could forge the record could forge it too: compare it with one that came another way.

Without custody: N.seg holds records, framed: "CWF1", length (uint32, little-endian), CRC-32C,
then 0x00, 16 random bytes, and length bytes of JSON. The SHA-256 of all from 0x00 on is the record's
leaf. N.leaves lists the leaves of N.seg, 32 bytes each. N.manifest is a signed note (C2SP
signed-note, Ed25519); its "root" is the RFC 6962 Merkle tree hash over those leaves, and its
"prev" the SHA-256 of the whole manifest file before it. Manifests count up from "segment":0, the
seqs in the records from 1, and the last manifest has a "closing" that is not empty. A seq that
does not occur stands in a "gap" record.
`

// BundleOptions are what a bundle holds beside the record. HostKey is required, and Log for
// a bundle that verifies.
type BundleOptions struct {
	HostKey string // verifier in note format
	Log     Log    // the host's log
	// Checkpoint is to be used instead of the log's last one. Nil: the last.
	Checkpoint []byte
	// Since is an earlier checkpoint of the log, from which the bundle shall prove that the
	// log went on. Nil: none.
	Since []byte
	// Stamp is an RFC 3161 response over the checkpoint's bytes. Nil: none.
	Stamp []byte
	// Rotations are the host's signed rotations in order, as ReadRotations returns them.
	Rotations [][]byte
	// Compress makes the bundle several times smaller, and slower to verify than to hash.
	Compress bool
}

// WriteBundle writes the record of the closed run in dir, with the host's public
// key, as one zip file. The same record and checkpoint give the same bytes. A live run is
// refused with ErrLive, one that is not under the checkpoint yet with ErrPending. Nothing is verified.
func WriteBundle(ctx context.Context, w io.Writer, dir string, o BundleOptions) error {
	hostKey := o.HostKey
	if _, err := note.NewVerifier(strings.TrimSpace(hostKey)); err != nil {
		return fmt.Errorf("host's public key: %w", err)
	}
	e, err := OpenDir(dir)
	if err != nil {
		return err
	}
	defer e.Close()
	if e.Live {
		return fmt.Errorf("bundle %s: %w", dir, ErrLive)
	}
	z := zip.NewWriter(w)
	if err := add(z, bundleReadme, strings.NewReader(readme)); err != nil {
		return err
	}
	if err := add(z, PublicFile, strings.NewReader(strings.TrimSpace(hostKey)+"\n")); err != nil {
		return err
	}
	if err := e.addAll(z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// addAll adds the record's files in the order of their names.
func (e *Evidence) addAll(z *zip.Writer) error {
	entries, err := fs.ReadDir(e.files, ".")
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	for _, entry := range entries {
		if limit(entry.Name()) == 0 {
			continue
		}
		f, err := e.files.Open(entry.Name())
		if err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
		err = add(z, entry.Name(), f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// add leaves times and modes out, so that they do not tell two bundles apart.
func add(z *zip.Writer, name string, r io.Reader) error {
	method := zip.Deflate
	if strings.HasSuffix(name, wal.LeavesSuffix) {
		method = zip.Store // hashes do not compress
	}
	f, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
	if err == nil {
		_, err = io.Copy(f, r)
	}
	if err != nil {
		return fmt.Errorf("write bundle: %s: %w", name, err)
	}
	return nil
}

// limit returns how long a file of that name may be, 0 if a record has no such file.
func limit(name string) uint64 {
	for suffix, n := range map[string]uint64{
		wal.SegmentSuffix: maxSegment, wal.LeavesSuffix: maxLeaves, wal.ManifestSuffix: maxManifest,
	} {
		if _, ok := wal.ParseName(name, suffix); ok {
			return n
		}
	}
	return 0
}

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
		return nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	if err := inspect(z.File); err != nil {
		return nil, err
	}
	e := &Evidence{files: z, close: func() error { return nil }}
	key, err := e.read(PublicFile, maxSmall)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	e.HostKey = strings.TrimSpace(string(key))
	return e, nil
}

// inspect refuses everything that WriteBundle would not have written.
func inspect(files []*zip.File) error {
	if len(files) > maxEntries {
		return fmt.Errorf("%w: %d files", ErrBundleSize, len(files))
	}
	var total uint64
	seen := map[string]bool{}
	for _, f := range files {
		most := limit(f.Name)
		if f.Name == bundleReadme || f.Name == PublicFile {
			most = maxSmall
		}
		switch {
		case most == 0:
			return fmt.Errorf("%w: it has no business holding %q", ErrBundle, f.Name)
		case seen[f.Name]:
			return fmt.Errorf("%w: %s is in it twice", ErrBundle, f.Name)
		case f.UncompressedSize64 > most:
			return fmt.Errorf("%w: %s has %d bytes, at most %d", ErrBundleSize, f.Name, f.UncompressedSize64, most)
		}
		seen[f.Name] = true
		if total += f.UncompressedSize64; total > maxBundle {
			return fmt.Errorf("%w: over %d bytes unpacked", ErrBundleSize, int64(maxBundle))
		}
	}
	return nil
}
