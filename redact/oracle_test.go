package redact

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// slowly is the oracle: it tries every form of every value at every position of the whole text, without filters, shelves
// or pieces.
func slowly(rules *ruleset, t []byte) []span {
	s := newScanner(rules)
	forms := []entry{markEntry}
	for _, v := range rules.values {
		forms = append(forms, v.forms()...)
	}
	for at := range t {
		if isFiller(t[at]) {
			continue
		}
		sym, joined := symbolsFrom(t[at:]), symbolsJoined(t, at)
		for _, e := range forms {
			s.slow(t, at, sym, e)
			if e.form.unpack().outer == rows {
				for _, sym := range joined {
					s.slow(t, at, sym, e)
				}
			}
		}
	}
	var list []span
	for _, m := range s.take(len(t)) {
		list = join(list, m)
	}
	return list
}

func (s *scanner) slow(t []byte, at int, sym []byte, e entry) {
	n := e.symbols()
	if len(sym) < n {
		return
	}
	key := uint64(0)
	for _, b := range sym[:n] {
		key = key<<8 | uint64(b)
	}
	if key != e.key {
		return
	}
	c, ok := s.rules.candidate(&e, s.passage(t), at)
	if !ok {
		return
	}
	if v := c.read(t); v == found || v == reading && c.settle() == found {
		s.add(c)
	}
}

// symbolsFrom returns the first symbols of t without a long gap.
func symbolsFrom(t []byte) (sym []byte) {
	gap := 0
	for _, b := range t {
		if !isFiller(b) {
			sym, gap = append(sym, lower(b)), 0
		} else if gap++; gap > maxGap {
			break
		}
		if len(sym) == windowSize {
			break
		}
	}
	return sym
}

var dumpRow = regexp.MustCompile(`^[0-9a-fA-F]{6,24}:?[ \t]+`)

// symbolsJoined returns the first symbols of t[at:] if the end of a dump's row and the beginning of the next are joined,
// with or without the text of the row.
func symbolsJoined(t []byte, at int) (list [][]byte) {
	line := bytes.LastIndexByte(t[:at], '\n') + 1
	row, next, _ := bytes.Cut(t[line:], []byte("\n"))
	next, _, _ = bytes.Cut(next, []byte("\n"))
	first, second := dumpRow.Find(row), dumpRow.Find(next)
	if first == nil || second == nil || len(row) > maxLine || at-line < len(first) || at-line >= len(row) {
		return nil
	}
	for _, before := range []string{"\n", "  ", " |", " >"} {
		bytes, _, _ := strings.Cut(string(row[len(first):]), before)
		if begin := at - line - len(first); begin < len(bytes) {
			mine, its := symbolsOf(bytes[begin:]), symbolsOf(string(next[len(second):]))
			if len(mine) < windowSize {
				list = append(list, append(mine, its...))
			}
		}
	}
	return list
}

func symbolsOf(s string) []byte {
	return []byte(strings.ToLower(strings.NewReplacer(" ", "", "\t", "", "\r", "", ".", "").Replace(s)))
}

// compare compares the scan of t with the oracle, and a stream split by cuts with the scan.
func compare(t *testing.T, r *Redactor, in []byte, cuts []int) {
	t.Helper()
	rules := r.rules.Load()
	fast, slow := spans(rules, in, false), slowly(rules, in)
	if !slices.Equal(fast, slow) {
		t.Fatalf("%q: found %v, the oracle finds %v", in, fast, slow)
	}
	whole := r.Bytes(in)
	if got := pieces(r, in, cuts); !bytes.Equal(got, whole) {
		t.Fatalf("%q split at %v: %q, in one piece %q", in, cuts, got, whole)
	}
}

// pieces passes in through a stream in pieces of the given lengths, repeated.
func pieces(r *Redactor, in []byte, cuts []int) []byte {
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

// encoded writes value in random encodings, at random alignments, possibly truncated.
func encoded(rng *rand.Rand, value string, whole bool) []byte {
	all := encoders()
	filler := "kqzjwv"[:rng.IntN(4)]
	s := all[rng.IntN(len(all))].do(filler + value + filler)
	if rng.IntN(3) > 0 {
		s = all[rng.IntN(len(all))].do(filler + s)
	}
	if !whole {
		from := rng.IntN(len(s) + 1)
		s = s[from : from+rng.IntN(len(s)-from+1)]
	}
	return []byte(s)
}

func TestAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	values := map[string]string{
		"a": "hunter2-hunter2", "b": "ter2-hunter9", "c": "aaaaaaaaaa", "d": "a b c d e", "g": "..x.y-z.w..", "e": " x\nyz'\"\\&%41+ ", "f": "\x00\xff\xfe0\x80\r\n1",
	}
	r := redactor(t, values)
	for range 60 {
		var in []byte
		for range 1 + rng.IntN(4) {
			v := r.rules.Load().values[rng.IntN(len(values))]
			in = append(in, encoded(rng, string(v.raw), rng.IntN(2) == 0)...)
			if rng.IntN(4) == 0 {
				in = append(in, bytes.Repeat([]byte{' '}, rng.IntN(maxGap+3))...)
			}
		}
		compare(t, r, in, []int{1 + rng.IntN(9), 1 + rng.IntN(60)})
	}
}

// Random text over few letters has many matches that overlap, contain and extend each other.
func TestOverlapsAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	random := func(n int, from string) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = from[rng.IntN(len(from))]
		}
		return string(b)
	}
	for range 10 {
		values := map[string]string{}
		for _, name := range []string{"x", "y", "z"}[:1+rng.IntN(3)] {
			values[name] = "ab" + random(6+rng.IntN(3), "aab.") + "ba"
		}
		r := redactor(t, values)
		for range 10 {
			compare(t, r, []byte(random(rng.IntN(150), "aAabBb.. \n")), []int{1 + rng.IntN(7), 1 + rng.IntN(40)})
		}
	}
}

// FuzzStream: the result does not depend on the split into pieces, the oracle agrees, and a second pass changes nothing.
func FuzzStream(f *testing.F) {
	f.Add("hunter2-hunter2", "p@ss \"w/rd'%", []byte("x hunter2-hunter2 y"), uint64(1))
	f.Add("00000000", "a\nb\nc\nd\n", []byte("30303030 3030303\n030303030"), uint64(2))
	f.Add("AAAAAAAAA", "AAAAAAAAAA", []byte("QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB"), uint64(3))
	f.Add("\xff\xfe\x00\x80\xff\xff\xff\xff", "пароль!!", []byte("%ff%FE%00%80%Ff%ff%fF%ff &#1087;"), uint64(4))
	f.Fuzz(func(t *testing.T, one, two string, in []byte, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := New(testKey)
		for _, v := range []string{one, two} {
			if len(v) > 200 || r.Add("v", []byte(v)) != nil {
				return
			}
		}
		for range 2 { // forms among the fuzzer's text
			in = append(in, encoded(rng, one, false)...)
			in = append(in, encoded(rng, two, true)...)
		}
		if len(in) > 2048 {
			return
		}
		compare(t, r, in, []int{1 + rng.IntN(5), 1 + rng.IntN(50), 1 + rng.IntN(200)})
		out := bytes.Clone(r.Bytes(in))
		if again := r.Bytes(out); !bytes.Equal(again, out) && !joins(r, out) {
			t.Fatalf("%q: once %q, twice %q", in, out, again)
		}
	})
}

// joins reports whether a marker's neighbourhood in out is a value that begins or ends like a marker.
func joins(r *Redactor, out []byte) bool {
	for _, m := range spans(r.rules.Load(), out, false) {
		if text := string(out[m.start:m.end]); text != m.value.marker && strings.ContainsAny(text, "[]") {
			return true
		}
	}
	return false
}
