package proof

import (
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

// Report is the result of Verify. After an error it covers what was checked
// before the finding.
type Report struct {
	Run      string
	Records  uint64
	Segments uint64
	First    uint64
	Last     uint64
	// HoldsTo is the seq up to which every record is proven.
	HoldsTo uint64
	// Head is the digest of the last manifest; two copies of a run with the same head are the same.
	Head    merkle.Hash
	Closing wal.Closing
	// Sealed is the sealing time in the last manifest. Pause is the longest time between those of two consecutive manifests,
	// and Paused is the seq at which it began: a long pause shows that an old run may have been given another end.
	Sealed  time.Time
	Pause   time.Duration
	Paused  uint64
	Facts   statement.Facts
	Gaps    []audit.Gap // declared losses in order
	Losses  wal.Losses  // and their sums by stage
	KeyName string      // of the key that signed
	Copies  []Copied    // into and out of the workspace, in order
	// Published is the result for the host's log; nil if Verify did not use it.
	Published *Published
	Erasures  []statement.Erasure  // of erased records, in order of seq
	Asked     []statement.Erasure  // of records that still exist
	Hosts     []statement.Host     // whose keys a trusted root of a fleet states
	Rotations []statement.Rotation // that lead from a trusted key to another
	// Withheld is how many of Records a bundle does not show, by its exporter's choice, and Selected the statement of
	// that; nil if the bundle shows all that were not erased.
	Withheld uint64
	Selected *statement.Selected
	// Parent is the run that this one continues, as its first event states it; nil if it began from a template. Lineage is
	// what was established about that run and its ancestors, if Verify looked for them.
	Parent   *audit.Parent
	Lineage  []Ancestor
	Attached *statement.Attachments // files that are no part of the record; nil if there are none
	Unknown  []string               // names of fields that this version does not know, at most 16
}

// Shown returns the number of readable records.
func (r Report) Shown() uint64 { return r.Records - r.Withheld - uint64(len(r.Erasures)) }

// Published is the result of Verify for the host's log.
type Published struct {
	statement.Checkpoint
	Witnesses []string // names of the witnesses whose cosignatures count
	// Covered is how many records the checkpoint covers, and Tail how many are newer.
	Covered, Tail uint64
	Since         uint64 // size of the earlier checkpoint that the log continues, 0 if none was given
	// Witnessed is when the run's last manifest is known to have been in the log: by the quorum of witnesses, or a
	// stamp. Delay is the longest time from the seal of a manifest to such a moment. Zero without a trusted source of
	// time.
	Witnessed time.Time
	Delay     time.Duration
	SinceTime time.Time // time by which trusted witnesses had cosigned that one; zero if none did
	Stamp     time.Time // of the checkpoint by an authority; zero if there is none or none was required
	Authority string    // the subject of the stamping authority's certificate
}
