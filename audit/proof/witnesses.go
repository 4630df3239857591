package proof

import (
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// witnesses verifies checkpoints with the keys of the host and of the trusted witnesses.
type witnesses struct {
	host   string // the name of the host's keys
	ring   *ring
	list   []note.Verifier
	quorum int
}

func (w witnesses) has(k keyID) bool {
	return slices.ContainsFunc(w.list, func(v note.Verifier) bool { return idOf(v) == k })
}

// cosigners are the keys that may sign a checkpoint: the host's and the witnesses'.
type cosigners struct {
	host note.Verifiers
	list []note.Verifier
}

// Verifier implements note.Verifiers.
func (c cosigners) Verifier(name string, hash uint32) (note.Verifier, error) {
	for _, v := range c.list {
		if v.Name() == name && v.KeyHash() == hash {
			return v, nil
		}
	}
	return c.host.Verifier(name, hash)
}

// open checks that one of the host's keys signed a checkpoint. The returned note has the signatures of trusted
// witnesses.
func (w witnesses) open(file string, signed []byte, host note.Verifiers) (statement.Checkpoint, *note.Note, error) {
	n, err := statement.OpenNote(signed, cosigners{host, w.list})
	var unknown *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unknown):
		n = unknown.Note
	case errors.As(err, &invalid) && w.has(keyID{invalid.Name, invalid.Hash}):
		return statement.Checkpoint{}, nil, verdict.Broken(verdict.ErrCosignature, 0, file, "%s", invalid.Name)
	case err != nil:
		return statement.Checkpoint{}, nil, verdict.Broken(verdict.ErrCheckpoint, 0, file, "%v", err)
	}
	c, err := statement.ParseCheckpoint(n.Text)
	if err != nil {
		return c, nil, verdict.Broken(verdict.ErrCheckpoint, 0, file, "%v", err)
	}
	if c.Origin != w.host {
		return c, nil, verdict.Broken(verdict.ErrOtherLog, 0, file, "it is of %.200q, the run of %s", c.Origin, w.host)
	}
	own := func(s note.Signature) bool { return s.Name == w.host && !w.has(keyID{s.Name, s.Hash}) }
	if !slices.ContainsFunc(n.Sigs, own) {
		return c, nil, verdict.Broken(verdict.ErrCheckpoint, 0, file, "no key of %s that is trusted here signed it", w.host)
	}
	return c, n, nil
}

// counted returns the signatures of a checkpoint that count, one for each key, without the host's.
func (w witnesses) counted(n *note.Note) []note.Signature {
	return slices.DeleteFunc(slices.Clone(n.Sigs), func(s note.Signature) bool {
		return !w.has(keyID{s.Name, s.Hash}) || w.ring.knows(keyID{s.Name, s.Hash})
	})
}

// enough returns the names of the witnesses that count, and a verdict if they are too few.
func (w witnesses) enough(n *note.Note) (names []string, err error) {
	for _, s := range w.counted(n) {
		names = append(names, s.Name)
	}
	if len(names) >= w.quorum {
		return names, nil
	}
	var others []string
	for _, s := range n.UnverifiedSigs {
		others = append(others, s.Name)
	}
	if len(others) > 0 {
		return names, verdict.Broken(verdict.ErrUnknownWitness, 0, checkpointFile, "%d of the %d that are needed; unknown here: %.200s",
			len(names), w.quorum, strings.Join(others, ", "))
	}
	return names, verdict.Broken(verdict.ErrQuorum, 0, checkpointFile, "%d of the %d that are needed", len(names), w.quorum)
}

// cosignedAt returns the time by which the quorum had cosigned, or all that did if they are fewer, by the
// verifier's witnesses only. It returns false if none of them did.
func (w witnesses) cosignedAt(n *note.Note) (time.Time, bool) {
	var times []time.Time
	for _, s := range w.counted(n) {
		if t, err := cosignTime(s); err == nil {
			times = append(times, t)
		}
	}
	if len(times) == 0 {
		return time.Time{}, false
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[min(max(w.quorum, 1), len(times))-1], true
}

// date returns the earliest time at which a checkpoint is known to have existed: by the quorum of witnesses, or by a stamp.
func (w witnesses) date(n *note.Note, stamp time.Time) time.Time {
	at, ok := w.cosignedAt(n)
	switch {
	case !ok || len(w.counted(n)) < w.quorum:
		return stamp
	case !stamp.IsZero() && stamp.Before(at):
		return stamp
	}
	return at
}

// oldKeys are a ring and the retired keys of which it knows only the names.
type oldKeys struct{ *ring }

// Verifier implements note.Verifiers.
func (o oldKeys) Verifier(name string, hash uint32) (note.Verifier, error) {
	if v, ok := o.named[keyID{name, hash}]; ok {
		return v, nil
	}
	return o.ring.Verifier(name, hash)
}
