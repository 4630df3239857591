package proof

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/wal"
)

const (
	bundleReadme = "README.txt"
	maxBundle    = 64 << 30 // bytes of all files, unpacked
	maxEntries   = 5 * 1_000_000
	maxSmall     = 64 << 10 // bytes of README.txt and of host.pub
)

const readme = `This is the record of one run under custody: what happened, in order, signed.

To check it, with a public key that you got from somebody you trust:

    custody verify --key host.pub THIS-FILE

The host.pub in this bundle says which key signed. It proves nothing by itself, because
whoever could forge the record could forge it too: compare it with one that came another way.
This text proves nothing either.

Without custody: N.seg holds records, framed: "CWF1", length (uint32, little-endian), CRC-32C,
then 0x00, 16 random bytes, and length bytes of JSON. The SHA-256 of all from 0x00 on is the record's
leaf. N.leaves lists the leaves of N.seg, 32 bytes each. N.manifest is a signed note (C2SP
signed-note, Ed25519); its "root" is the RFC 6962 Merkle tree hash over those leaves, and its
"prev" the SHA-256 of the whole manifest file before it. Manifests count up from "segment":0, the
seqs in the records from 1, and the last manifest has a "closing" that is not empty. A seq that
does not occur stands in a "gap" record.

checkpoint is the signed head of the host's log (C2SP tlog-checkpoint), with the cosignatures of
its witnesses; checkpoint.tsr, if there is one, an RFC 3161 time stamp over that file. N.tlog-proof
(C2SP tlog-proof) says that the manifest N is in that log: its extra data is the entry, which names
the SHA-256 of the manifest file. since and consistency say that the log went on from an earlier
checkpoint. A frame that begins with "CWE1" is a record that was erased; N.erasure says why.
N.rotation says that the host has a new key, signed by the old one.

If there is a file "selection", only some of the records are shown: it says which, by whom and
when. A frame that begins with "CWH1" is one of the others; all else holds as in a whole bundle.
Files below report/ are no part of the record. "attachments" is the host's signature over them.

docs/verify.md and docs/verify.py of custody's source redo all of it.
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
	// Select shows a part of the record only. Nil: all of it.
	Select *Selection
	// Attachments are files below report/ that go with it, and About are runs that they speak
	// of beside this one.
	Attachments []Attachment
	About       []Subject
	// Signer is the host's key, By who asks for the bundle, and Time when: for the statements
	// of a selection and of attachments. They are not used without either.
	Signer note.Signer
	By     string
	Time   time.Time
	// Compress makes the bundle several times smaller, and slower to verify than to hash.
	Compress bool
}

// WriteBundle writes the record of the closed run in dir, with the host's public
// key, as one zip file. The same record and checkpoint give the same bytes. A live run is
// refused with ErrLive, one that is not under the checkpoint yet with ErrPending. Nothing is verified.
func WriteBundle(ctx context.Context, w io.Writer, dir string, o BundleOptions) error {
	if _, err := note.NewVerifier(strings.TrimSpace(o.HostKey)); err != nil {
		return fmt.Errorf("host's public key: %w", err)
	}
	if err := o.checkSigner(); err != nil {
		return err
	}
	e, err := OpenDir(dir)
	if err != nil {
		return err
	}
	defer e.Close()
	if e.Live {
		return fmt.Errorf("bundle %s: %w", dir, ErrLive)
	}
	b := bundler{ctx: ctx, BundleOptions: o, evidence: e, zip: zip.NewWriter(w), withheld: newWithheld()}
	if err := b.write(); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// checkSigner wants the host's own key where there is something to sign.
func (o BundleOptions) checkSigner() error {
	if o.Select == nil && len(o.Attachments) == 0 {
		return nil
	}
	v, err := note.NewVerifier(strings.TrimSpace(o.HostKey))
	switch {
	case err != nil:
		return fmt.Errorf("host's public key: %w", err)
	case o.Signer == nil || idOf(o.Signer) != idOf(v):
		return errors.New("a selection or an attachment needs the host's key to sign it")
	case o.Select != nil && (o.Select.Shows == nil || o.Select.What == ""):
		return errors.New("a selection needs what it shows, and its name")
	}
	return nil
}

// bundler writes one bundle.
type bundler struct {
	BundleOptions
	ctx        context.Context // of the one call
	evidence   *Evidence
	zip        *zip.Writer
	checkpoint signedCheckpoint
	head       Subject // as far as manifests were added
	records    uint64
	withheld   withheld
}

func (b *bundler) write() error {
	if err := b.add(bundleReadme, strings.NewReader(readme)); err != nil {
		return err
	}
	if err := b.add(PublicFile, strings.NewReader(strings.TrimSpace(b.HostKey)+"\n")); err != nil {
		return err
	}
	if b.Log != nil {
		if err := b.addLog(); err != nil {
			return err
		}
	}
	for _, add := range []func() error{b.addRecord, b.addSelection, b.addAttachments} {
		if err := add(); err != nil {
			return err
		}
	}
	return b.zip.Close()
}

// addLog adds what there is of the host's log as a whole.
func (b *bundler) addLog() (err error) {
	if b.checkpoint.note = b.Checkpoint; b.Checkpoint == nil {
		if b.checkpoint.note, err = b.Log.Checkpoint(b.ctx); err != nil {
			return fmt.Errorf("the host's log: %w", err)
		}
	}
	if b.checkpoint.Checkpoint, err = readCheckpoint(b.checkpoint.note); err != nil {
		return err
	}
	if err := b.add(checkpointFile, bytes.NewReader(b.checkpoint.note)); err != nil {
		return err
	}
	if b.Stamp != nil {
		if err := b.add(stampFile, bytes.NewReader(b.Stamp)); err != nil {
			return err
		}
	}
	if b.Since != nil {
		if err := b.addSince(); err != nil {
			return err
		}
	}
	for i, signed := range b.Rotations {
		name := wal.FileName(uint64(i+1), RotationSuffix)
		if err := b.add(name, bytes.NewReader(signed)); err != nil {
			return err
		}
		if err := b.prove(name, RotationLeaf(Digest(signed))); err != nil {
			return err
		}
	}
	return nil
}

// addSince adds an earlier checkpoint, and the proof that the log went on from it.
func (b *bundler) addSince() error {
	old, err := readCheckpoint(b.Since)
	if err != nil {
		return err
	}
	if old.Size > b.checkpoint.Size {
		return fmt.Errorf("the checkpoint has %d entries, the earlier one %d", b.checkpoint.Size, old.Size)
	}
	path, err := b.Log.Consistency(b.ctx, old.Size, b.checkpoint.Size)
	if err != nil {
		return fmt.Errorf("the host's log: %w", err)
	}
	if err := b.add(sinceFile, bytes.NewReader(b.Since)); err != nil {
		return err
	}
	proof := continuation{old: old.Size, path: path, checkpoint: b.checkpoint.note}
	return b.add(consistencyFile, bytes.NewReader(proof.marshal()))
}

// readCheckpoint reads a signed checkpoint that nobody vouches for.
func readCheckpoint(signed []byte) (Checkpoint, error) {
	n, err := unverified(signed)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	return ParseCheckpoint(n.Text)
}

// addRecord adds the record's files in the order of their names, each with its proof.
func (b *bundler) addRecord() error {
	entries, err := fs.ReadDir(b.evidence.files, ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if !ofRecord(name) {
			continue
		}
		if err := b.addFile(name); err != nil {
			return err
		}
		if err := b.proveFile(name); err != nil {
			return err
		}
	}
	return nil
}

// addFile adds one file of the record.
func (b *bundler) addFile(name string) error {
	if b.Select != nil && numbered(name, wal.SegmentSuffix) {
		return b.addSelected(name)
	}
	f, err := b.evidence.files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return b.add(name, f)
}

// proveFile adds the proof about a file that has an entry in the host's log, if there is one.
func (b *bundler) proveFile(name string) error {
	first, manifest := wal.ParseName(name, wal.ManifestSuffix)
	if !manifest && (b.Log == nil || !numbered(name, ErasureSuffix)) {
		return nil
	}
	data, err := b.evidence.read(name, maxManifest)
	if err != nil {
		return err
	}
	n, err := unverified(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !manifest {
		e, err := ParseErasure(n.Text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return b.prove(name, ErasureLeaf(e.Run, e.Seq, Digest(data)))
	}
	m, err := ParseManifest(n.Text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.head = Subject{m.Run, Digest(data)}
	b.records += m.Count
	if b.Log == nil {
		return nil
	}
	return b.prove(wal.FileName(first, ""), ManifestLeaf(m.Run, m.Segment, Digest(data)))
}

// prove adds the proof that an entry stands under the checkpoint.
func (b *bundler) prove(name string, entry []byte) error {
	index, err := b.Log.Index(b.ctx, entry)
	if errors.Is(err, fs.ErrNotExist) || err == nil && index >= b.checkpoint.Size {
		return fmt.Errorf("%s: %w", name, ErrPending)
	}
	if err != nil {
		return fmt.Errorf("the host's log: %w", err)
	}
	path, err := b.Log.Inclusion(b.ctx, index, b.checkpoint.Size)
	if err != nil {
		return fmt.Errorf("the host's log: %w", err)
	}
	p := inclusion{entry: entry, index: index, path: path, checkpoint: b.checkpoint.note}
	return b.add(name+proofSuffix, bytes.NewReader(p.marshal()))
}

// add leaves times and modes out, so that they do not tell two bundles apart.
func (b *bundler) add(name string, r io.Reader) error {
	method := zip.Store
	if b.Compress && !strings.HasSuffix(name, wal.LeavesSuffix) { // hashes do not compress
		method = zip.Deflate
	}
	f, err := b.zip.CreateHeader(&zip.FileHeader{Name: name, Method: method})
	if err == nil {
		_, err = io.Copy(f, r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// ofRecord says whether a file of that name in a run's directory belongs into a bundle.
func ofRecord(name string) bool {
	for _, suffix := range []string{wal.SegmentSuffix, wal.LeavesSuffix, wal.ManifestSuffix, ErasureSuffix} {
		if numbered(name, suffix) {
			return true
		}
	}
	return false
}
