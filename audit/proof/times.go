package proof

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// clockSkew bounds the difference between the clocks of a host and its witnesses, including the time between
// the seal of a segment and its entry in the host's log.
const clockSkew = 5 * time.Minute

// backdated finds manifests that were logged after the checkpoint that the verifier kept, and state a sealing time
// before it, or have records with even older times; and erasures that state such a time.
func (l *logCheck) backdated(context.Context) error {
	p := l.v.report.Published
	if p.SinceTime.IsZero() {
		return nil
	}
	within := cmp.Or(l.v.trust.Within, DefaultWithin)
	for _, m := range l.v.manifests {
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
		return l.younger(m.file, m.index, says)
	}
	for _, seq := range l.v.erasures.seqs() {
		if e := l.v.erasures[seq]; e.logged && e.index >= p.Since && e.Time.Before(p.SinceTime.Add(-within)) {
			return l.younger(e.file, e.index, "it says that the record was erased at "+e.Time.Format(time.RFC3339))
		}
	}
	return nil
}

// younger returns the finding for an entry that the checkpoint which the verifier kept does not cover.
func (l *logCheck) younger(file string, index uint64, says string) error {
	p := l.v.report.Published
	return verdict.Broken(verdict.ErrBackdated, 0, file, "%s; at %s the log had %d entries and not this one, which is entry %d",
		says, p.SinceTime.Format(time.RFC3339), p.Since, index)
}

// DefaultWithin is the time after its stated sealing within which the log must have a manifest, as witnessed,
// unless the verifier requires another: a host may lose contact with its witnesses for a while.
const DefaultWithin = 24 * time.Hour

// dated is a checkpoint with a time that the verifier trusts.
type dated struct {
	size uint64
	at   time.Time
}

// timely checks that each manifest was logged soon after its stated sealing, by the checkpoints that were shown
// and by the last one.
func (l *logCheck) timely(ctx context.Context) error {
	shown, err := l.shownCheckpoints(ctx)
	if err != nil {
		return err
	}
	if len(shown) == 0 {
		return nil
	}
	slices.SortFunc(shown, func(a, b dated) int { return cmp.Compare(b.size, a.size) })
	order := make([]int, 0, len(l.v.manifests))
	for i, m := range l.v.manifests {
		if m.logged {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(l.v.manifests[j].index, l.v.manifests[i].index) })
	var first time.Time // of the checkpoints that cover the manifest and the later ones
	seen := map[int]time.Time{}
	for _, i := range order {
		for ; len(shown) > 0 && shown[0].size > l.v.manifests[i].index; shown = shown[1:] {
			if first.IsZero() || shown[0].at.Before(first) {
				first = shown[0].at
			}
		}
		if !first.IsZero() {
			seen[i] = first
		}
	}
	return l.late(seen)
}

// late checks the times at which manifests are known to have been logged.
func (l *logCheck) late(seen map[int]time.Time) error {
	p := l.v.report.Published
	within := cmp.Or(l.v.trust.Within, DefaultWithin)
	for i, m := range l.v.manifests {
		at, ok := seen[i]
		if !ok {
			continue
		}
		p.Witnessed = at
		delay := at.Sub(m.SealedAt)
		p.Delay = max(p.Delay, delay)
		if m.SealedAt.Before(at.Add(-within)) {
			return verdict.Broken(verdict.ErrLate, 0, m.file, "first witnessed %s after its stated time of sealing, at %s; at most %s is accepted",
				delay.Round(time.Second), at.Format(time.RFC3339), within)
		}
		if m.oldest != nil && m.oldest.Before(at.Add(-within)) {
			return verdict.Broken(verdict.ErrLate, 0, m.file, "first witnessed %s after a record in it says it was written, at %s; at most %s is accepted",
				at.Sub(*m.oldest).Round(time.Second), at.Format(time.RFC3339), within)
		}
	}
	return nil
}

// shownCheckpoints verifies the earlier checkpoints, and returns those with a time, including the last one.
func (l *logCheck) shownCheckpoints(ctx context.Context) ([]dated, error) {
	var shown []dated
	if n, err := note.Open(l.cp.note, cosigners{l.v.ring, l.v.trust.Witnesses}); err == nil {
		if at := l.witnesses.date(n, l.v.report.Published.Stamp); !at.IsZero() {
			shown = append(shown, dated{l.cp.Size, at})
		}
	}
	all, err := l.src.earlier(ctx, l.v.manifests, l.cp)
	if err != nil {
		return nil, err
	}
	for _, m := range l.v.manifests {
		e, ok := all[m.First]
		if !ok {
			continue
		}
		d, err := l.earlier(wal.FileName(m.First, witnessedSuffix), e, m)
		if err != nil {
			return nil, err
		}
		if !d.at.IsZero() {
			shown = append(shown, d)
		}
	}
	return shown, nil
}

// earlier verifies a checkpoint that shows that m was logged.
func (l *logCheck) earlier(file string, e earlier, m signed) (dated, error) {
	old, n, err := l.witnesses.open(file, e.checkpoint, l.v.ring)
	switch {
	case err != nil:
		return dated{}, err
	case !m.logged || old.Size <= m.index:
		return dated{}, verdict.Broken(verdict.ErrNotIncluded, 0, file, "a checkpoint of %d entries does not cover the manifest", old.Size)
	case old.Size > l.cp.Size:
		return dated{}, verdict.Broken(verdict.ErrRolledBack, 0, file, "it has %d entries, the checkpoint %d", old.Size, l.cp.Size)
	case old.Size == l.cp.Size && (old.Root != l.cp.Root || len(e.path) > 0), old.Size < l.cp.Size && !merkle.VerifyConsistency(old.Size, l.cp.Size, e.path, old.Root, l.cp.Root):
		return dated{}, verdict.Broken(verdict.ErrForked, 0, file, "a tree of %d entries does not continue that of %d", l.cp.Size, old.Size)
	}
	stamp, err := l.stamps.over(file+".tsr", e.stamp, e.checkpoint)
	return dated{old.Size, l.witnesses.date(n, stamp)}, err
}
