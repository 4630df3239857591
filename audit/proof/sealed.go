package proof

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// Sealed is a segment of the evidence. The records are those that its manifest lists; the manifest's signature is
// not checked.
type Sealed struct {
	statement.Manifest
	Signed   []byte   // the manifest's signed note
	Host     string   // the name in the note's signature
	Rows     []Row    // in order of seq, without those that are withheld
	Withheld []uint64 // seqs of the records that a bundle does not show
}

// Sealed yields the segments of the run in order. It stops with a *verdict.Verdict at a segment that does not match its
// manifest or is of another run than the first. Verify checks the signatures and everything else.
func (e *Evidence) Sealed(ctx context.Context) iter.Seq2[Sealed, error] {
	return func(yield func(Sealed, error) bool) {
		firsts, err := e.list(wal.ManifestSuffix)
		if err == nil && len(firsts) == 0 {
			err = verdict.Open(verdict.ErrNoEvidence, "", "it has no manifest")
		}
		if err != nil {
			yield(Sealed{}, err)
			return
		}
		var p *prover
		for _, first := range firsts {
			s, err := e.sealedManifest(first)
			if err == nil && p == nil {
				p = newProver(e, s.Run)
			}
			if err == nil {
				err = p.sealed(&s)
			}
			if err == nil {
				err = ctx.Err()
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// sealedManifest reads the manifest of the segment that begins with a seq.
func (e *Evidence) sealedManifest(first uint64) (s Sealed, err error) {
	file := wal.FileName(first, wal.ManifestSuffix)
	if s.Signed, err = e.read(file, statement.MaxNote); err != nil {
		return s, verdict.Open(verdict.ErrUnreadable, file, "%v", err)
	}
	n, err := statement.Unverified(s.Signed)
	if err == nil {
		s.Manifest, err = statement.ParseManifest(n.Text)
	}
	if err == nil && s.First != first {
		err = fmt.Errorf("its segment begins with seq %d", s.First)
	}
	if err != nil {
		return s, verdict.Broken(verdict.ErrForged, 0, file, "%v", err)
	}
	for _, sig := range append(n.Sigs, n.UnverifiedSigs...) {
		s.Host = sig.Name
	}
	return s, nil
}

// sealed reads the records of a segment.
func (p *prover) sealed(s *Sealed) error {
	file := wal.FileName(s.First, wal.SegmentSuffix)
	if s.Run != p.walker.run {
		return verdict.Broken(verdict.ErrRunMismatch, 0, file, "it belongs to run %s, the first segment to run %s", s.Run, p.walker.run)
	}
	if s.Count == 0 {
		return nil
	}
	data, err := p.segment(file)
	if err != nil {
		return verdict.Open(verdict.ErrUnreadable, file, "%v", err)
	}
	if _, err := p.prove(s.Manifest, file, data); err != nil {
		return err
	}
	data, withheld := unmask(data)
	frames := wal.NewReader(file, bytes.NewReader(data))
	for {
		f, err := frames.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return verdict.Open(verdict.ErrUnreadable, file, "%v", err)
		case withheld[f.Offset]:
			s.Withheld = append(s.Withheld, f.Seq)
		case f.Erased:
			leaf := f.Leaf()
			s.Rows = append(s.Rows, Row{Seq: f.Seq, Erased: &leaf})
		default:
			s.Rows = append(s.Rows, Row{Seq: f.Seq, Salt: f.Salt, Body: f.Bytes})
		}
	}
}
