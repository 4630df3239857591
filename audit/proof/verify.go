package proof

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
)

// Report is what Verify established. After an error it covers what was checked
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
	Head    Hash
	Closing wal.Closing
	Facts   Facts
	Gaps    []audit.Gap // declared losses in order
	Losses  wal.Losses  // and their sums by stage
	KeyName string      // of the key that signed
	// Published is what the host's log says; nil if it was not asked.
	Published *Published
	Erasures  []Erasure  // in order of seq
	Rotations []Rotation // that were needed to trust the keys that signed
	Unknown   []string   // names of fields that this version does not know, at most 16
}

// Published is what Verify established about the host's log.
type Published struct {
	Checkpoint
	Witnesses []string // names of those whose cosignatures count
	// Covered is how many records stand under the checkpoint, and Tail how many are younger.
	Covered, Tail uint64
	Since         uint64    // size of the earlier checkpoint that the log goes on from, 0 if none was asked for
	Stamp         time.Time // of the checkpoint by an authority; zero if there is none or none was asked for
	Authority     string    // who stamped: the subject of its certificate
}

// Verify checks evidence against trusted keys: every signature, the chain of
// manifests, every record against its leaf and root, the seqs, the gaps. A nil
// error means that it holds from the first record to the closing manifest. Any
// error is a *Verdict, or ctx's.
func Verify(ctx context.Context, e *Evidence, t Trust) (Report, error) {
	v := verifier{evidence: e, report: Report{Losses: wal.Losses{}}}
	manifests, err := v.manifests(t.Keys)
	if err != nil {
		return v.report, err
	}
	for _, m := range manifests {
		if err := ctx.Err(); err != nil {
			return v.report, err
		}
		if err := v.segment(m); err != nil {
			return v.report, err
		}
	}
	return v.report, v.end(manifests)
}

type verifier struct {
	evidence *Evidence
	report   Report
	holes    []hole
	excuses  []audit.Gap // what the host's log declared as lost
}

type hole struct {
	first, last uint64
	file        string
}

// segment checks one segment's records and takes them into the report.
func (v *verifier) segment(m signed) error {
	file := wal.FileName(m.First, wal.SegmentSuffix)
	data, err := v.evidence.read(file, maxSegment)
	switch {
	case errors.Is(err, fs.ErrNotExist) && m.Count > 0:
		return broken(ErrSegmentMissing, m.First, file, "its %d records are signed for in segment %d", m.Count, m.Segment)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return open(ErrUnreadable, file, "%v", err)
	}
	leaves := v.evidence.leaves(m.First)
	frames, finding := compare(m.Manifest, file, data, leaves)
	if finding != nil {
		return finding
	}
	return v.records(m, file, frames)
}

// records checks what the frames say; their bytes are proven already.
func (v *verifier) records(m signed, file string, frames []wal.Frame) error {
	losses := wal.Losses{}
	for _, f := range frames {
		var r audit.Record
		if err := json.Unmarshal(f.Bytes, &r); err != nil {
			return broken(ErrUndecodable, f.Seq, file, "%v", err)
		}
		if f.Seq <= v.report.Last {
			return broken(ErrContradiction, f.Seq, file, "the seq before is %d", v.report.Last)
		}
		if f.Seq > v.report.Last+1 {
			v.holes = append(v.holes, hole{v.report.Last + 1, f.Seq - 1, file})
		}
		if err := losses.Add(f.Bytes); err != nil {
			return broken(ErrUndecodable, f.Seq, file, "%v", err)
		}
		if r.Kind == audit.KindGap && r.Gap != nil {
			v.report.Gaps = append(v.report.Gaps, *r.Gap)
			if r.Observer == audit.Host && r.Gap.Stage == "wal" { // a guest has no say in what the log lost
				v.excuses = append(v.excuses, *r.Gap)
			}
		}
		v.report.Last = f.Seq
	}
	first := v.report.Last + 1
	if len(frames) > 0 {
		first = frames[0].Seq
	}
	if first != m.First || v.report.Last != m.Last {
		return broken(ErrContradiction, 0, file, "it holds seqs %d to %d, the manifest says %d to %d",
			first, v.report.Last, m.First, m.Last)
	}
	if !maps.Equal(losses, m.Losses) {
		return broken(ErrContradiction, 0, file, "gap records declare losses %v, the manifest %v", losses, m.Losses)
	}
	v.count(m, losses)
	return nil
}

func (v *verifier) count(m signed, losses wal.Losses) {
	r := &v.report
	if m.Count > 0 {
		r.First = cmp.Or(r.First, m.First)
		r.Segments++
	}
	r.Records += m.Count
	r.HoldsTo = r.Last
	r.Head, r.Closing, r.Facts, r.KeyName = m.digest, m.Closing, m.Facts, m.key
	for stage, l := range losses {
		sum := r.Losses[stage]
		sum.Gaps += l.Gaps
		sum.Events += l.Events
		sum.Bytes += l.Bytes
		r.Losses[stage] = sum
	}
}

// end checks what only the whole can show: that holes are declared, and that
// there is an end and nothing behind it.
func (v *verifier) end(manifests []signed) error {
	for _, h := range v.holes {
		if !v.declared(h) {
			return broken(ErrHole, h.first, h.file, "seqs %d to %d", h.first, h.last)
		}
	}
	segments, err := v.evidence.list(wal.SegmentSuffix)
	if err != nil {
		return open(ErrUnreadable, "", "%v", err)
	}
	last := manifests[len(manifests)-1]
	known := map[uint64]bool{}
	for _, m := range manifests {
		known[m.First] = true
	}
	for _, first := range segments {
		file := wal.FileName(first, wal.SegmentSuffix)
		switch {
		case known[first]:
		case last.Closing != wal.Open:
			return broken(ErrAppended, first, file, "the record was closed with seq %d", last.Last)
		case first <= last.Last:
			return broken(ErrInserted, first, file, "no manifest signs for it")
		}
	}
	return v.closed(last)
}

func (v *verifier) closed(last signed) error {
	switch {
	case last.Closing != wal.Open:
		return nil
	case v.evidence.Live:
		return open(ErrLive, "", "it holds up to seq %d", v.report.HoldsTo)
	}
	return broken(ErrTailCut, 0, "", "it holds up to seq %d; what came after was removed, or the run died and was not recovered",
		v.report.HoldsTo)
}

func (v *verifier) declared(h hole) bool {
	return slices.ContainsFunc(v.excuses, func(g audit.Gap) bool { return g.First <= h.first && g.Last >= h.last })
}
