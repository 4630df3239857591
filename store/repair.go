package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/bits"
	"time"
)

// CheckSigned returns an error that wraps ErrMalformed if s breaks a rule of Check or its frames are not
// those that its manifest names: run, segment, seqs, number and root. It does not verify the
// signature: Repair compares the manifest with the one in the store.
func (s Segment) CheckSigned() error {
	if err := s.Check(); err != nil {
		return err
	}
	var m struct {
		Run     string `json:"run"`
		Segment uint64 `json:"segment"`
		First   uint64 `json:"first"`
		Last    uint64 `json:"last"`
		Count   uint64 `json:"count"`
		Root    string `json:"root"`
	}
	lines := bytes.SplitN(s.Manifest, []byte("\n"), 3) // see package proof
	if len(lines) < 2 || json.Unmarshal(lines[1], &m) != nil {
		return malformed("there is no manifest of the segment to repair")
	}
	root := RootOf(s.Frames)
	switch {
	case m.Run != s.Run || m.Segment != s.Index || m.Count != uint64(len(s.Frames)):
		return malformed("its manifest is of another segment")
	case m.Count > 0 && (m.First != s.First || m.Last != s.Last):
		return malformed("its manifest is of seq %d to %d", m.First, m.Last)
	case s.Root != root || m.Root != hex.EncodeToString(root[:]):
		return malformed("its records are not those that its manifest names")
	}
	return nil
}

// RootOf returns the root of the Merkle tree over the frames' leaves, as RFC 6962 section 2.1
// defines it; that of an empty tree is SHA-256 of no data.
func RootOf(frames []Frame) [32]byte {
	switch len(frames) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return frames[0].Leaf()
	}
	k := 1 << (bits.Len(uint(len(frames)-1)) - 1) // the largest power of two below the number
	left, right := RootOf(frames[:k]), RootOf(frames[k:])
	node := append(make([]byte, 0, 65), 1)
	return sha256.Sum256(append(append(node, left[:]...), right[:]...))
}

// Mended returns the row that Repair leaves for f, whose head is h, if the store has have with that time. As with
// Ingest, a record that is erased on either side does not change in the store:
//
//	store   segment   left
//	full    full      the segment's
//	full    erased    the store's, if it has that leaf, else the segment's
//	erased  any       erased, with the segment's leaf, and at the store's time unless the segment knows better
func Mended(run string, f Frame, h Head, have Frame, at time.Time) (Frame, Head, error) {
	leaf := f.Leaf()
	switch {
	case have.Erased != nil:
		gone := Head{Run: run, Seq: f.Seq, Time: h.Time}
		if (f.Erased != nil || *have.Erased == leaf) && usable("record", at.UTC()) == nil {
			gone.Time = at.UTC()
		}
		return Frame{Seq: f.Seq, Erased: &leaf}, gone, nil
	case f.Erased != nil && len(have.Body) > 0 && have.Leaf() == leaf:
		have.Seq = f.Seq
		h, err := HeadOf(run, have)
		return have, h, err
	}
	return f, h, nil
}
