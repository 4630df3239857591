package proof

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/schema"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
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
	Head    merkle.Hash
	Closing wal.Closing
	// Sealed is the sealing time in the last manifest. Pause is the longest time between those of two manifests in a row,
	// and Paused is the seq at which it began: the record of an old run that was given another end has one.
	Sealed  time.Time
	Pause   time.Duration
	Paused  uint64
	Facts   statement.Facts
	Gaps    []audit.Gap // declared losses in order
	Losses  wal.Losses  // and their sums by stage
	KeyName string      // of the key that signed
	Copies  []Copied    // into and out of the workspace, in order
	// Published is what the host's log says; nil if it was not asked.
	Published *Published
	Erasures  []statement.Erasure  // of records that are gone, in order of seq
	Asked     []statement.Erasure  // of records that are still there
	Hosts     []statement.Host     // whose keys a trusted root of a fleet states
	Rotations []statement.Rotation // that lead from a key that is trusted to another
	// Withheld is how many of Records a bundle does not show, by its exporter's choice, and Selected the statement of
	// that; nil if all are shown but those that were erased.
	Withheld uint64
	Selected *statement.Selected
	Attached *statement.Attachments // files that are no part of the record; nil if there are none
	Unknown  []string               // names of fields that this version does not know, at most 16
}

// Shown is how many records are there to be read.
func (r Report) Shown() uint64 { return r.Records - r.Withheld - uint64(len(r.Erasures)) }

// Published is what Verify established about the host's log.
type Published struct {
	statement.Checkpoint
	Witnesses []string // names of those whose cosignatures count
	// Covered is how many records stand under the checkpoint, and Tail how many are younger.
	Covered, Tail uint64
	Since         uint64 // size of the earlier checkpoint that the log goes on from, 0 if none was asked for
	// Witnessed is when the run's last manifest is known to have been in the log: by the quorum of witnesses, or a
	// stamp. Delay is the longest time from the seal of a manifest to such a moment. Zero without a trusted source of
	// time.
	Witnessed time.Time
	Delay     time.Duration
	SinceTime time.Time // by when witnesses had cosigned that one; zero if none that is trusted did
	Stamp     time.Time // of the checkpoint by an authority; zero if there is none or none was asked for
	Authority string    // the subject of the stamping authority's certificate
}

// Verify checks evidence against the keys, witnesses and time in trust: every signature, the chain of manifests, every
// record against its leaf and root, its form, the seqs, the gaps, what was erased, and the host's log on all of it. A
// nil error means that it holds from the first record to the closing manifest. Any error is a *Verdict, or ctx's.
// Findings that leave the question open are returned only if there is no other.
func Verify(ctx context.Context, e *Evidence, t Trust) (Report, error) {
	v := newVerifier(e, t)
	if e.bundle {
		v.whole = hashAll(ctx, e.raw, e.trailer)
		defer v.whole.stop()
	}
	for _, step := range []func(context.Context) error{
		v.keys, v.chain, v.stated, v.segments, v.end, v.attached, v.published, v.trailed,
	} {
		if err := step(ctx); err != nil {
			return v.report, err
		}
	}
	if v.open != nil {
		return v.report, v.open
	}
	return v.report, nil
}

type verifier struct {
	evidence *Evidence
	trust    Trust
	ring     *ring
	report   Report
	open     *verdict.Verdict // the first thing that leaves the question open
	whole    *hashing         // of a bundle

	host      string // name of the key that signed
	manifests []signed
	rotations []signedFile
	stating   int // statements about hosts
	erasures  map[uint64]*erasure
	withheld  statement.Withheld
	holes     []hole
	copies    copies
	excuses   []audit.Gap // what the host's log declared as lost
	tail      string      // the first manifest that is not under the checkpoint
	strange   bool        // a newer version wrote a record: it may declare holes, or list files
}

type hole struct {
	first, last uint64
	file        string
}

func newVerifier(e *Evidence, t Trust) *verifier {
	if t.Keys == nil {
		t.Keys = note.VerifierList()
	}
	return &verifier{
		evidence: e, trust: t,
		ring:     newRing(t.Keys),
		report:   Report{Losses: wal.Losses{}},
		erasures: map[uint64]*erasure{},
		withheld: statement.NewWithheld(),
	}
}

func (v *verifier) doubt(d *verdict.Verdict) {
	if v.open == nil {
		v.open = d
	}
}

// keys takes up the keys that fleets' roots state, and follows the rotations from all that are trusted.
func (v *verifier) keys(context.Context) (err error) {
	hosts, err := v.evidence.hosts()
	if err != nil {
		return err
	}
	v.stating = len(hosts)
	if v.report.Hosts, err = v.ring.attest(v.trust.Fleets, hosts); err != nil {
		return err
	}
	if v.rotations, err = v.evidence.rotations(); err != nil {
		return err
	}
	v.report.Rotations, err = v.ring.link(v.rotations)
	return err
}

// chain reads the manifests.
func (v *verifier) chain(context.Context) (err error) {
	if v.manifests, err = v.readManifests(); err != nil || len(v.manifests) == 0 {
		return err
	}
	v.host = v.manifests[0].key.name
	if err := v.hostKey(); err != nil {
		return err
	}
	for _, m := range v.manifests {
		if err := v.early(m); err != nil {
			return err
		}
	}
	return v.selection()
}

// hostKey checks that the key which a bundle names is one of those behind it: it proves
// nothing, but a reader may look at it.
func (v *verifier) hostKey() error {
	if !v.evidence.bundle {
		return nil
	}
	key, err := statement.ParseVerifier(v.evidence.HostKey)
	if err != nil {
		return verdict.Broken(verdict.ErrHostKey, 0, hostKeyFile, "%v", err)
	}
	if key.Name() != v.host {
		return verdict.Broken(verdict.ErrHostKey, 0, hostKeyFile, "it is that of %.80s, and %.80s signed the run", key.Name(), v.host)
	}
	if !v.ring.knows(idOf(key)) {
		return verdict.Broken(verdict.ErrHostKey, 0, hostKeyFile, "%.80s is not trusted, and no rotation leads there", v.evidence.HostKey)
	}
	if len(v.manifests) > 0 && idOf(key) != v.manifests[0].key {
		return verdict.Broken(verdict.ErrHostKey, 0, hostKeyFile, "%.80s did not sign %s", v.evidence.HostKey, v.manifests[0].file)
	}
	return nil
}

// early checks that a manifest states no sealing time before the rotation that leads to the key which signed it: the key
// that the host had then is gone, and cannot sign another history of that time.
func (v *verifier) early(m signed) error {
	since, ok := v.ring.since[m.key]
	if !ok || !m.SealedAt.Before(since.Add(-rotationGrace)) {
		return nil
	}
	return verdict.Broken(verdict.ErrEarly, 0, m.file, "it says that it was sealed at %s, the host has that key since %s",
		m.SealedAt.Format(time.RFC3339), since.Format(time.RFC3339))
}

// retired checks that the run did not begin after a key that signed for it was retired.
func (v *verifier) retired(began time.Time) error {
	for _, m := range v.manifests {
		r, ok := v.ring.next[m.key]
		if ok && began.After(r.Time.Add(rotationGrace)) {
			return verdict.Broken(verdict.ErrRetired, 0, m.file, "%s was retired at %s, the run began at %s",
				r.Old, r.Time.Format(time.RFC3339), began.Format(time.RFC3339))
		}
	}
	return nil
}

// take puts what a segment was found to hold into the report.
func (v *verifier) take(m signed, p part) error {
	r := &v.report
	if p.count > 0 && p.first <= r.Last {
		return verdict.Broken(verdict.ErrContradiction, p.first, p.file, "the seq before is %d", r.Last)
	}
	if p.count > 0 && p.first > r.Last+1 {
		v.holes = append(v.holes, hole{r.Last + 1, p.first - 1, p.file})
	}
	first, last := r.Last+1, r.Last
	if p.count > 0 {
		first, last = p.first, p.last
	}
	if first != m.First || last != m.Last {
		return verdict.Broken(verdict.ErrContradiction, 0, p.file, "it holds seqs %d to %d, the manifest says %d to %d", first, last, m.First, m.Last)
	}
	if p.strange == nil && !maps.Equal(p.losses, m.Losses) {
		return verdict.Broken(verdict.ErrContradiction, 0, p.file, "gap records declare losses %v, the manifest %v", p.losses, m.Losses)
	}
	if m.Segment == 0 {
		if err := v.retired(p.began); err != nil {
			return err
		}
	}
	v.holes = append(v.holes, p.holes...)
	for _, g := range p.gaps {
		r.Gaps = append(r.Gaps, g.Gap)
		if g.excuse {
			v.excuses = append(v.excuses, g.Gap)
		}
	}
	for _, c := range p.copies {
		v.copies.take(c)
	}
	if p.strange != nil {
		v.strange = true
		v.doubt(p.strange)
	}
	v.count(m, last, p.losses)
	if err := v.kept(p); err != nil {
		return err
	}
	return v.gone(p)
}

func (v *verifier) count(m signed, last uint64, losses wal.Losses) {
	r := &v.report
	if m.Count > 0 {
		r.First = cmp.Or(r.First, m.First)
		r.Segments++
	}
	r.Records += m.Count
	if pause := m.SealedAt.Sub(r.Sealed); m.Segment > 0 && pause > r.Pause {
		r.Pause, r.Paused = pause, r.Last
	}
	r.Sealed = m.SealedAt
	r.Last, r.HoldsTo = last, last
	r.Head, r.Closing, r.Facts, r.KeyName = m.digest, m.Closing, m.Facts, m.key.name
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
func (v *verifier) end(context.Context) error {
	if len(v.manifests) == 0 {
		return nil
	}
	if h, ok := undeclared(v.holes, v.excuses); ok && !v.strange {
		return verdict.Broken(verdict.ErrHole, h.first, h.file, "seqs %d to %d", h.first, h.last)
	}
	if err := v.surplusSegments(); err != nil {
		return err
	}
	if err := v.closed(v.manifests[len(v.manifests)-1]); err != nil {
		return err
	}
	if err := v.selected(); err != nil {
		return err
	}
	if err := v.idleErasures(); err != nil {
		return err
	}
	if err := v.strays(); err != nil {
		return err
	}
	return v.copied()
}

// surplusSegments finds segments that no manifest signs for.
func (v *verifier) surplusSegments() error {
	segments, err := v.evidence.list(wal.SegmentSuffix)
	if err != nil {
		return verdict.Open(verdict.ErrUnreadable, "", "%v", err)
	}
	last := v.manifests[len(v.manifests)-1]
	known := v.firsts()
	for _, first := range segments {
		file := wal.FileName(first, wal.SegmentSuffix)
		switch {
		case known[first]:
		case last.Closing != wal.Open:
			return verdict.Broken(verdict.ErrAppended, first, file, "the record was closed with seq %d", last.Last)
		case first <= last.Last:
			return verdict.Broken(verdict.ErrInserted, first, file, "no manifest signs for it")
		}
	}
	return nil
}

func (v *verifier) firsts() map[uint64]bool {
	firsts := map[uint64]bool{}
	for _, m := range v.manifests {
		firsts[m.First] = true
	}
	return firsts
}

func (v *verifier) closed(last signed) error {
	switch {
	case last.Closing != wal.Open:
		return nil
	case v.evidence.Live:
		v.doubt(verdict.Open(verdict.ErrLive, "", "it holds up to seq %d", v.report.HoldsTo))
		return nil
	}
	return verdict.Broken(verdict.ErrTailCut, 0, "", "it holds up to seq %d; what came after was removed, or the run died and was not recovered",
		v.report.HoldsTo)
}

// undeclared returns the first hole, of holes in the order of their seqs, that no gap covers as a whole. It sorts the gaps.
func undeclared(holes []hole, gaps []audit.Gap) (h hole, ok bool) {
	slices.SortFunc(gaps, func(a, b audit.Gap) int { return cmp.Compare(a.First, b.First) })
	var last uint64 // that a gap covers which begins no later than the hole
	for _, h := range holes {
		for ; len(gaps) > 0 && gaps[0].First <= h.first; gaps = gaps[1:] {
			last = max(last, gaps[0].Last)
		}
		if last < h.last {
			return h, true
		}
	}
	return hole{}, false
}

// strays finds files in a bundle that belong to no manifest and no statement. A run's
// directory may hold what a process that died left behind.
func (v *verifier) strays() error {
	if !v.evidence.bundle {
		return nil
	}
	firsts, rotations := v.firsts(), map[uint64]bool{}
	for i := range v.rotations {
		rotations[uint64(i+1)] = true
	}
	if twice := repeated(v.rotations); twice != "" {
		return verdict.Broken(verdict.ErrStray, 0, twice, "it comes twice")
	}
	hosts := map[uint64]bool{}
	for i := range v.stating {
		hosts[uint64(i+1)] = true
	}
	stated := map[uint64]bool{}
	for seq := range v.erasures {
		stated[seq] = true
	}
	for suffix, known := range map[string]map[uint64]bool{
		wal.LeavesSuffix: firsts, proofSuffix: firsts, erasureProofSuffix: stated, rotationProofSuffix: rotations, statement.RotationSuffix: rotations, statement.HostSuffix: hosts,
		witnessedSuffix: firsts, witnessedStampSuffix: v.witnessedFiles(),
	} {
		numbers, err := v.evidence.list(suffix)
		if err != nil {
			return verdict.Open(verdict.ErrUnreadable, "", "%v", err)
		}
		for _, n := range numbers {
			if !known[n] {
				return verdict.Broken(verdict.ErrStray, 0, wal.FileName(n, suffix), "")
			}
		}
	}
	return nil
}

// witnessedFiles are those that a stamp may stand beside.
func (v *verifier) witnessedFiles() map[uint64]bool {
	known := map[uint64]bool{}
	numbers, _ := v.evidence.list(witnessedSuffix) // strays reads them too, and reports what is wrong
	for _, n := range numbers {
		known[n] = true
	}
	return known
}

// unknownNames puts together what several scanners did not know.
func unknownNames(all []string, more map[string]struct{}) []string {
	for name := range more {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.SortFunc(all, strings.Compare)
	return all[:min(len(all), schema.MaxUnknown)]
}
