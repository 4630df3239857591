package pattern

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/redact"
)

func rules(t testing.TB) *Rules {
	t.Helper()
	rs, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// oracle is the slow search: each expression over the whole text, one match after the other. It omits rules that are
// applied only near a keyword.
func oracle(rs *Rules, text []byte) []match {
	s := newScanner(rs)
	s.begin(text, 0, true)
	for i, r := range rs.rules {
		if slices.ContainsFunc(rs.factors, func(p *part) bool { return p.rule == i && p.plain }) {
			continue
		}
		for at := 0; at < len(text); {
			m := r.regexp().FindSubmatchIndex(text[at:])
			if m == nil {
				break
			}
			s.weigh(r, m, at)
			at += max(1, m[1])
		}
	}
	return s.matches
}

// windowed is Find, without merging the matches of several rules.
func windowed(rs *Rules, text []byte) []match {
	s := rs.scanner()
	s.begin(text, 0, true)
	s.scan()
	s.finish()
	s.judge()
	rs.release(s)
	return slices.Clone(s.matches)
}

func withoutPlain(rs *Rules, list []match) []match {
	var out []match
	for _, m := range list {
		if m.hit.Rule != "sourcegraph-access-token" && m.hit.Rule != "facebook-access-token" && m.hit.Rule != "" {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b match) int {
		if c := strings.Compare(a.hit.Rule, b.hit.Rule); c != 0 {
			return c
		}
		return a.hit.Start - b.hit.Start
	})
	return out
}

func compare(t testing.TB, rs *Rules, text []byte) {
	t.Helper()
	want, got := withoutPlain(rs, oracle(rs, text)), withoutPlain(rs, windowed(rs, text))
	if strings.ContainsAny(string(text), "ſ\u212a") { // literals with these characters are not found
		want = slices.DeleteFunc(want, func(m match) bool { return !slices.Contains(got, m) })
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q:\n got %v\nwant %v", text, show(text, got), show(text, want))
	}
}

func show(text []byte, list []match) (out []string) {
	for _, m := range list {
		out = append(out, fmt.Sprintf("%s[%d:%d]%q", m.hit.Rule, m.hit.Start, m.hit.End, text[m.hit.Start:m.hit.End]))
	}
	return out
}

// soup is text made of the rules' strings, complete, truncated and changed.
func soup(rng *rand.Rand, rs *Rules) []byte {
	noise := []string{" ", "\n", "\"", "'", "=", ": ", "`;", "\\n", ",", "é", "ſ", "\u212a", "\xff", "\x80", "\r\n", "word ", "key", "token=", "curl ", " -u ", "-H ", "Authorization: ", "0123456789abcdef", "secret: "}
	var b []byte
	for range 1 + rng.IntN(6) {
		r := rs.rules[rng.IntN(len(rs.rules))]
		tree, err := syntax.Parse(r.source, syntax.Perl)
		if err != nil {
			panic(err)
		}
		p := []byte(sample(rng, tree))
		for range rng.IntN(3) {
			b = append(b, noise[rng.IntN(len(noise))]...)
		}
		switch rng.IntN(6) {
		case 0:
			p = p[rng.IntN(len(p)+1):]
		case 1:
			p = p[:rng.IntN(len(p)+1)]
		case 2:
			if len(p) > 0 {
				p[rng.IntN(len(p))] = byte(rng.Uint32())
			}
		}
		b = append(b, p...)
		for range rng.IntN(3) {
			b = append(b, noise[rng.IntN(len(noise))]...)
		}
	}
	return b
}

func TestFindAgainstOracle(t *testing.T) {
	rs := rules(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 120 {
		compare(t, rs, soup(rng, rs))
	}
}

// Texts that are made to be expensive have many overlapping matches.
func TestWorstAgainstOracle(t *testing.T) {
	rs := rules(t)
	for name, text := range worst() {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{200, 700} {
				for at := 0; at < 2*n; at += n {
					compare(t, rs, text[at:at+n])
				}
			}
		})
	}
}

func FuzzFind(f *testing.F) {
	rs := rules(f)
	f.Add(uint64(1), []byte("aws_key = "), uint8(0))
	f.Add(uint64(2), []byte("-----BEGIN PRIVATE KEY-----\n"), uint8(7))
	f.Fuzz(func(t *testing.T, seed uint64, in []byte, at uint8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		text := soup(rng, rs)
		i := min(int(at), len(text))
		compare(t, rs, slices.Concat(text[:i], in, text[i:]))
	})
}

// Each rule finds what its own expression describes.
func TestEveryRule(t *testing.T) {
	rs := rules(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for i, r := range rs.rules {
		head := "x = '' "
		for _, p := range rs.factors {
			if p.rule == i && p.plain {
				head = p.list.literals[0].text + " "
			}
		}
		tree, err := syntax.Parse(r.source, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for range 200 {
			text := []byte(head + sample(rng, tree) + "\n")
			for _, m := range windowed(rs, text) {
				if m.hit.Rule == r.id {
					found++
				}
			}
			compare(t, rs, text)
			if found > 3 {
				break
			}
		}
		if found == 0 {
			t.Errorf("%s: never found", r.id)
		}
	}
}

var _ redact.Follower = (*Rules)(nil)
