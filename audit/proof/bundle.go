package proof

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/archive"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

const readme = `This is the record of one run under custody: what happened, in order, signed.

To check it, with a public key that you got from somebody you trust:

    custody verify --key host.pub THIS-FILE

The host.pub in this bundle says which key signed. It proves nothing by itself, because
whoever could forge the record could forge it too: compare it with one that came another way.

This file is a tar archive that can be written in one way only. "trailer", its last file, is the
signature over all bytes before it.

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
the SHA-256 of the manifest file. N.witnessed is the first checkpoint over it that witnesses cosigned, and
that the log went on from there. since and consistency say that the log went on from an earlier
checkpoint. A frame that begins with "CWE1" is a record that was erased; N.erasure says why.
N.rotation says that the host has a new key, signed by the old one. N.host says whose a key is, signed by the
root key of a fleet.

N.ancestor is the bundle of another run: 1 is the parent, whose processes this run continues, 2 that one's parent. The
first record names the parent, with the SHA-256 of its last manifest file.

If there is a file "selection", only some of the records are shown: it says which, by whom and
when. A frame that begins with "CWH1" is one of the others; all else holds as in a whole bundle.
Files below report/ are no part of the record. "attachments" is the host's signature over them.

docs/verify.md and docs/verify.py of custody's source redo all of it.
`

// BundleOptions are the contents of a bundle in addition to the record. HostKey and Signer are required,
// and Log for a bundle that verifies.
type BundleOptions struct {
	HostKey string // verifier in note format, of the key that signed the run
	Log     Log    // the host's log
	// Checkpoint is used instead of the log's last one. Nil: the last.
	Checkpoint []byte
	// Since is an earlier checkpoint of the log, from which the bundle must prove that the
	// log continues. Nil: none.
	Since []byte
	// Stamp is an RFC 3161 response over the checkpoint's bytes. Nil: none.
	Stamp []byte
	// Past has earlier checkpoints of the log, with which the bundle shows when the run's manifests were in it. Nil:
	// none.
	Past Past
	// Rotations are the host's signed rotations in order, as ReadRotations returns them.
	Rotations [][]byte
	// Hosts are signed statements about the keys of hosts: that of HostKey, and of Signer if that is another host's.
	Hosts [][]byte
	// Select selects a part of the record. Nil: all of it.
	Select *Selection
	// Ancestors are the run's ancestors, its parent first, at most 1,000. All have the checkpoint of this bundle, if they have a Log.
	Ancestors []BundledRun
	// Attachments are files below report/, and About are runs that they describe
	// in addition to this one.
	Attachments []statement.Attachment
	About       []statement.Subject
	// Signer signs the bundle as a whole with the key of HostKey or a successor. For a complete run of another host,
	// without attachments, it is the key of the host that writes the bundle.
	Signer note.Signer
	// By names the requester of the bundle, and Time is that of the request, for the statements of a selection and of
	// attachments. Otherwise they are unused.
	By   string
	Time time.Time
}

// WriteBundle writes the record of the closed run in dir, with the host's public
// key, as one archive that the host's key signs. The same record, checkpoint and options give the same
// bytes. The error is verdict.ErrLive for a live run, and verdict.ErrPending for one that the checkpoint does not cover yet.
// WriteBundle verifies nothing.
func WriteBundle(ctx context.Context, w io.Writer, dir string, o BundleOptions) error {
	b, err := newBundler(ctx, dir, o)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.write(w); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// newBundler lists the files of a bundle.
func newBundler(ctx context.Context, dir string, o BundleOptions) (*bundler, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	e, err := OpenDir(dir)
	if err != nil {
		return nil, err
	}
	b := &bundler{ctx: ctx, BundleOptions: o, evidence: e, withheld: statement.NewWithheld(), places: map[string]uint64{}}
	if err = verdict.ErrLive; !e.Live {
		err = b.list()
	}
	if err != nil {
		b.close()
		return nil, fmt.Errorf("bundle %s: %w", dir, err)
	}
	return b, nil
}

// ErrOtherHost is WriteBundle's error if a host selects from another host's run, or attaches files to it.
var ErrOtherHost = errors.New("only the host that made a run can select from it, or attach files")

// check requires the host's own key for all statements about its run.
func (o BundleOptions) check() error {
	v, err := note.NewVerifier(strings.TrimSpace(o.HostKey))
	switch {
	case err != nil:
		return fmt.Errorf("host's public key: %w", err)
	case o.Signer == nil:
		return errors.New("a bundle needs a key to sign it")
	case !o.leads(v) && (o.Select != nil || len(o.Attachments) > 0):
		return ErrOtherHost
	case len(o.Ancestors) > maxAncestors:
		return fmt.Errorf("a bundle has at most %d ancestors of a run, not %d", maxAncestors, len(o.Ancestors))
	case o.Select != nil && (o.Select.Shows == nil || o.Select.What == ""):
		return errors.New("a selection needs a description and its author")
	}
	return nil
}

// leads reports whether the key of a run signs the bundle, or rotations lead from it to the signing key.
func (o BundleOptions) leads(key note.Verifier) bool {
	at := idOf(key)
	for _, signed := range o.Rotations {
		r, err := statement.ReadRotation(signed)
		if err != nil || at == idOf(o.Signer) {
			break
		}
		old, err := statement.ParseVerifier(r.Old)
		if err != nil || idOf(old) != at {
			continue
		}
		next, err := statement.ParseVerifier(r.New)
		if err != nil {
			break
		}
		at = idOf(next)
	}
	return at == idOf(o.Signer)
}

// bundler writes one bundle. It first lists the files, and then makes and writes each in the order
// of their names: first those of the record, then the statements about them.
type bundler struct {
	BundleOptions
	ctx        context.Context // of the one call
	evidence   *Evidence
	files      []bundled
	checkpoint signedCheckpoint
	head       statement.Subject // as of the manifests written so far
	records    uint64
	withheld   statement.Withheld
	logged     []placed          // manifests in order
	places     map[string]uint64 // of entries in the log
	ancestors  []*bundler
}

// close closes the files.
func (b *bundler) close() {
	b.evidence.Close() // it was only read
	for _, a := range b.ancestors {
		a.close()
	}
}

// bundled is a file of a bundle. It is made just before it is written. The bundle of an ancestor is written directly.
type bundled struct {
	name     string
	make     func() ([]byte, error)
	ancestor *bundler
}

func (b *bundler) add(name string, make func() ([]byte, error)) {
	b.files = append(b.files, bundled{name: name, make: make})
}

func (b *bundler) addBytes(name string, data []byte) {
	b.add(name, func() ([]byte, error) { return data, nil })
}

// list lists the files, in the order of their names.
func (b *bundler) list() error {
	b.addBytes(bundleReadme, []byte(readme))
	b.addBytes(hostKeyFile, []byte(strings.TrimSpace(b.HostKey)+"\n"))
	for i, signed := range b.Hosts {
		b.addBytes(wal.FileName(uint64(i+1), statement.HostSuffix), signed)
	}
	if b.Log != nil {
		if err := b.addLog(); err != nil {
			return err
		}
	}
	if err := b.addRecord(); err != nil {
		return err
	}
	if err := b.addPast(); err != nil {
		return err
	}
	b.addSelection()
	b.addAttachments()
	if err := b.addAncestors(); err != nil {
		return err
	}
	slices.SortFunc(b.files, func(x, y bundled) int { return strings.Compare(x.name, y.name) })
	return nil
}

// write writes the bundle. Each time it writes the same bytes.
func (b *bundler) write(w io.Writer) error {
	b.withheld = statement.NewWithheld()
	sum := sha256.New()
	a := archive.NewWriter(io.MultiWriter(w, sum))
	for _, f := range b.files {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		if err := f.add(a); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	t := statement.Trailer{Run: b.head.Run, Head: b.head.Head, Files: uint64(len(b.files)), Bytes: a.Written(), SHA256: merkle.Hash(sum.Sum(nil))}
	signed, err := t.Sign(b.Signer)
	if err == nil {
		err = a.Add(trailerFile, int64(len(signed)), bytes.NewReader(signed))
	}
	return errors.Join(err, a.Close())
}

// addLog adds the checkpoint, its stamp, and what else concerns the whole log.
func (b *bundler) addLog() (err error) {
	if b.checkpoint.note = b.Checkpoint; b.Checkpoint == nil {
		if b.checkpoint.note, err = b.Log.Checkpoint(b.ctx); err != nil {
			return fmt.Errorf("the host's log: %w", err)
		}
	}
	if b.checkpoint.Checkpoint, err = statement.ReadCheckpoint(b.checkpoint.note); err != nil {
		return err
	}
	b.addBytes(checkpointFile, b.checkpoint.note)
	if b.Stamp != nil {
		b.addBytes(stampFile, b.Stamp)
	}
	if b.Since != nil {
		if err := b.addSince(); err != nil {
			return err
		}
	}
	for i, signed := range b.Rotations {
		name := wal.FileName(uint64(i+1), statement.RotationSuffix)
		b.addBytes(name, signed)
		b.prove(name, statement.RotationLeaf(statement.Digest(signed)))
	}
	return nil
}

// addSince adds an earlier checkpoint, and the proof that the log continues it.
func (b *bundler) addSince() error {
	old, err := statement.ReadCheckpoint(b.Since)
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
	b.addBytes(sinceFile, b.Since)
	b.addBytes(consistencyFile, continuation{old: old.Size, path: path, checkpoint: b.checkpoint.note}.marshal())
	return nil
}

// addRecord adds the record's files, each with its proof.
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
		b.add(name, func() ([]byte, error) { return b.recordFile(name) })
		if err := b.proveFile(name); err != nil {
			return err
		}
	}
	return nil
}

// recordFile returns one file of the record.
func (b *bundler) recordFile(name string) ([]byte, error) {
	if b.Select != nil && numbered(name, wal.SegmentSuffix) {
		return b.selected(name)
	}
	return b.evidence.read(name, int64(limit(name)))
}

// proveFile adds the proof for a file that has an entry in the host's log.
func (b *bundler) proveFile(name string) error {
	first, manifest := wal.ParseName(name, wal.ManifestSuffix)
	if !manifest && (b.Log == nil || !numbered(name, statement.ErasureSuffix)) {
		return nil
	}
	data, err := b.evidence.read(name, statement.MaxNote)
	if err != nil {
		return err
	}
	n, err := statement.Unverified(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !manifest {
		e, err := statement.ParseErasure(n.Text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.prove(name, statement.ErasureLeaf(e.Run, e.Seq, statement.Digest(data)))
		return nil
	}
	m, err := statement.ParseManifest(n.Text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if by, err := statement.SignerOf(data); b.head.Run == "" && (err != nil || !strings.HasPrefix(b.HostKey, by)) {
		return fmt.Errorf("%s: the key %.80s did not sign it", name, b.HostKey)
	}
	b.head = statement.Subject{Run: m.Run, Head: statement.Digest(data)}
	b.records += m.Count
	if b.Log != nil {
		entry := statement.ManifestLeaf(m.Run, m.Segment, statement.Digest(data))
		b.prove(wal.FileName(first, ""), entry)
		if index, err := b.place(entry); err == nil { // otherwise prove returns the error
			b.logged = append(b.logged, placed{m, index})
		}
	}
	return nil
}

// place returns the index of an entry under the checkpoint.
func (b *bundler) place(entry []byte) (uint64, error) {
	if index, ok := b.places[string(entry)]; ok {
		return index, nil
	}
	index, err := b.Log.Index(b.ctx, entry)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && index >= b.checkpoint.Size:
		return 0, verdict.ErrPending
	case err != nil:
		return 0, fmt.Errorf("the host's log: %w", err)
	}
	b.places[string(entry)] = index
	return index, nil
}

// prove adds the proof that the checkpoint covers an entry.
func (b *bundler) prove(name string, entry []byte) {
	b.add(name+proofSuffix, func() ([]byte, error) {
		index, err := b.place(entry)
		if err != nil {
			return nil, err
		}
		path, err := b.Log.Inclusion(b.ctx, index, b.checkpoint.Size)
		if err != nil {
			return nil, fmt.Errorf("the host's log: %w", err)
		}
		return inclusion{entry: entry, index: index, path: path, checkpoint: b.checkpoint.note}.marshal(), nil
	})
}

// ofRecord reports whether a bundle contains files of that name from a run's directory.
func ofRecord(name string) bool {
	for _, suffix := range []string{wal.SegmentSuffix, wal.LeavesSuffix, wal.ManifestSuffix, statement.ErasureSuffix} {
		if numbered(name, suffix) {
			return true
		}
	}
	return false
}
