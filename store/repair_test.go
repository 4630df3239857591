package store_test

import (
	"errors"
	"testing"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// TestRootOf compares with the tree of manifests.
func TestRootOf(t *testing.T) {
	frames := storetest.Frames("r-1", storetest.Events(70))
	var leaves []merkle.Hash
	for n := range frames {
		if got, want := store.RootOf(frames[:n]), merkle.Root(leaves); got != [32]byte(want) {
			t.Fatalf("root of %d frames is %x, want %x", n, got, want)
		}
		leaves = append(leaves, frames[n].Leaf())
	}
}

// TestCheckSigned: an erased frame counts like the record, because it has its leaf.
func TestCheckSigned(t *testing.T) {
	for _, seg := range storetest.Run("r-1", 40, 15) {
		for i := range seg.Frames {
			if i%3 == 0 {
				leaf := seg.Frames[i].Leaf()
				seg.Frames[i] = store.Frame{Seq: seg.Frames[i].Seq, Erased: &leaf}
			}
		}
		if err := seg.CheckSigned(); err != nil {
			t.Errorf("segment %d: %v", seg.Index, err)
		}
		seg.Root[3]++
		if err := seg.CheckSigned(); !errors.Is(err, store.ErrMalformed) {
			t.Errorf("segment %d with another root: %v", seg.Index, err)
		}
	}
}
