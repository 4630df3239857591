package proof

import (
	"context"
	"slices"
	"time"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
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
		if t, err := cosign.CoSigV1Timestamp(s); err == nil {
			times = append(times, t.UTC())
		}
	}
	if len(times) == 0 {
		return time.Time{}, false
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[min(max(v.trust.Quorum, 1), len(times))-1], true
}

// backdated finds manifests that came into the log after the checkpoint that the verifier kept, and say
// that they were sealed before it.
func (v *verifier) backdated(context.Context, source, signedCheckpoint) error {
	p := v.report.Published
	if p.SinceTime.IsZero() {
		return nil
	}
	for _, m := range v.manifests {
		if m.logged && m.index >= p.Since && m.SealedAt.Before(p.SinceTime.Add(-clockSkew)) {
			return broken(ErrBackdated, 0, m.file, "it says that it was sealed at %s; at %s the log had %d entries and not this one, which is entry %d",
				m.SealedAt.Format(time.RFC3339), p.SinceTime.Format(time.RFC3339), p.Since, m.index)
		}
	}
	return nil
}
