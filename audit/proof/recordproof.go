package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

const (
	recordProofType    = "custody record proof"
	recordProofVersion = 1
	leafRule           = "SHA-256(0x00 || salt || record)"
	// maxRecordProof bounds the document, in bytes.
	maxRecordProof = 2*wal.MaxRecord + 1<<20
)

// State is the state of a record on its way into the host's log.
//
//	StateOpen --- its segment is sealed ---> StateSealed --- a checkpoint covers the manifest ---> StateLogged
type State string

// The states of a record.
const (
	StateOpen   State = "open"   // written; nothing is signed yet
	StateSealed State = "sealed" // under a signed manifest, which is not under a checkpoint yet
	StateLogged State = "logged" // the checkpoint covers its manifest
)

// RecordProof is everything needed to verify one record with public keys alone. It is a JSON document; docs/verify.md
// describes how to check one by hand. It is not trusted.
//
//	record --leaf--> segment's tree --root--> manifest --entry--> host's log --root--> checkpoint
type RecordProof struct {
	Type  string `json:"type"`
	V     int    `json:"v"`
	Run   string `json:"run"`
	Seq   uint64 `json:"seq"`
	State State  `json:"state"`
	// Record is the exact bytes, and Salt 16 random bytes; both empty if the record was erased.
	Record   []byte      `json:"record,omitempty"`
	Salt     []byte      `json:"salt,omitempty"`
	Leaf     merkle.Hash `json:"leaf"`
	LeafRule string      `json:"leaf_rule"`
	// Erasure is the statement that the record was erased, nil if it was not.
	Erasure *LoggedNote `json:"erasure,omitempty"`
	// Segment is the leaf's path to the root that the manifest signs. Nil in StateOpen, like Manifest.
	Segment  *AuditPath  `json:"segment,omitempty"`
	Manifest *LoggedNote `json:"manifest,omitempty"`
	// Checkpoint is the head of the host's log, a signed note with the cosignatures of
	// witnesses, and Stamp an RFC 3161 response over it; empty unless StateLogged.
	Checkpoint string `json:"checkpoint,omitempty"`
	Stamp      []byte `json:"stamp,omitempty"`
	// Rotations lead from older keys of the host to the one that signed.
	Rotations []LoggedNote `json:"rotations,omitempty"`
	// HostKey is the host's public key: a hint, not evidence.
	HostKey string `json:"host_key,omitempty"`
}

// AuditPath is the position of a leaf in an RFC 6962 tree, and its audit path, from the leaf
// up. The tree's size is signed together with the root.
type AuditPath struct {
	Index uint64        `json:"index"`
	Path  []merkle.Hash `json:"path"`
}

// LoggedNote is a signed note, and the position of its entry in the host's log; nil if the checkpoint
// does not cover it.
type LoggedNote struct {
	Note string     `json:"note"`
	Log  *AuditPath `json:"log,omitempty"`
}

// ProofOf returns the proof of one record. It reads only the segment that contains it. The error is a
// *verdict.Verdict if that segment does not match its manifest, or the record does not exist
// (verdict.ErrNoEvidence). ProofOf checks no signature: RecordProof.Verify does. For evidence from a directory,
// set Log, Rotations, Stamp and HostKey first.
func ProofOf(ctx context.Context, e *Evidence, seq uint64) (RecordProof, error) {
	p := RecordProof{Type: recordProofType, V: recordProofVersion, Seq: seq, State: StateOpen, LeafRule: leafRule, HostKey: e.HostKey}
	m, signed, err := e.manifestOver(seq)
	if err != nil {
		return p, err
	}
	if signed == nil {
		return p, p.fromTail(e, m.Last+1)
	}
	if err := p.fromSegment(e, m, signed); err != nil {
		return p, err
	}
	return p, p.fromLog(ctx, e)
}

// fromSegment reads the record and its path from its sealed segment.
func (p *RecordProof) fromSegment(e *Evidence, m statement.Manifest, signed []byte) error {
	file := wal.FileName(m.First, wal.SegmentSuffix)
	data, err := e.read(file, maxSegment)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return verdict.Broken(verdict.ErrSegmentMissing, m.First, file, "its %d records are signed for in segment %d", m.Count, m.Segment)
	case err != nil:
		return verdict.Open(verdict.ErrUnreadable, file, "%v", err)
	}
	w := newProver(e, m.Run)
	frames, err := w.prove(m, file, data)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(frames, func(f proven) bool { return f.seq == p.Seq })
	if i < 0 {
		return verdict.Open(verdict.ErrNoEvidence, file, "seq %d is not in it: a gap declares what was lost", p.Seq)
	}
	p.Run, p.Leaf, p.State = m.Run, frames[i].leaf, StateSealed
	p.Manifest = &LoggedNote{Note: string(signed)}
	p.Segment = &AuditPath{Index: uint64(i), Path: merkle.Inclusion(w.leaves, i)}
	if frames[i].withheld {
		return verdict.Open(verdict.ErrNoEvidence, file, "seq %d is withheld in this bundle", p.Seq)
	}
	if frames[i].record == nil {
		return p.fromErasure(e)
	}
	return p.fromFrame(wal.NewReader(file, bytes.NewReader(data)))
}

// fromErasure reads the statement about an erased record.
func (p *RecordProof) fromErasure(e *Evidence) error {
	signed, err := e.read(statement.ErasureName(p.Seq), statement.MaxNote)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return verdict.Broken(verdict.ErrErasureUndeclared, p.Seq, statement.ErasureName(p.Seq), "")
	case err != nil:
		return verdict.Open(verdict.ErrUnreadable, statement.ErasureName(p.Seq), "%v", err)
	}
	p.Erasure = &LoggedNote{Note: string(signed)}
	return nil
}

// fromTail reads the record from a segment that is not sealed yet. An incomplete frame at its end is
// still being written.
func (p *RecordProof) fromTail(e *Evidence, from uint64) error {
	firsts, err := e.list(wal.SegmentSuffix)
	if err != nil {
		return verdict.Open(verdict.ErrUnreadable, "", "%v", err)
	}
	for _, first := range firsts {
		if first < from || first > p.Seq {
			continue
		}
		file := wal.FileName(first, wal.SegmentSuffix)
		data, err := e.read(file, maxSegment)
		if err != nil {
			return verdict.Open(verdict.ErrUnreadable, file, "%v", err)
		}
		if err := p.fromFrame(wal.NewReader(file, bytes.NewReader(data))); err == nil {
			return nil
		}
	}
	return verdict.Open(verdict.ErrNoEvidence, "", "the run has no record with seq %d", p.Seq)
}

// fromFrame reads up to the frame of the record.
func (p *RecordProof) fromFrame(r *wal.Reader) error {
	for {
		f, err := r.Next()
		if err != nil {
			return verdict.Open(verdict.ErrNoEvidence, "", "seq %d: %v", p.Seq, err)
		}
		if f.Seq == p.Seq && !f.Erased {
			p.Run, p.Record, p.Salt, p.Leaf = f.Run, slices.Clone(f.Bytes), f.Salt[:], f.Leaf()
			return nil
		}
	}
}

// fromLog adds the entries of the notes in the host's log.
func (p *RecordProof) fromLog(ctx context.Context, e *Evidence) error {
	v := newVerifier(e, Trust{})
	src := v.source()
	if src == nil {
		return nil
	}
	var c signedCheckpoint
	var err error
	if c.note, err = src.checkpoint(ctx); err != nil || c.note == nil {
		return err
	}
	if c.Checkpoint, err = statement.ReadCheckpoint(c.note); err != nil {
		return verdict.Broken(verdict.ErrCheckpoint, 0, checkpointFile, "%v", err)
	}
	return p.under(ctx, src, e, c)
}

// under adds the paths to the checkpoint, if it covers the manifest.
func (p *RecordProof) under(ctx context.Context, src source, e *Evidence, c signedCheckpoint) error {
	m, err := statement.ReadManifest([]byte(p.Manifest.Note))
	if err != nil {
		return err
	}
	err = p.Manifest.enter(ctx, src, wal.FileName(m.First, ""), statement.ManifestLeaf(m.Run, m.Segment, statement.Digest([]byte(p.Manifest.Note))), c)
	if err == errTail {
		return nil
	}
	if err == nil && p.Erasure != nil {
		err = p.Erasure.enter(ctx, src, statement.ErasureName(p.Seq), statement.ErasureLeaf(p.Run, p.Seq, statement.Digest([]byte(p.Erasure.Note))), c)
	}
	if err != nil && err != errTail { // Verify reports an erasure that is not logged
		return err
	}
	rotations, err := e.rotations()
	if err != nil {
		return err
	}
	for _, r := range rotations {
		n := LoggedNote{Note: string(r.signed)}
		switch err := n.enter(ctx, src, r.file, statement.RotationLeaf(r.digest), c); {
		case err == nil:
			p.Rotations = append(p.Rotations, n)
		case err != errTail: // a recent entry cannot be judged yet
			return err
		}
	}
	p.State, p.Checkpoint = StateLogged, string(c.note)
	p.Stamp, err = src.stamp()
	return err
}

// enter sets the entry's position in the log.
func (n *LoggedNote) enter(ctx context.Context, src source, name string, entry []byte, c signedCheckpoint) error {
	in, err := src.include(ctx, name, entry, c)
	if err == nil {
		n.Log = &AuditPath{Index: in.index, Path: in.path}
	}
	return err
}

// MarshalJSON encodes an empty path as an empty list.
func (a AuditPath) MarshalJSON() ([]byte, error) {
	type plain AuditPath
	if a.Path == nil {
		a.Path = []merkle.Hash{}
	}
	return json.Marshal(plain(a))
}

// Encode returns the document in its canonical form: as encoding/json encodes it, and a newline.
func (p RecordProof) Encode() ([]byte, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode proof: %w", err)
	}
	return append(data, '\n'), nil
}

// ParseRecordProof parses a document in the form of Encode, and no other. The error is a *verdict.Verdict with
// verdict.ErrProofMalformed.
func ParseRecordProof(data []byte) (p RecordProof, err error) {
	if len(data) > maxRecordProof {
		return p, verdict.Broken(verdict.ErrProofMalformed, 0, "", "%d bytes, at most %d", len(data), maxRecordProof)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, verdict.Broken(verdict.ErrProofMalformed, 0, "", "%v", err)
	}
	again, err := p.Encode()
	if err != nil || !bytes.Equal(again, data) {
		return p, verdict.Broken(verdict.ErrProofMalformed, 0, "", "it is not written as custody writes it: keep the answer as it came")
	}
	return p, p.shape()
}

// shape checks that the document has exactly the parts of its state.
func (p RecordProof) shape() error {
	sealed, logged := p.State != StateOpen, p.State == StateLogged
	erased := p.Erasure != nil
	var what string
	switch {
	case p.Type != recordProofType || p.V != recordProofVersion:
		what = fmt.Sprintf("it is %.40q, version %d", p.Type, p.V)
	case !slices.Contains([]State{StateOpen, StateSealed, StateLogged}, p.State):
		what = fmt.Sprintf("its state is %.40q", p.State)
	case p.Seq == 0 || p.Seq > statement.MaxSeq:
		what = fmt.Sprintf("no record has seq %d", p.Seq)
	case p.LeafRule != leafRule:
		what = fmt.Sprintf("its leaf rule is %.60q", p.LeafRule)
	case erased != (len(p.Record) == 0) || erased != (len(p.Salt) == 0) || erased && !sealed:
		what = "it must have a record with its salt, or a statement of its erasure"
	case !erased && len(p.Salt) != 16:
		what = fmt.Sprintf("its salt has %d bytes", len(p.Salt))
	case sealed != (p.Manifest != nil) || sealed != (p.Segment != nil):
		what = "manifest and path in the segment belong to states sealed and logged"
	case logged != (p.Checkpoint != "") || sealed && logged != (p.Manifest.Log != nil):
		what = "checkpoint and path in the log belong to state logged"
	case !logged && (len(p.Rotations) > 0 || p.Stamp != nil || erased && p.Erasure.Log != nil):
		what = "rotations, time stamp and paths in the log belong to state logged"
	case p.repeated():
		what = "a rotation comes twice"
	case p.long():
		what = "a note or a path is longer than any can be"
	default:
		return nil
	}
	return verdict.Broken(verdict.ErrProofMalformed, p.Seq, "", "%s", what)
}

// repeated reports whether a rotation occurs twice.
func (p RecordProof) repeated() bool {
	seen := map[string]bool{}
	for _, r := range p.Rotations {
		seen[r.Note] = true
	}
	return len(seen) < len(p.Rotations)
}

// long reports whether a part is longer than any that custody writes.
func (p RecordProof) long() bool {
	notes := slices.Clone(p.Rotations)
	for _, n := range []*LoggedNote{p.Manifest, p.Erasure} {
		if n != nil {
			notes = append(notes, *n)
		}
	}
	tooLong := func(n LoggedNote) bool {
		return len(n.Note) > statement.MaxNote || n.Log != nil && len(n.Log.Path) > maxPath
	}
	return len(p.Record) > wal.MaxRecord || len(p.Checkpoint) > statement.MaxCheckpoint || len(p.Stamp) > maxSmall ||
		p.Segment != nil && len(p.Segment.Path) > maxPath || slices.ContainsFunc(notes, tooLong)
}
