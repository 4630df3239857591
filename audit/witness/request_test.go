package witness

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// FuzzRequest: formatting a parsed request returns the same bytes, and note.Open agrees about
// where the checkpoint begins.
func FuzzRequest(f *testing.F) {
	l := newTestLog(f, "example.com/log")
	l.add(f, "a", "b", "c", "d", "e")
	good := l.request(f, 3, 5)
	for _, seed := range []string{
		good, l.request(f, 0, 0), l.request(f, 5, 5), "", "old 0\n\n", "old 1\n\n\n", strings.Repeat("\n", 99),
		strings.Replace(good, "old", "OLD", 1), good + good, good[:len(good)-1], strings.ReplaceAll(good, "\n", "\r\n"),
		"old 0\n\n" + string(l.sign(f, "o\n1\n"+strings.Repeat("A", 43)+"=\next\n")),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseRequest(body)
		if err != nil {
			return
		}
		var again bytes.Buffer
		fmt.Fprintf(&again, "old %d\n", r.old)
		for _, h := range r.proof {
			again.WriteString(base64.StdEncoding.EncodeToString(h) + "\n")
		}
		again.WriteString("\n")
		again.Write(r.signed)
		if !bytes.Equal(again.Bytes(), body) {
			t.Errorf("%q was read as %q", body, again.Bytes())
		}
		if _, err := note.Open(r.signed, note.VerifierList()); err == nil {
			t.Errorf("an unverified note opens: %q", r.signed)
		}
		if !strings.HasPrefix(string(r.signed), fmt.Sprintf("%s\n%d\n", r.head.origin, r.head.size)) {
			t.Errorf("%q was parsed as a checkpoint of %q, %d", r.signed, r.head.origin, r.head.size)
		}
	})
}

// FuzzPolicy: no text crashes the parser, and a policy that requires no witness is refused unless its quorum is none.
func FuzzPolicy(f *testing.F) {
	f.Add("witness a PeterNeumann+c74f20a3+BHSbJRyMBTZQzhvF0ekLPBQZWGsDCYM6PbqGV/9tkJ2e http://x/\nquorum a\n")
	f.Add("quorum none\n")
	f.Add("group g 0 a\nquorum g\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePolicy([]byte(text))
		if err == nil && p.Satisfied([]byte("x\n")) && !strings.Contains(text, "none") {
			t.Errorf("%q is satisfied without a cosignature", text)
		}
	})
}

func TestParsePolicy(t *testing.T) {
	keys := make([]string, 3)
	for i := range keys {
		var err error
		if keys[i], err = Generate(t.TempDir(), fmt.Sprint("example.com/w", i)); err != nil {
			t.Fatal(err)
		}
	}
	renamed := "other+" + strings.SplitN(keys[0], "+", 2)[1]
	w := func(name string, key int, url string) string {
		return fmt.Sprintf("witness %s %s %s\n", name, keys[key], url)
	}
	three := w("a", 0, "https://a.example/") + w("b", 1, "https://b.example/x") + w("c", 2, "http://c.example:80")
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"2 of 3":           {three + "group g 2 a b c\nquorum g\n", true},
		"nested":           {three + "group g any a b\ngroup h all g c\nquorum h # why\n", true},
		"one":              {w("a", 0, "https://a.example") + "quorum a\n", true},
		"none":             {three + "quorum none\n", true},
		"no quorum":        {three, false},
		"two quorums":      {three + "quorum a\nquorum b\n", false},
		"key twice":        {w("a", 0, "https://a") + w("b", 0, "https://b") + "group g 2 a b\nquorum g\n", false},
		"key renamed":      {w("a", 0, "https://a") + "witness b " + renamed + " https://b\ngroup g 2 a b\nquorum g\n", false},
		"url twice":        {w("a", 0, "https://a/") + w("b", 1, "https://a") + "group g 2 a b\nquorum g\n", false},
		"child twice":      {three + "group g 2 a a b\nquorum g\n", false},
		"child in two":     {three + "group g any a b\ngroup h 2 g a\nquorum h\n", false},
		"threshold 0":      {three + "group g 0 a b\nquorum g\n", false},
		"threshold 00":     {three + "group g 00 a b\nquorum g\n", false},
		"too many":         {three + "group g 4 a b c\nquorum g\n", false},
		"unknown child":    {three + "group g 1 d\nquorum g\n", false},
		"unknown word":     {three + "quorom a\n", false},
		"not a URL":        {w("a", 0, "ftp://a/") + "quorum a\n", false},
		"URL with a query": {w("a", 0, "https://a/?x=1") + "quorum a\n", false},
		"not a key":        {"witness a example.com+1234 https://a\nquorum a\n", false},
		"long":             {strings.Repeat("# comment\n", maxPolicy/10+1) + three + "quorum a\n", false},
	} {
		if p, err := ParsePolicy([]byte(c.text)); (err == nil) != c.ok {
			t.Errorf("%s: %v %v", name, p, err)
		}
	}
}
