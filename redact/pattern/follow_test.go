package pattern

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/redact"
)

// follow passes text to Follow in pieces of the given lengths, like a stream that buffers as little as possible, and
// returns the hits in the whole text and the maximum that was held back.
func follow(t testing.TB, rs *Rules, text []byte, cuts []int) (all []redact.Hit, held int) {
	t.Helper()
	kept, gone, from := []byte{}, 0, 0 // kept[0] is text[gone]
	for i := 0; ; i++ {
		n := min(cuts[i%len(cuts)], len(text)-gone-len(kept))
		kept = append(kept, text[gone+len(kept):][:n]...)
		end := gone+len(kept) == len(text)
		hits, open := rs.Follow(nil, kept, from, end)
		for _, h := range hits {
			if h.Start < from || h.End > open {
				t.Fatalf("%q: hit %v outside of [%d:%d]", kept, h, from, open)
			}
			all = append(all, redact.Hit{Start: gone + h.Start, End: gone + h.End, Rule: h.Rule})
		}
		if end {
			return all, held
		}
		held = max(held, len(kept)-open)
		drop := max(0, open-rs.Before())
		kept, gone, from = append([]byte{}, kept[drop:]...), gone+drop, open-drop
	}
}

func compareSplit(t testing.TB, rs *Rules, text []byte, cuts []int) {
	t.Helper()
	want := rs.Find(nil, text)
	got, _ := follow(t, rs, text, cuts)
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q cut at %v:\n got %v\nwant %v", text, cuts, got, want)
	}
}

func TestFollowAtAnySplit(t *testing.T) {
	rs := rules(t)
	rng := rand.New(rand.NewPCG(7, 8))
	for range 150 {
		text := soup(rng, rs)
		compareSplit(t, rs, text, []int{1})
		for range 20 {
			compareSplit(t, rs, text, []int{1 + rng.IntN(8), 1 + rng.IntN(200)})
		}
	}
}

// TestFollowLong: a text of many blocks has the hits that it has in pieces that are shorter than a block, wherever they begin.
func TestFollowLong(t *testing.T) {
	rs := rules(t)
	rng := rand.New(rand.NewPCG(9, 10))
	for range 4 {
		var text []byte
		for len(text) < 3*lanes*lane {
			text = append(append(text, soup(rng, rs)...), '\n')
		}
		compareSplit(t, rs, text, []int{lanes*lane - 1})
		compareSplit(t, rs, text, []int{1 + rng.IntN(lane), len(text)})
	}
	const key = "AKIAQYLPMN5HHHFPZAM2" // at each position around the beginnings of lanes and blocks
	for _, border := range []int{lane, 2 * lane, 3 * lane, lanes * lane} {
		for at := border - len(key) - 1; at <= border+1; at++ {
			text := []byte(strings.Repeat("word ", 2*lanes*lane/5))
			copy(text[at:], " "+key+" ")
			if hits := rs.Find(nil, text); len(hits) != 1 || hits[0].Start != at+1 {
				t.Errorf("a key at %d: hits %v", at+1, hits)
			}
		}
	}
}

func FuzzFollow(f *testing.F) {
	rs := rules(f)
	f.Add(uint64(1), []byte("aws_key = "), uint8(0), uint8(3), uint8(50))
	f.Add(uint64(2), []byte("curl -u a:"), uint8(7), uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, seed uint64, in []byte, at, a, b uint8) {
		text := soup(rand.New(rand.NewPCG(seed, 0)), rs)
		i := min(int(at), len(text))
		compareSplit(t, rs, bytes.Join([][]byte{text[:i], in, text[i:]}, nil), []int{1 + int(a), 1 + int(b)})
	})
}

// Text that a person waits for is not held back.
func TestFollowHoldsLittle(t *testing.T) {
	rs := rules(t)
	for _, text := range []string{"", "$ ", "user@host:~/src$ ", "done.\n", "the key is lost, and so is what it was for\n", "no token today, and none tomorrow\n", "100% [####] \r", "a key; no token\t\n\n\n\n", "token = x\n"} {
		_, open := rs.Follow(nil, []byte(text), 0, false)
		if held := text[open:]; held != "" {
			t.Errorf("%q: %q is held back", text, held)
		}
	}
	for text, want := range map[string]string{
		"a curl":                        "curl",
		"x = gh":                        "gh",
		"-----BEGIN RSA PRIVATE KEY---": "-----BEGIN RSA PRIVATE KEY---",
		"$ Password: ":                  "Password: ",
	} {
		if _, open := rs.Follow(nil, []byte(text), 0, false); text[open:] != want {
			t.Errorf("%q: %q is held back, not %q", text, text[open:], want)
		}
	}
}

// However long a possible match is, at most Reach bytes are held back.
func TestFollowIsBounded(t *testing.T) {
	rs := rules(t)
	for _, text := range []string{
		strings.Repeat("curl ", 40000),
		"-----BEGIN PRIVATE KEY-----" + strings.Repeat("A", 100000),
		"key = " + strings.Repeat("a1", 50000),
		"ops_eyJ" + strings.Repeat("b", 100000),
		strings.Repeat("key=", 40000),
		strings.Repeat("sourcegraph ", 10000),
	} {
		if _, held := follow(t, rs, []byte(text), []int{4096}); held > rs.Reach() {
			t.Errorf("%.30q: %d bytes are held back, Reach is %d", text, held, rs.Reach())
		}
	}
}

// The redactor's stream, with values and rules, returns the same as Bytes on the whole.
func TestStreamAtAnySplit(t *testing.T) {
	rs := rules(t)
	r := redact.New(bytes.Repeat([]byte("k"), 32), rs)
	if err := r.Add("v", []byte("a-value-that-is-known")); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(9, 10))
	for range 60 {
		text := slices.Concat(soup(rng, rs), []byte(" a-value-that-is-known "), soup(rng, rs))
		want := r.Bytes(text)
		for _, n := range []int{1, 1 + rng.IntN(9), 1 + rng.IntN(300)} {
			s := r.Stream()
			var got []byte
			for piece := range slices.Chunk(text, n) {
				got = append(got, s.Write(piece)...)
			}
			if got = append(got, s.Flush()...); !bytes.Equal(got, want) {
				t.Fatalf("%q in pieces of %d:\n got %q\nwant %q", text, n, got, want)
			}
		}
	}
}
