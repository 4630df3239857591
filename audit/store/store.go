// Package store holds what the transport, the stores and the readers of a
// record agree on: a segment on its way into a store, a row in it, and the
// summary of a run. Implementations are in the packages below it.
//
// A store is an index over the record for people and programs that ask
// questions. It is never the truth: that is the log of the run, and whatever a
// store answers can be compared with the log and be rebuilt from it.
package store

import (
	"errors"
	"time"

	"github.com/custody-project/custody/audit"
)

// Errors that every store returns, wrapped, for the same conditions.
var (
	// ErrNotFound: no such run.
	ErrNotFound = errors.New("no such run")
	// ErrAmbiguous: a prefix names several runs.
	ErrAmbiguous = errors.New("several runs begin like that")
	// ErrConflict: the store already has other bytes at this place. They are kept;
	// the segment is refused whole. Trying again cannot help.
	ErrConflict = errors.New("the store has different bytes at the same place")
	// ErrMalformed: a segment contradicts itself. Trying again cannot help.
	ErrMalformed = errors.New("malformed segment")
)

// Limits of a segment that a transport or a store accepts. The log cuts its
// segments at 4 MiB of records, far below them.
const (
	MaxFrames   = 1 << 20
	MaxBody     = 8 << 20
	MaxManifest = 1 << 20
	MaxRunID    = 128
)

// Frame is one record as the log holds it. Body is the exact JSON that was hashed.
type Frame struct {
	Seq  uint64
	Salt [16]byte
	Body []byte
}

// Segment is a sealed segment of a run: its signed manifest and its frames,
// ordered by Seq. A run's closing manifest travels as a segment without frames.
type Segment struct {
	Run      string
	Index    uint64 // of the manifest in the run's chain
	First    uint64 // seq of the first and last frame; meaningless without frames
	Last     uint64
	Root     [32]byte // Merkle root that the manifest signs
	Manifest []byte   // exact bytes, may be empty when a log is reread that was cut off before sealing
	Frames   []Frame
}

// Check reports, as ErrMalformed, whether s breaks a limit or its own order.
func (s Segment) Check() error {
	switch {
	case s.Run == "" || len(s.Run) > MaxRunID:
		return malformed("the run's name has %d bytes", len(s.Run))
	case len(s.Manifest) > MaxManifest:
		return malformed("the manifest has %d bytes, at most %d are allowed", len(s.Manifest), MaxManifest)
	case len(s.Frames) > MaxFrames:
		return malformed("%d frames, at most %d are allowed", len(s.Frames), MaxFrames)
	case len(s.Frames) == 0:
		return nil
	case s.Frames[0].Seq != s.First || s.Frames[len(s.Frames)-1].Seq != s.Last:
		return malformed("frames are not the promised seq %d to %d", s.First, s.Last)
	}
	for i, f := range s.Frames {
		if i > 0 && f.Seq <= s.Frames[i-1].Seq {
			return malformed("seq %d follows seq %d", f.Seq, s.Frames[i-1].Seq)
		}
		if len(f.Body) == 0 || len(f.Body) > MaxBody {
			return malformed("record %d has %d bytes", f.Seq, len(f.Body))
		}
	}
	return nil
}

// Row is a record in a store. All but Body and Salt is taken from Body so that
// it can be searched; Body alone is evidence.
type Row struct {
	Head
	Body []byte
	Salt [16]byte
}

// Query selects records of one run, in order of seq.
type Query struct {
	Run      string
	Kinds    []audit.Kind // all when empty
	From, To time.Time    // From inclusive, To exclusive; zero means unbounded
	AfterSeq uint64       // only records with a greater seq
	Limit    int          // 0 means no limit
}

// Filter selects runs, newest first.
type Filter struct {
	Project string
	Status  Status
	Limit   int // 0 means no limit
}

// Manifest is one link of a run's chain of signed manifests.
type Manifest struct {
	Index uint64
	First uint64
	Last  uint64
	Root  [32]byte
	Bytes []byte
}
