package redact

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

func TestAddRefuses(t *testing.T) {
	const secret = "Tr0ub4dor"
	cases := []struct{ what, name, value, want string }{
		{"short", "v", "1234567", "7 bytes"},
		{"empty", "v", "", "0 bytes"},
		{"huge", "v", strings.Repeat("x", MaxValue+1), "at most"},
		{"blank", "v", " \n \t  a  ", "white space"},
		{"no name", "", secret, "name"},
		{"name breaks the marker", "a:b]", secret, "name"},
		{"name reveals the value", "my-" + secret, secret, "another name"},
		{"marker's word", "v", "REDACTED", "another name"},
		{"another's name", "v", "anthropic", "another name"},
	}
	for _, c := range cases {
		r := redactor(t, map[string]string{"anthropic": "sk-ant-0123456789"})
		err := r.Add(c.name, []byte(c.value))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.what, err, c.want)
		}
		if c.value == secret && c.name != "my-"+secret && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error reveals the value: %v", c.what, err)
		}
	}
}

func TestMarkers(t *testing.T) {
	a, b := New(testKey), New([]byte("another key of thirty-two bytes."))
	for _, r := range []*Redactor{a, b} {
		for _, name := range []string{"first", "first", "second"} { // the same value keeps its first name
			if err := r.Add(name, []byte("hunter2-hunter2")); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := a.String("x hunter2-hunter2hunter2-hunter2 y aHVudGVyMi1odW50ZXIy")
	m := a.rules.Load().values[0].marker
	if want := "x " + m + m + " y " + m; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !strings.HasPrefix(m, "[REDACTED:first:") || len(m) != len("[REDACTED:first:01234567]") {
		t.Errorf("marker %q", m)
	}
	if m == b.rules.Load().values[0].marker {
		t.Error("the tag does not depend on the key")
	}
	if a.Digest() == b.Digest() || a.Digest() == New(testKey).Digest() || len(a.Digest()) != 64 {
		t.Error("different rulesets have the same digest")
	}
}

func TestOverlaps(t *testing.T) {
	r := redactor(t, map[string]string{"whole": "token-abcdefgh-xyz", "inner": "abcdefgh", "next": "gh-xyz-0123"})
	cases := []struct{ in, want string }{
		{"<token-abcdefgh-xyz>", "<W>"},
		{"<abcdefgh>", "<I>"},
		{"<token-abcdefgh-xyz-0123>", "<WN>"},
		{"<abcdefgh-xyz-0123>", "<IN>"},
		{"token-abcdefgh-xyabcdefgh", "token-I-xyI"},
	}
	short := map[string]string{}
	for _, v := range r.rules.Load().values {
		short[v.marker] = strings.ToUpper(v.name[:1])
	}
	for _, c := range cases {
		got := r.String(c.in)
		for m, s := range short {
			got = strings.ReplaceAll(got, m, s)
		}
		if got != c.want {
			t.Errorf("%s became %s, want %s", c.in, got, c.want)
		}
	}
}

// Text that is truncated within a value has at most 3 symbols of it, in any encoding.
func TestCut(t *testing.T) {
	const value = "hunter2-hunter2/ok"
	r := redactor(t, map[string]string{"v": value})
	m := r.rules.Load().values[0].marker
	for form, w := range spelled(value) {
		if strings.Contains(form, "twice") || form == "powershell" || form == "base64 query" {
			continue
		}
		for n := minCut; n < len(w)-2; n++ { // the last two are padding, or a digit without bits of the value
			if len(fold([]byte(w[:n]))) < minCut {
				continue
			}
			if got := r.Cut("({" + w[:n]); !strings.HasPrefix(got, "({"+m) || strings.Trim(got[2+len(m):], "=%3Dd25\n ") != "" {
				t.Fatalf("%s %q cut: %q", form, w[:n], got)
			}
		}
	}
	for _, s := range []string{"", "hun", "a hunt b", "no secret here", "hunter3"} {
		if got := r.Cut(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	if got := r.Cut("hunter2-hunter2/ok and hunter2-"); got != m+" and "+m {
		t.Errorf("got %q", got)
	}
	s := r.Stream()
	if got := string(s.Write([]byte("key: hunter2-h"))) + string(s.FlushCut()); got != "key: "+m {
		t.Errorf("a cut stream: %q", got)
	}
}

func TestUntouchedTextIsNotCopied(t *testing.T) {
	r := redactor(t, map[string]string{"v": "hunter2-hunter2"})
	b := []byte("nothing to see here")
	if out := r.Bytes(b); &out[0] != &b[0] {
		t.Error("Bytes copied")
	}
	if n := testing.AllocsPerRun(10, func() { r.String("nothing to see here") }); n != 0 {
		t.Errorf("String allocates %v times", n)
	}
}

// The data that a stream holds back does not grow with the text, even if all of it is one match.
func TestStreamHoldsLittle(t *testing.T) {
	r := redactor(t, map[string]string{"v": "aaaaaaaaaaaa"})
	for _, in := range []string{strings.Repeat("a", 4096), strings.Repeat("a ", 2048), strings.Repeat("\n", 4096)} {
		s := r.Stream()
		for range 50 {
			s.Write([]byte(in))
		}
		if len(s.buf) > 4096 || len(s.spans) > 100 {
			t.Errorf("%.6q...: holds %d bytes and %d spans", in, len(s.buf), len(s.spans))
		}
	}
}

// With a pause at any position, text without a value is released immediately and completely, and of a value at most its
// first 3 symbols, in any encoding.
func TestPause(t *testing.T) {
	r := redactor(t, testValues)
	s := r.Stream()
	for _, in := range []string{"l", "s", "\r\n", "a.go  b.go\r\n", "user@box:~$ "} {
		if got := string(s.Write([]byte(in))) + string(s.Pause()); got != in {
			t.Errorf("%q shows %q", in, got)
		}
	}
	for name, value := range testValues {
		for form, w := range spelled(value) {
			text := "say: {" + w + "} done"
			want := r.String(text)
			for at := range len(text) + 1 {
				s := r.Stream()
				got := string(s.Write([]byte(text[:at]))) + string(s.Pause()) + string(s.Pause())
				got += string(s.Write([]byte(text[at:]))) + string(s.Flush())
				head, tail, _ := strings.Cut(want, "[")
				early, begins := strings.CutPrefix(got, head)
				early, ends := strings.CutSuffix(early, "["+tail)
				if !begins || !ends || len(fold([]byte(early))) >= minCut {
					t.Fatalf("%s as %s, pause at %d: %q", name, form, at, got)
				}
			}
		}
	}
}

// A stream masks values that are added while it runs, and text that it held for another value stays masked.
// TestFork: a fork of a stream continues with the same result as the stream, and neither changes the other.
func TestFork(t *testing.T) {
	r := New([]byte("key"))
	if err := r.Add("a", []byte("hunter2-correct-horse")); err != nil {
		t.Fatal(err)
	}
	text := []byte("one aHVudGVyMi1jb3JyZWN0LWhvcnNl two\n68756e746572322d636f72726563\n742d686f727365 hunter2-correct-horse three\n")
	for cut := range len(text) {
		s := r.Stream()
		begin := bytes.Clone(s.Write(text[:cut]))
		f := s.Fork()
		f.Pause()
		f.Write([]byte("something else"))
		f = s.Fork()
		if f.Holds() != s.Holds() {
			t.Errorf("cut at %d: held %v and %v", cut, f.Holds(), s.Holds())
		}
		want := append(bytes.Clone(s.Write(text[cut:])), s.Flush()...)
		got := append(bytes.Clone(f.Write(text[cut:])), f.Flush()...)
		if !bytes.Equal(got, want) {
			t.Errorf("cut at %d: the fork gives %q, the stream %q", cut, got, want)
		}
		if all := append(begin, want...); !bytes.Equal(all, r.Bytes(text)) {
			t.Errorf("cut at %d: %q, want %q", cut, all, r.Bytes(text))
		}
	}
}

func TestValueAddedToRunningStream(t *testing.T) {
	for at := range len("hunter2-hunter2 then correct-horse-battery") {
		r := redactor(t, map[string]string{"a": "hunter2-hunter2"})
		text := []byte("say hunter2-hunter2 then correct-horse-battery")
		at += len("say ")
		s := r.Stream()
		out := string(bytes.Clone(s.Write(text[:at])))
		if err := r.Add("b", []byte("correct-horse-battery")); err != nil {
			t.Fatal(err)
		}
		out += string(s.Write(text[at:]))
		out += string(s.Flush())
		if strings.Count(out, "[REDACTED:a:") != 1 || strings.Contains(out, "unter2") {
			t.Errorf("added at %d: %q", at, out)
		}
		if at <= len("say hunter2-hunter2 then ") && strings.Count(out, "[REDACTED:b:") != 1 {
			t.Errorf("added at %d: %q", at, out)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	r := redactor(t, map[string]string{"v": "hunter2-hunter2"})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s := r.Stream()
			for range 200 {
				out := string(s.Write([]byte("a hunter2-hunter2 b\n"))) + r.String("hunter2-hunter2")
				if strings.Contains(out, "hunter2-hunter2") {
					t.Error("leaked")
				}
			}
		})
	}
	for i := range 10 {
		if err := r.Add("w", []byte("another-value-"+string(rune('a'+i)))); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}
