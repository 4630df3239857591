package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the corpus in testdata")

// blob is bytes in JSON: a string if they are UTF-8, else {"base64":"..."}.
type blob string

func (b blob) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(b)) {
		return json.Marshal(string(b))
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(b))})
}

func (b *blob) UnmarshalJSON(in []byte) error {
	var s string
	if json.Unmarshal(in, &s) == nil {
		*b = blob(s)
		return nil
	}
	var o struct {
		Base64 []byte `json:"base64"`
	}
	err := json.Unmarshal(in, &o)
	*b = blob(o.Base64)
	return err
}

// vector is a line of the corpus: want is the text after a Redactor with testKey that has value under the name "v".
type vector struct {
	Value    blob   `json:"value"`
	Encoding string `json:"encoding"`
	Before   [2]int `json:"before"` // bytes before the value, and before its encoding, within the next
	Text     blob   `json:"text"`
	Want     blob   `json:"want"`
}

// corpus returns the files of the corpus by name: each of five values in each encoding at each alignment, and one value
// in all encodings of all encodings.
func corpus(t *testing.T) map[string][]vector {
	values := []string{
		"hunter2-hunter2",
		"ghp_16C7e42F292c6912E7710c838347Ae178B4a",
		`p@ss/w0rd+"q'\&<x> $(y)%`,
		"pässwörd-密钥-🔑",
		"\x00\xff\xfe\x80key\x01\x02\r\n\x9c\xfb\xff\xbf",
	}
	files := map[string][]vector{}
	raw := encoders()[0]
	for _, value := range values {
		r := redactor(t, map[string]string{"v": value})
		for _, inner := range encoders() {
			for _, outer := range encoders() {
				one, two := inner.name == "raw", value == values[2] && inner.name != "raw" && outer.name != "raw"
				once := inner.once || outer.once
				switch {
				case !one && !two, !outer.writes(inner.do(value)), two && once:
				case one:
					for before := range alignments(outer) {
						if outer.dump() && before%5 > 0 {
							continue // TestDumps has all
						}
						files["single"] = append(files["single"], layout{raw, outer, 0, before}.vector(t, r, value))
					}
				case two: // the alignments take turns
					n := len(files["double"])
					l := layout{inner, outer, n % alignments(inner), n / 5 % alignments(outer)}
					files["double"] = append(files["double"], l.vector(t, r, value))
				}
			}
		}
	}
	return files
}

func alignments(e encoder) int {
	switch {
	case e.dump():
		return 16
	case strings.HasPrefix(e.name, "base32"):
		return 5
	case strings.HasPrefix(e.name, "base64"):
		return 3
	}
	return 1
}

func (l layout) vector(t *testing.T, r *Redactor, value string) vector {
	if utf8.ValidString(value) {
		l.check(t, r, value)
	}
	text := l.text(value)
	name := l.outer.name
	if l.inner.name != "raw" {
		name += " of " + l.inner.name
	}
	want := r.String(text)
	if n := strings.Count(want, "[REDACTED:v:"); n != 1 && !l.outer.once || n == 0 {
		t.Fatalf("%s: %q became %q", name, text, want)
	}
	return vector{blob(value), name, [2]int{l.before, l.more}, blob(text), blob(want)}
}

func (v vector) String() string { return fmt.Sprintf("%.9q as %s", v.Value, v.Encoding) }

func lines(t *testing.T, list []vector) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, v := range list {
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// TestCorpus generates the published corpus and compares. With -update it writes it.
func TestCorpus(t *testing.T) {
	for name, list := range corpus(t) {
		file := "testdata/" + name + ".jsonl"
		made := lines(t, list)
		if *update {
			if err := os.WriteFile(file, made, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		published, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(published, made) {
			t.Errorf("%s differs from the generated corpus: run the test with -update, and describe the change in docs/redaction.md", file)
		}
		t.Logf("%s: %d vectors, %d bytes", file, len(list), len(made))
	}
}

func published(t *testing.T, name string) (list []vector) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var v vector
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

// TestCorpusAtEverySplit: each vector in two pieces, split at each offset, and byte by byte.
func TestCorpusAtEverySplit(t *testing.T) {
	known := map[blob]*Redactor{}
	var wg sync.WaitGroup
	for _, name := range []string{"single", "double"} {
		for _, v := range published(t, name) {
			if known[v.Value] == nil {
				known[v.Value] = redactor(t, map[string]string{"v": string(v.Value)})
			}
		}
		for part := range slices.Chunk(published(t, name), 400) {
			wg.Go(func() {
				for _, v := range part {
					everySplit(t, known[v.Value], v)
				}
			})
		}
	}
	wg.Wait()
}

func everySplit(t *testing.T, r *Redactor, v vector) {
	text, want := []byte(v.Text), string(v.Want)
	if got := string(pieces(r, text, []int{1})); got != want {
		t.Errorf("%s byte by byte: %q, want %q", v, got, want)
		return
	}
	for at := range len(text) + 1 {
		s := r.Stream()
		out := append([]byte{}, s.Write(text[:at])...)
		out = append(out, s.Write(text[at:])...)
		if out = append(out, s.Flush()...); string(out) != want {
			t.Errorf("%s split at %d: %q, want %q", v, at, out, want)
			return
		}
	}
}

// TestRandomCanaries is the corpus with random values, among other values.
func TestRandomCanaries(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	letters := []string{"0123456789abcdef", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ abcXYZ059"}
	values := map[string]string{}
	for i := range 6 {
		b := make([]byte, 8+rng.IntN(60))
		for j := range b {
			from := letters[i%len(letters)]
			b[j] = from[rng.IntN(len(from))]
		}
		b[0], b[len(b)-1] = 'a'+byte(rng.IntN(26)), 'a'+byte(rng.IntN(26))
		values[fmt.Sprintf("c%d", i)] = string(b)
	}
	r := redactor(t, values)
	all := encoders()
	for name, value := range values {
		for range 300 {
			inner, outer := all[rng.IntN(len(all))], all[rng.IntN(len(all))]
			if inner.once || outer.once || !outer.writes(inner.do(value)) {
				continue
			}
			l := layout{inner, outer, rng.IntN(5), rng.IntN(5)}
			if alignments(inner) == 1 {
				l.before = 0
			}
			if alignments(outer) == 1 {
				l.more = 0
			}
			l.check(t, r, value)
			text := []byte(l.text(value))
			want := r.Bytes(text)
			if got := pieces(r, text, []int{1 + rng.IntN(20), 1 + rng.IntN(5), 1 + rng.IntN(70)}); !bytes.Equal(got, want) {
				t.Fatalf("%s, %s of %s: in pieces %q, in one piece %q", name, outer.name, inner.name, got, want)
			}
		}
	}
}
