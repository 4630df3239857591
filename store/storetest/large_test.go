package storetest

import (
	"testing"

	"github.com/custody-project/custody/store"
)

// TestLarge checks that the queries of the benchmarks find their rows.
func TestLarge(t *testing.T) {
	l := Large{Records: 1}
	o := &Oracle{}
	for _, i := range []int{0, 2, 3, 4, 5, 6, 7} {
		segs := l.Segments(i)
		for j := range segs { // the oracle is slow: the first records suffice
			if segs[j].Index < 3 {
				Ingest(t, o, segs[j:j+1])
			}
		}
	}
	for _, q := range []store.Search{{Hash: rareHash()}, {Hash: commonHash(), Tenant: "acme"}, {Host: rareHost}, {Host: commonHost, Tenant: "tiny"}, {Path: rarePath},
		{Path: commonPath}, {Secret: rareSecret}, {Secret: commonSecret}, {Text: rareText}, {Rule: "secret-in-output"}} {
		if rows := Collect(t, o.Search(t.Context(), q)); len(rows) == 0 {
			t.Errorf("%+v finds nothing", q)
		}
	}
}
