package store

import (
	"bytes"
	"encoding/json"
	"time"
)

// Heads returns the heads of the frames of a segment that passed Check.
//
// An erased frame has no time. It gets the time of the preceding frame
// in the segment, else of the next one that is not erased, else the time at which the
// manifest was sealed: close enough to be found, and not used for anything
// else. A segment that has none of these is malformed.
func (s Segment) Heads() ([]Head, error) {
	heads := make([]Head, len(s.Frames))
	var last time.Time
	early := 0 // erased frames at the beginning
	for i, f := range s.Frames {
		if f.Erased != nil {
			heads[i] = Head{Run: s.Run, Seq: f.Seq, Time: last}
			if last.IsZero() {
				early = i + 1
			}
			continue
		}
		h, err := HeadOf(s.Run, f)
		if err != nil {
			return nil, err
		}
		heads[i], last = h, h.Time
	}
	if early == 0 {
		return heads, nil
	}
	if early == len(heads) {
		sealed, err := sealedAt(s.Manifest)
		if err != nil {
			return nil, err
		}
		last = sealed
	} else {
		last = heads[early].Time
	}
	for i := range early {
		heads[i].Time = last
	}
	return heads, nil
}

// sealedAt parses the time in a manifest, in the format of package proof. It does not verify the signature.
func sealedAt(manifest []byte) (time.Time, error) {
	var m struct {
		SealedAt time.Time `json:"sealed_at"`
	}
	lines := bytes.SplitN(manifest, []byte("\n"), 3)
	if len(lines) < 2 || json.Unmarshal(lines[1], &m) != nil {
		return time.Time{}, malformed("all its records are erased, and no manifest has the time of its seal")
	}
	return m.SealedAt.UTC(), usable("manifest", m.SealedAt.UTC())
}
