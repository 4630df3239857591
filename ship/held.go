package ship

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/store"
)

// Held is a segment in the store.
type Held struct {
	Index, First, Last uint64
	Manifest           [32]byte // SHA-256 of the signed manifest
	// Root and Count are those of the manifest. In a deep answer they are computed from the records in the store;
	// a segment without records then has the root of an empty tree.
	Root  [32]byte
	Count uint64
}

// Is reports whether h is seg, by its manifest.
func (h Held) Is(seg store.Segment) bool {
	return h.Index == seg.Index && h.Manifest == digest(seg.Manifest) && h.Root == seg.Root && h.Count == uint64(len(seg.Frames))
}

// bare removes the seqs, which have no meaning without records and are signed by the manifest otherwise.
func (h Held) bare() Held {
	h.First, h.Last = 0, 0
	return h
}

func digest(manifest []byte) [32]byte { return sha256.Sum256(manifest) }

// held reads from a store which segments of a run it has, from the manifest with that index on. There are none
// if the run is unknown or belongs to another tenant. It calls found for each part of the answer, and stops at its error.
func held(ctx context.Context, s Store, tenant, run string, from uint64, deep bool, found func(Held) error) error {
	chain, err := s.Manifests(ctx, tenant, run)
	if err != nil {
		return err
	}
	for len(chain) > 0 && chain[0].Index < from {
		chain = chain[1:]
	}
	if ok, err := owns(ctx, s, tenant, run); err != nil || !ok || len(chain) == 0 {
		return err
	}
	if deep {
		return heldRows(ctx, s, tenant, run, chain, found)
	}
	for _, m := range chain {
		if err := found(heldOf(m)); err != nil {
			return err
		}
	}
	return nil
}

func heldOf(m store.Manifest) Held {
	return Held{Index: m.Index, First: m.First, Last: m.Last, Manifest: digest(m.Bytes), Root: m.Root, Count: m.Count}
}

// owns reports whether the run's records, if any, belong to the tenant.
func owns(ctx context.Context, s Store, tenant, run string) (bool, error) {
	for row, err := range s.Records(ctx, store.Query{Tenant: tenant, Run: run, Limit: 1}) {
		return err == nil && row.Tenant == tenant, err
	}
	return true, nil
}

// heldRows computes the root of each segment in chain from its records, in one pass.
func heldRows(ctx context.Context, s Store, tenant, run string, chain []store.Manifest, found func(Held) error) error {
	var tree merkle.Tree
	var count uint64
	next := func() error {
		h := heldOf(chain[0])
		h.Root, h.Count = tree.Root(), count
		chain, tree, count = chain[1:], merkle.Tree{}, 0
		return found(h)
	}
	after := uint64(0)
	if chain[0].First > 0 {
		after = chain[0].First - 1
	}
	for row, err := range s.Records(ctx, store.Query{Tenant: tenant, Run: run, AfterSeq: after}) {
		if err != nil {
			return fmt.Errorf("read records of run %s: %w", run, err)
		}
		for len(chain) > 0 && (chain[0].Count == 0 || row.Seq > chain[0].Last) {
			if err := next(); err != nil {
				return err
			}
		}
		if len(chain) == 0 {
			break
		}
		if row.Seq >= chain[0].First {
			tree.Append(row.Frame().Leaf())
			count++
		}
	}
	for len(chain) > 0 {
		if err := next(); err != nil {
			return err
		}
	}
	return nil
}
