// Package sealer separates the signing key from the process that writes a run's log. The writer, a worker without privileges, asks
// the process with the key to sign each sealed segment.
//
//	worker: wal.Log --> Remote --seal--> Signer: checks, chains, signs
//
// The Signer belongs to one run. It signs each segment once, in order, with the time of its own clock, chained to the manifest that it
// signed before. So a worker that was taken over can neither sign for another run, nor date a segment back, nor
// sign a second version of a segment, although it can choose what the records of its own run contain.
package sealer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/privsep"
)

const callSeal = "seal"

// Segment is what a worker states of a sealed segment.
type Segment struct {
	Index, First, Last, Count uint64
	Bytes                     int64
	Root                      merkle.Hash
	Losses                    wal.Losses
	Closing                   wal.Closing
}

// SegmentOf returns a segment without its records, and their leaves.
func SegmentOf(s wal.Segment) (seg Segment, leaves []byte) {
	leaves, root := statement.Leaves(s)
	return Segment{
		Index: s.Index, First: s.First, Last: s.Last, Count: s.Count, Bytes: s.Bytes, Root: root, Losses: s.Losses, Closing: s.Closing,
	}, leaves
}

// same reports whether both are the same. Losses can be nil or empty.
func (s Segment) same(o Segment) bool {
	if len(s.Losses) == 0 && len(o.Losses) == 0 {
		s.Losses, o.Losses = nil, nil
	}
	return reflect.DeepEqual(s, o)
}

// Signer signs the segments of one run. It is safe for concurrent use.
//
//	NewSigner, Resume --> open --a closing segment--> closed
type Signer struct {
	run    string
	signer *statement.Sealer
	now    func() time.Time
	keep   func(manifest []byte) error // stores a manifest before it is returned; nil: none is stored

	mu     sync.Mutex // guards the fields below
	last   *Segment   // nil before the first
	signed []byte     // its manifest
}

// NewSigner returns the signer of a run, whose manifests have these facts.
func NewSigner(key note.Signer, run string, facts statement.Facts) *Signer {
	return &Signer{run: run, signer: statement.NewSealer(key, facts), now: time.Now}
}

// Resume returns the signer of a run that another Signer has begun, and whose last manifest is last. One of the trusted keys must have
// signed it. The caller answers for last being the last one: what follows it can be signed again.
func Resume(key note.Signer, run string, last []byte, trusted note.Verifiers) (*Signer, error) {
	m, err := statement.OpenManifest(last, trusted)
	if err == nil && m.Run != run {
		err = fmt.Errorf("it is of run %s", m.Run)
	}
	if err != nil {
		return nil, fmt.Errorf("last manifest of run %s: %w", run, err)
	}
	s := NewSigner(key, run, m.Facts)
	s.signed = last
	s.last = &Segment{Index: m.Segment, First: m.First, Last: m.Last, Count: m.Count, Bytes: m.Bytes, Root: m.Root, Losses: m.Losses, Closing: m.Closing}
	return s, nil
}

// Handlers returns the call with which a Remote has a segment signed.
func (s *Signer) Handlers() map[string]privsep.Handler {
	return Handlers(func() (*Signer, error) { return s, nil })
}

// Handlers returns the call with which a Remote has a segment signed by a signer that is made later.
func Handlers(signer func() (*Signer, error)) map[string]privsep.Handler {
	return map[string]privsep.Handler{callSeal: privsep.Handle(func(_ context.Context, seg Segment) (any, []*os.File, error) {
		s, err := signer()
		if err != nil {
			return nil, nil, err
		}
		manifest, err := s.Sign(seg)
		return manifest, nil, err
	})}
}

// Last returns the manifest that was signed last, nil before the first. If the worker ended before it could write it, the
// record goes on after it nevertheless.
func (s *Signer) Last() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signed
}

// Sign signs a segment. For the last one that it signed it returns the same manifest again.
func (s *Signer) Sign(seg Segment) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.same(seg) {
		return s.signed, nil
	}
	if err := s.check(seg); err != nil {
		return nil, fmt.Errorf("segment %d of run %s: %w", seg.Index, s.run, err)
	}
	manifest, err := s.signer.Sign(wal.Segment{
		Run: s.run, Index: seg.Index, First: seg.First, Last: seg.Last, Count: seg.Count, Bytes: seg.Bytes,
		Losses: seg.Losses, Time: s.now().UTC(), Closing: seg.Closing, Prev: s.signed,
	}, seg.Root)
	if err == nil && s.keep != nil {
		err = s.keep(manifest)
	}
	if err != nil {
		return nil, err
	}
	s.last, s.signed = &seg, manifest
	return manifest, nil
}

// The refusals of a Signer.
var (
	errClosed = errors.New("the record is closed")
	errOrder  = errors.New("it does not follow the segment that was signed last, or that one was signed with other contents")
	errRange  = errors.New("its range and its number of records do not agree")
	errEmpty  = errors.New("only the closing segment can be empty")
	errLosses = errors.New("it declares losses at a stage that does not exist")
	errEnd    = errors.New("its closing is not known")
)

// check compares a segment with the one before it. The caller holds mu.
func (s *Signer) check(seg Segment) error {
	index, first := uint64(0), uint64(1)
	if s.last != nil {
		index, first = s.last.Index+1, s.last.Last+1
	}
	switch {
	case s.last != nil && s.last.Closing != wal.Open:
		return errClosed
	case seg.Index != index || seg.First < first:
		return errOrder
	case seg.Last > statement.MaxSeq || seg.Bytes < 0 || seg.Last+1 < seg.First || seg.Count > seg.Last+1-seg.First:
		return errRange
	case seg.Last+1-first-seg.Count > seg.Losses[string(audit.StageWAL)].Events: // dropped events have seqs, which the segment declares
		if seg.First != first {
			return errOrder
		}
		return errRange
	case seg.Count == 0 && seg.Closing == wal.Open:
		return errEmpty
	case !slices.Contains([]wal.Closing{wal.Open, wal.Sealed, wal.Interrupted}, seg.Closing):
		return errEnd
	}
	for stage := range seg.Losses {
		if _, ok := audit.Stage(stage).Info(); !ok {
			return errLosses
		}
	}
	return nil
}

// Remote is a wal.Sealer whose key is in another process.
type Remote struct{ conn *privsep.Conn }

// NewRemote returns a Sealer whose Signer is at the other end of the connection.
func NewRemote(c *privsep.Conn) *Remote { return &Remote{c} }

var _ wal.Sealer = (*Remote)(nil)

// Seal implements wal.Sealer.
func (r *Remote) Seal(s wal.Segment) (leaves, manifest []byte, err error) {
	seg, leaves := SegmentOf(s)
	_, err = r.conn.Call(context.Background(), callSeal, seg, &manifest) // ends with the connection
	return leaves, manifest, err
}

// Parse implements wal.Sealer.
func (r *Remote) Parse(manifest []byte) (wal.Segment, error) {
	return new(statement.Sealer).Parse(manifest)
}
