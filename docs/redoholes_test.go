package docs_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRedoHoles: all checkers report a hole in the sequence numbers exactly if no single gap record covers it.
func TestRedoHoles(t *testing.T) {
	t.Parallel()
	d := newDiffer(t)
	random := rand.New(rand.NewPCG(1, 1))
	path := filepath.Join(d.dir, "holes")
	held := 0
	for i := range 150 {
		segments, declared := holed(random)
		if err := os.WriteFile(path, d.write(segments), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ours(t, path, d.trust)
		if (got == 0) != declared {
			t.Errorf("%d: declared: %t, verify: %d, %v", i, declared, got, err)
		}
		d.others.agree(fmt.Sprint(i), got, err, append([]string{path}, d.arguments...)...)
		if got == 0 {
			held++
		}
	}
	if held < 20 || held > 130 {
		t.Errorf("%d of 150 hold", held)
	}
}

// holed returns a run of gap records with holes between their sequence numbers, and whether each hole is within one gap.
func holed(random *rand.Rand) (segments [][][]byte, declared bool) {
	type span struct{ first, last int }
	var holes, gaps []span
	var seqs []int
	for seq := 1; len(seqs) < 3+random.IntN(6); seq++ {
		if length := random.IntN(6) - 3; length > 0 {
			holes = append(holes, span{seq, seq + length - 1})
			seq += length
		}
		seqs = append(seqs, seq)
	}
	var all [][]byte
	for _, seq := range seqs {
		at := span{1 + random.IntN(9), 20}
		if n := len(holes); n > 0 && random.IntN(4) > 0 {
			at = holes[random.IntN(n)]
			at.first -= random.IntN(2) * random.IntN(2)
			at.last += random.IntN(3) * random.IntN(2) * random.IntN(2)
		}
		at.last -= random.IntN(2) * random.IntN(2) * random.IntN(2)
		observer, stage := "host", "wal"
		switch random.IntN(12) {
		case 0:
			observer = "guest"
		case 1:
			stage = "redact"
		default:
			gaps = append(gaps, at)
		}
		member := func(name string, n int) string {
			if n <= 0 {
				return "" // left out
			}
			return fmt.Sprintf(`"%s":%d,`, name, n)
		}
		all = append(all, fmt.Appendf(nil, `{"v":1,"run":"r-1","seq":%d,"time":"2026-01-02T03:04:05Z","observer":"%s","kind":"gap","gap":{"stage":"%s",%s%s"count":1,"cause":"x"}}`,
			seq, observer, stage, member("first", at.first), member("last", at.last)))
	}
	declared = !slices.ContainsFunc(holes, func(h span) bool {
		return !slices.ContainsFunc(gaps, func(g span) bool { return g.first <= h.first && h.last <= g.last })
	})
	cut := 1 + random.IntN(len(all)-1)
	return [][][]byte{all[:cut], all[cut:]}, declared
}
