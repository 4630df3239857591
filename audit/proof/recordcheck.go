package proof

import (
	"context"
	"errors"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/schema"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// RecordReport is the result of RecordProof.Verify. After an error it covers what was
// checked before the finding.
type RecordReport struct {
	Run      string
	Seq      uint64
	State    State
	Kind     audit.Kind // for an erased record, from the statement
	Leaf     merkle.Hash
	Manifest statement.Manifest // zero in StateOpen
	KeyName  string             // of the key that signed
	Erased   *statement.Erasure // nil if the record was not erased
	Log      *Published         // nil unless StateLogged
	// Rotations lead from a trusted key to another.
	Rotations []statement.Rotation
}

// Verify checks the document against the keys, policy and time in trust. A nil error means: this record is, byte for
// byte, what the host signed, at this position of its run, and the checkpoint of the host's log covers it. Any error is a
// *verdict.Verdict. For a record that is not sealed yet it is verdict.ErrLive, for one that no checkpoint covers yet
// verdict.ErrPending: the rest of the document is valid. Verify does not check other records, and a document has no proof
// that the log continues Trust.Since: that needs a bundle.
func (p RecordProof) Verify(t Trust) (RecordReport, error) {
	c := recordCheck{RecordProof: p, report: RecordReport{Run: p.Run, Seq: p.Seq, State: p.State, Leaf: p.Leaf}}
	c.v = newVerifier(&Evidence{HostKey: p.HostKey, bundle: true}, t)
	for _, step := range []func() error{p.shape, c.keys, c.record, c.manifest, c.segment, c.erasure, c.log} {
		if err := step(); err != nil {
			return c.report, err
		}
	}
	switch {
	case p.State == StateOpen:
		return c.report, verdict.Open(verdict.ErrLive, "", "seq %d is written, nothing is signed yet", p.Seq)
	case p.State == StateSealed:
		return c.report, verdict.Open(verdict.ErrPending, "", "seq %d is under a signed manifest", p.Seq)
	case c.v.open != nil:
		return c.report, c.v.open
	}
	return c.report, nil
}

// recordCheck checks one document. It is the source of its proofs.
type recordCheck struct {
	RecordProof
	v      *verifier
	m      signed
	report RecordReport
}

// Names of a document's parts in findings.
const (
	partManifest = "manifest"
	partErasure  = "erasure"
	partRotation = "rotations"
)

func (c *recordCheck) keys() (err error) {
	for _, n := range c.Rotations {
		s := signedFile{file: partRotation, signed: []byte(n.Note), digest: statement.Digest([]byte(n.Note))}
		c.v.rotations = append(c.v.rotations, s)
	}
	c.report.Rotations, err = c.v.ring.link(c.v.rotations)
	return err
}

// record checks that the record has the leaf hash, and the run and seq of the document.
func (c *recordCheck) record() error {
	if c.Erasure != nil {
		return nil
	}
	if merkle.LeafHash([16]byte(c.Salt), c.Record) != c.Leaf {
		return verdict.Broken(verdict.ErrAltered, c.Seq, "", "it does not give the leaf %s", c.Leaf)
	}
	if seq, ok := newWalker(c.Run).seq(c.Record); !ok || seq != c.Seq {
		return verdict.Broken(verdict.ErrRunMismatch, c.Seq, "", "the record does not begin as one of run %.80s with that seq does", c.Run)
	}
	h, err := schema.NewScanner(schema.New()).Scan(c.Record)
	var syntax schema.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return verdict.Broken(verdict.ErrUndecodable, c.Seq, "", "%v", err)
	case err != nil:
		return verdict.Broken(verdict.ErrMalformed, c.Seq, "", "%v", err)
	case h.Stranger != "":
		c.v.doubt(verdict.Open(verdict.ErrField, "", "seq %d has a field %q; a newer custody can judge it", c.Seq, h.Stranger))
	case !h.Known:
		c.v.doubt(verdict.Open(verdict.ErrKind, "", "seq %d is of kind %.40q; a newer custody can judge it", c.Seq, h.Kind))
	}
	c.report.Kind = h.Kind
	return nil
}

// manifest checks the manifest's signer, and that the manifest covers this record.
func (c *recordCheck) manifest() (err error) {
	if c.State == StateOpen {
		return nil
	}
	if c.m, err = c.v.readManifest(partManifest, []byte(c.Manifest.Note)); err != nil {
		return err
	}
	switch {
	case c.m.key == keyID{}:
		return verdict.Open(verdict.ErrUnknownKey, partManifest, "give its public key if you trust it")
	case c.m.Run != c.Run:
		return verdict.Broken(verdict.ErrRunMismatch, 0, partManifest, "it belongs to run %s, the record to run %.80s", c.m.Run, c.Run)
	case c.m.Count == 0 || c.Seq < c.m.First || c.Seq > c.m.Last:
		return verdict.Broken(verdict.ErrContradiction, c.Seq, partManifest, "it signs for seqs %d to %d", c.m.First, c.m.Last)
	}
	if err := c.v.early(c.m); err != nil {
		return err
	}
	c.v.host, c.v.report.Run = c.m.key.name, c.m.Run
	c.report.Manifest, c.report.KeyName = c.m.Manifest, c.m.key.name
	if c.HostKey == "" {
		return nil
	}
	return c.v.hostKey()
}

// segment checks the path from the leaf to the root that the manifest signs.
func (c *recordCheck) segment() error {
	if c.State == StateOpen {
		return nil
	}
	if !merkle.VerifyInclusion(c.Leaf, c.Segment.Index, c.m.Count, c.Segment.Path, c.m.Root) {
		return verdict.Broken(verdict.ErrAltered, c.Seq, "", "leaf %d of %d does not lead to the root that the manifest signs", c.Segment.Index, c.m.Count)
	}
	if c.Segment.Index > c.Seq-c.m.First || c.m.Count-c.Segment.Index > c.m.Last-c.Seq+1 {
		return verdict.Broken(verdict.ErrReordered, c.Seq, "", "it cannot be leaf %d of %d from seq %d to %d", c.Segment.Index, c.m.Count, c.m.First, c.m.Last)
	}
	return nil
}

// erasure checks the statement of an erased record.
func (c *recordCheck) erasure() error {
	if c.Erasure == nil {
		return nil
	}
	data := []byte(c.Erasure.Note)
	e, err := c.v.openErasure(signedFile{file: statement.ErasureName(c.Seq), signed: data, digest: statement.Digest(data)})
	if err != nil {
		return err
	}
	if e.Leaf != c.Leaf {
		return verdict.Broken(verdict.ErrErasureMismatch, c.Seq, partErasure, "it names leaf %s, the record's is %s", e.Leaf, c.Leaf)
	}
	e.file, e.seen, e.done = partErasure, true, true
	c.v.erasures[e.Seq] = e
	c.report.Kind, c.report.Erased = e.Kind, &e.Erasure
	return nil
}

// log checks the entries of all signed notes in the host's log.
func (c *recordCheck) log() error {
	if c.State != StateLogged {
		return nil
	}
	ctx := context.Background() // nothing below blocks
	l := c.v.log(c)
	if err := l.checkpoint(ctx); err != nil {
		return err
	}
	c.report.Log = c.v.report.Published
	entry := statement.ManifestLeaf(c.m.Run, c.m.Segment, c.m.digest)
	for _, check := range []func(context.Context) error{
		l.since, l.stamped, l.includeRotations,
		func(ctx context.Context) error { return l.include(ctx, partManifest, entry) },
		l.includeErasures,
	} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// The methods of source.

func (c *recordCheck) checkpoint(context.Context) ([]byte, error) { return []byte(c.Checkpoint), nil }
func (c *recordCheck) since() ([]byte, error)                     { return nil, nil }

func (c *recordCheck) stamp() ([]byte, error) { return c.Stamp, nil }

func (c *recordCheck) earlier(context.Context, []signed, signedCheckpoint) (map[uint64]earlier, error) {
	return nil, nil
}

func (c *recordCheck) continues(context.Context, uint64, signedCheckpoint) ([]merkle.Hash, error) {
	return nil, verdict.Broken(verdict.ErrNoConsistency, 0, "", "the proof of one record has none: take a bundle")
}

// include finds the path by the entry, which names the note's digest.
func (c *recordCheck) include(_ context.Context, name string, entry []byte, _ signedCheckpoint) (inclusion, error) {
	l, err := statement.ParseLeaf(entry)
	if err != nil {
		return inclusion{}, verdict.Broken(verdict.ErrProofMalformed, 0, name, "%v", err)
	}
	notes := c.Rotations
	for _, n := range []*LoggedNote{c.Manifest, c.Erasure} {
		if n != nil {
			notes = append(notes[:len(notes):len(notes)], *n)
		}
	}
	for _, n := range notes {
		if statement.Digest([]byte(n.Note)) == l.Digest && n.Log != nil {
			return inclusion{entry: entry, index: n.Log.Index, path: n.Log.Path}, nil
		}
	}
	if l.Of == statement.OfManifest {
		return inclusion{}, verdict.Broken(verdict.ErrNoProof, 0, name, "")
	}
	return inclusion{}, errTail
}
