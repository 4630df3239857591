package redact

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// covered is the slow oracle: which bytes of t belong to a match, found by
// trying each pattern at each place of the folded text, symbol by symbol.
func covered(rules []rule, t []byte) []bool {
	var sym []byte // folded text
	var pos []int  // where its symbols stand
	for i, b := range t {
		if !isBlank(b) {
			sym, pos = append(sym, lower(b)), append(pos, i)
		}
	}
	near := func(i int) bool { return i == 0 || pos[i]-pos[i-1]-1 <= maxGap }
	out := make([]bool, len(t))
	for at := range sym {
		for _, r := range rules {
			if !bytes.HasPrefix(sym[at:], r.text) || !together(near, at+1, at+len(r.text)) {
				continue
			}
			from, to := at, at+len(r.text)
			for n := 0; n < r.left && from > 0 && near(from) && isDigit(sym[from-1]); n++ {
				from--
			}
			for n := 0; n < r.right && to < len(sym) && near(to) && isDigit(sym[to]); n++ {
				to++
			}
			for i := pos[from]; i <= pos[to-1]; i++ {
				out[i] = true
			}
		}
	}
	return out
}

func together(near func(int) bool, from, to int) bool {
	for i := from; i < to; i++ {
		if !near(i) {
			return false
		}
	}
	return true
}

// compare holds a scan of t against the oracle, and streams split by cuts against the scan.
func compare(t *testing.T, s *ruleset, in []byte, cuts []int) {
	t.Helper()
	_, spans := scan(s.auto, 0, in, 0, len(in), nil)
	got := make([]bool, len(in))
	last := 0
	for _, m := range spans {
		if m.start < last || m.start >= m.end {
			t.Fatalf("spans of %q are not disjoint and in order: %v", in, spans)
		}
		last = m.end
		for i := m.start; i < m.end; i++ {
			got[i] = true
		}
	}
	for i, want := range covered(s.rules, in) {
		if got[i] != want {
			t.Fatalf("%q: byte %d masked is %v, the oracle says %v (%v)", in, i, got[i], want, spans)
		}
	}
	whole := mask(s, in, false)
	if whole == nil {
		whole = in
	}
	if streamed := split(s, in, cuts); !bytes.Equal(streamed, whole) {
		t.Fatalf("%q split at %v: %q, in one %q", in, cuts, streamed, whole)
	}
}

// split runs in through a stream in pieces of the given lengths, repeated.
func split(s *ruleset, in []byte, cuts []int) []byte {
	r := New(testKey)
	r.rules.Store(s)
	st := r.Stream()
	var out []byte
	for i := 0; len(in) > 0; i++ {
		n := len(in)
		if len(cuts) > 0 {
			n = min(n, cuts[i%len(cuts)])
		}
		out = append(out, st.Write(in[:n])...)
		in = in[n:]
	}
	return append(out, st.Flush()...)
}

// dense makes a ruleset of short patterns over few letters, so that random text
// is full of matches that overlap, contain and extend each other.
func dense(rng *rand.Rand) *ruleset {
	s := &ruleset{}
	for id := range 1 + rng.IntN(4) {
		s.values = append(s.values, value{marker: fmt.Sprintf("<%d>", id)})
		for range 1 + rng.IntN(3) {
			p := pattern{letters(rng, 4+rng.IntN(6), "aab."), rng.IntN(3), rng.IntN(3)}
			if !isDigit(p.text[len(p.text)-1]) {
				p.right = 0 // as with all real patterns
			}
			s.rules = append(s.rules, rule{p, id})
		}
	}
	// A pattern that two rules share has the larger of each extent, for both.
	for i := range s.rules {
		for j := range s.rules {
			if a, b := &s.rules[i], &s.rules[j]; bytes.Equal(a.text, b.text) {
				a.left, a.right = max(a.left, b.left), max(a.right, b.right)
			}
		}
	}
	s.auto = compile(s.rules)
	return s
}

func letters(rng *rand.Rand, n int, from string) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = from[rng.IntN(len(from))]
	}
	return b
}

func gapped(rng *rand.Rand) []byte {
	in := letters(rng, rng.IntN(120), "aAabBb.. \n")
	if rng.IntN(4) == 0 { // a gap about as long as a match may contain
		at := rng.IntN(len(in) + 1)
		gap := bytes.Repeat([]byte{' '}, maxGap-2+rng.IntN(5))
		in = append(in[:at:at], append(gap, in[at:]...)...)
	}
	return in
}

func TestScanAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 4000 {
		s := dense(rng)
		for range 5 {
			compare(t, s, gapped(rng), []int{1 + rng.IntN(7), 1 + rng.IntN(40)})
		}
	}
}

// Real values with all their encodings, in text made of pieces of them.
func TestEncodingsAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	r := redactor(t, map[string]string{"a": "hunter2-hunter2", "b": "ter2-hunter9", "c": "aaaaaaaaaa"})
	s := r.rules.Load()
	for range 300 {
		var in []byte
		for range 1 + rng.IntN(5) {
			p := s.rules[rng.IntN(len(s.rules))].text
			from := rng.IntN(len(p))
			in = append(append(in, p[:from+rng.IntN(len(p)-from+1)]...), p[rng.IntN(len(p)):]...)
			in = append(in, p...)
		}
		compare(t, s, in, []int{1 + rng.IntN(9), 1 + rng.IntN(60)})
	}
}

func FuzzScan(f *testing.F) {
	f.Add(uint64(1), []byte("aab.aab baab.\naaa"), uint8(3))
	f.Add(uint64(2), []byte("ab"+string(bytes.Repeat([]byte{' '}, 17))+"ab"), uint8(1))
	f.Fuzz(func(t *testing.T, seed uint64, in []byte, cut uint8) {
		compare(t, dense(rand.New(rand.NewPCG(seed, 0))), in, []int{int(cut) + 1})
	})
}
