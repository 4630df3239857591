package proof

import (
	"cmp"
	"context"
	"slices"
	"time"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// clockSkew is how far the clocks of a host and of its witnesses may be apart, with what passes between
// the seal of a segment and its entry in the host's log.
const clockSkew = 5 * time.Minute

// cosignedAt returns the time by which the quorum had cosigned, or all that did if they are fewer: the
// verifier's own witnesses only. It is false if none of them did.
func (v *verifier) cosignedAt(n *note.Note) (time.Time, bool) {
	w := witnesses{v.ring, v.trust.Witnesses}
	var times []time.Time
	for _, s := range n.Sigs {
		if !w.has(keyID{s.Name, s.Hash}) || v.ring.knows(keyID{s.Name, s.Hash}) {
			continue
		}
		if t, err := cosignTime(s); err == nil {
			times = append(times, t)
		}
	}
	if len(times) == 0 {
		return time.Time{}, false
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[min(max(v.trust.Quorum, 1), len(times))-1], true
}

// lastSecond is the last that RFC 3339 can write, in seconds since 1970: the end of the year 9999.
const lastSecond = 253402300799

// cosignTime returns the time that a witness's cosignature states, in UTC. Its unsigned 64 bits hold more than a
// time.Time: any time after lastSecond counts as lastSecond.
func cosignTime(s note.Signature) (time.Time, error) {
	t, err := cosign.CoSigV1Timestamp(s)
	return time.Unix(int64(min(uint64(t.Unix()), lastSecond)), 0).UTC(), err
}

// backdated finds manifests that came into the log after the checkpoint that the verifier kept, and state that they
// were sealed before it, or have records with times that are older still; and erasures that state such a time.
func (v *verifier) backdated(context.Context, source, signedCheckpoint) error {
	p := v.report.Published
	if p.SinceTime.IsZero() {
		return nil
	}
	within := cmp.Or(v.trust.Within, DefaultWithin)
	for _, m := range v.manifests {
		if !m.logged || m.index < p.Since {
			continue
		}
		says := ""
		switch {
		case m.SealedAt.Before(p.SinceTime.Add(-clockSkew)):
			says = "it says that it was sealed at " + m.SealedAt.Format(time.RFC3339)
		case m.oldest != nil && m.oldest.Before(p.SinceTime.Add(-within)):
			says = "it has a record that says it is of " + m.oldest.Format(time.RFC3339)
		default:
			continue
		}
		return v.younger(m.file, m.index, says)
	}
	for _, seq := range v.erasureSeqs() {
		if e := v.erasures[seq]; e.logged && e.index >= p.Since && e.Time.Before(p.SinceTime.Add(-within)) {
			return v.younger(e.file, e.index, "it says that the record was erased at "+e.Time.Format(time.RFC3339))
		}
	}
	return nil
}

// younger is the finding about an entry that is not under the checkpoint that the verifier kept.
func (v *verifier) younger(file string, index uint64, says string) error {
	p := v.report.Published
	return verdict.Broken(verdict.ErrBackdated, 0, file, "%s; at %s the log had %d entries and not this one, which is entry %d",
		says, p.SinceTime.Format(time.RFC3339), p.Since, index)
}

// DefaultWithin is the time after its stated sealing within which a manifest has to be in the log, as witnesses saw it,
// unless the verifier demands another time: a host can be without its witnesses for a while.
const DefaultWithin = 24 * time.Hour

// dated is a checkpoint with a time that the verifier believes.
type dated struct {
	size uint64
	at   time.Time
}

// timely checks that each manifest was in the log soon after its stated sealing: by the checkpoints that were shown,
// and by the last one.
func (v *verifier) timely(ctx context.Context, src source, c signedCheckpoint) error {
	shown, err := v.shownCheckpoints(ctx, src, c)
	if err != nil {
		return err
	}
	if len(shown) == 0 {
		return nil
	}
	slices.SortFunc(shown, func(a, b dated) int { return cmp.Compare(b.size, a.size) })
	order := make([]int, 0, len(v.manifests))
	for i, m := range v.manifests {
		if m.logged {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(v.manifests[j].index, v.manifests[i].index) })
	var first time.Time // of the checkpoints that cover the manifest and those behind it
	seen := map[int]time.Time{}
	for _, i := range order {
		for ; len(shown) > 0 && shown[0].size > v.manifests[i].index; shown = shown[1:] {
			if first.IsZero() || shown[0].at.Before(first) {
				first = shown[0].at
			}
		}
		if !first.IsZero() {
			seen[i] = first
		}
	}
	return v.late(seen)
}

// late judges the times at which manifests are known to have been in the log.
func (v *verifier) late(seen map[int]time.Time) error {
	p := v.report.Published
	within := cmp.Or(v.trust.Within, DefaultWithin)
	for i, m := range v.manifests {
		at, ok := seen[i]
		if !ok {
			continue
		}
		p.Witnessed = at
		delay := at.Sub(m.SealedAt)
		p.Delay = max(p.Delay, delay)
		if m.SealedAt.Before(at.Add(-within)) {
			return verdict.Broken(verdict.ErrLate, 0, m.file, "first witnessed %s after it says it was sealed, at %s; at most %s is accepted",
				delay.Round(time.Second), at.Format(time.RFC3339), within)
		}
		if m.oldest != nil && m.oldest.Before(at.Add(-within)) {
			return verdict.Broken(verdict.ErrLate, 0, m.file, "first witnessed %s after a record in it says it was written, at %s; at most %s is accepted",
				at.Sub(*m.oldest).Round(time.Second), at.Format(time.RFC3339), within)
		}
	}
	return nil
}

// shownCheckpoints checks the earlier checkpoints, and returns those that have a time, the last one among them.
func (v *verifier) shownCheckpoints(ctx context.Context, src source, c signedCheckpoint) ([]dated, error) {
	var shown []dated
	if n, err := note.Open(c.note, witnesses{v.ring, v.trust.Witnesses}); err == nil {
		if at := v.date(n, v.report.Published.Stamp); !at.IsZero() {
			shown = append(shown, dated{c.Size, at})
		}
	}
	all, err := src.earlier(ctx, v.manifests, c)
	if err != nil {
		return nil, err
	}
	for _, m := range v.manifests {
		e, ok := all[m.First]
		if !ok {
			continue
		}
		d, err := v.earlier(wal.FileName(m.First, witnessedSuffix), e, m, c)
		if err != nil {
			return nil, err
		}
		if !d.at.IsZero() {
			shown = append(shown, d)
		}
	}
	return shown, nil
}

// earlier checks a checkpoint that is to show that m was in the log.
func (v *verifier) earlier(file string, e earlier, m signed, c signedCheckpoint) (dated, error) {
	old, n, err := v.openCheckpoint(file, e.checkpoint, v.ring)
	switch {
	case err != nil:
		return dated{}, err
	case !m.logged || old.Size <= m.index:
		return dated{}, verdict.Broken(verdict.ErrNotIncluded, 0, file, "a checkpoint of %d entries does not cover the manifest", old.Size)
	case old.Size > c.Size:
		return dated{}, verdict.Broken(verdict.ErrRolledBack, 0, file, "it has %d entries, the checkpoint %d", old.Size, c.Size)
	case old.Size == c.Size && (old.Root != c.Root || len(e.path) > 0), old.Size < c.Size && !merkle.VerifyConsistency(old.Size, c.Size, e.path, old.Root, c.Root):
		return dated{}, verdict.Broken(verdict.ErrForked, 0, file, "a tree of %d entries does not continue that of %d", c.Size, old.Size)
	}
	stamp, err := v.stampOver(file+".tsr", e.stamp, e.checkpoint)
	return dated{old.Size, v.date(n, stamp)}, err
}

// date is the earliest time at which a checkpoint is known to have been: by the quorum of witnesses, or by a stamp.
func (v *verifier) date(n *note.Note, stamp time.Time) time.Time {
	w := witnesses{v.ring, v.trust.Witnesses}
	count := 0
	for _, s := range n.Sigs {
		if w.has(keyID{s.Name, s.Hash}) && !v.ring.knows(keyID{s.Name, s.Hash}) {
			count++
		}
	}
	at, ok := v.cosignedAt(n)
	switch {
	case !ok || count < v.trust.Quorum:
		return stamp
	case !stamp.IsZero() && stamp.Before(at):
		return stamp
	}
	return at
}
