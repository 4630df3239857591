package proof

import (
	"context"
	"errors"
	"iter"
)

// Row is a record as a store has it. Erased is the leaf of one that was erased, whose Salt
// and Body are then empty; nil otherwise. store.Frame converts to it.
type Row struct {
	Seq    uint64
	Salt   [16]byte
	Body   []byte
	Erased *[32]byte
}

// Rebuild makes a run's directory anew from what a store has of it: its signed manifests
// in order and its rows in order of seq. dir must not exist. All that was not erased is
// byte for byte what the host wrote. Nothing is verified beyond what it takes to tell the
// segments apart. Statements of erasures are not in a store: put those in by hand.
func Rebuild(ctx context.Context, dir string, manifests [][]byte, rows iter.Seq2[Row, error]) error {
	return errors.New("rebuild: not yet")
}
