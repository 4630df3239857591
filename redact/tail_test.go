package redact

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// words finds the matches of an expression in a line.
type words struct{ *regexp.Regexp }

func (w words) Find(dst []Hit, text []byte) []Hit {
	if bytes.Contains(text, []byte("boom")) {
		panic("text with boom in it")
	}
	for _, at := range w.FindAllIndex(text, -1) {
		dst = append(dst, Hit{at[0], at[1], "word"})
	}
	return dst
}
func (w words) Reach() int     { return 200 }
func (w words) Digest() string { return w.String() }

func detecting(t *testing.T) *Redactor {
	r := New(testKey, words{regexp.MustCompile(`tok=[^ \n]{8,}`)})
	if err := r.Add("v", []byte("hunter2-hunter2")); err != nil {
		t.Fatal(err)
	}
	return r
}

// The findings of a detector are masked beside values, with the tag of their bytes, and markers are kept, at any split.
func TestDetector(t *testing.T) {
	r := detecting(t)
	m := "[REDACTED:v:" + r.Tag([]byte("hunter2-hunter2")) + "]"
	hit := func(s string) string { return "[REDACTED:word:" + r.Tag([]byte(s)) + "]" }
	cases := []struct{ in, want string }{
		{"nothing here\n", "nothing here\n"},
		{"a tok=12345678 b\n", "a " + hit("tok=12345678") + " b\n"},
		{"a tok=12345678", "a " + hit("tok=12345678")},
		{"hunter2-hunter2 tok=abcdefghij\nx\ntok=abcdefghij\n", m + " " + hit("tok=abcdefghij") + "\nx\n" + hit("tok=abcdefghij") + "\n"},
		{"tok=hunter2-hunter2\n", "tok=" + m + "\n"},
		{"tok=hunter2-hunter2xyz123456\n", "tok=" + m + hit("xyz123456") + "\n"},
		{"tok=" + hit("tok=12345678") + "\n", "tok=" + hit("tok=12345678") + "\n"},
		{strings.Repeat("long line ", 100) + "tok=12345678\n", strings.Repeat("long line ", 100) + hit("tok=12345678") + "\n"},
	}
	for _, c := range cases {
		if got := r.String(c.in); got != c.want {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
		e := &everything{S: c.in, B: []byte(c.in)}
		if _, err := r.Seal(e); err != nil || e.S != c.want || string(e.B) != c.want {
			t.Errorf("%q sealed: %q, %q, %v", c.in, e.S, e.B, err)
		}
		if len(c.in) > 500 {
			continue // a line beyond Reach is not held back, and may be split anywhere
		}
		for at := range len(c.in) + 1 {
			s := r.Stream()
			out := string(s.Write([]byte(c.in[:at])))
			out += string(s.Write([]byte(c.in[at:])))
			if out += string(s.Flush()); out != c.want {
				t.Errorf("%q split at %d: %q, want %q", c.in, at, out, c.want)
			}
		}
	}
	if a, b := New(testKey).Digest(), New(testKey, words{regexp.MustCompile("x")}).Digest(); a == b {
		t.Error("the digest does not cover the detector")
	}
}

// A scan that fails withholds the text and writes only a notice.
func TestFailsClosed(t *testing.T) {
	r := detecting(t)
	const text = "boom and more of it\n"
	for what, got := range map[string]string{"String": r.String(text), "Bytes": string(r.Bytes([]byte(text))), "Cut": r.Cut(text)} {
		if got != withheld {
			t.Errorf("%s: %q", what, got)
		}
	}
	s, err := r.Seal(&struct{ S string }{text})
	if err == nil || s.Bytes() != nil || strings.Contains(err.Error(), "boom") {
		t.Errorf("Seal: %s, %v", s.Bytes(), err)
	}
	for _, end := range []func(*Stream) []byte{(*Stream).Flush, (*Stream).FlushCut} {
		st := r.Stream()
		out := string(st.Write([]byte("before\n")))
		out += string(st.Write([]byte("hunter2-")))
		out += string(st.Write([]byte(text)))
		out += string(st.Write([]byte("after, hunter2-hunter2\n"))) + string(st.Pause()) + string(end(st))
		if out != "before\n"+withheld {
			t.Errorf("Stream: %q", out)
		}
		if out := string(st.Write([]byte("again\n"))) + string(st.Flush()); out != "again\n" {
			t.Errorf("Stream after its end: %q", out)
		}
	}
}

// The engine's own failure is treated like a detector's.
func TestBrokenRulesFailClosed(t *testing.T) {
	r := redactor(t, map[string]string{"v": "hunter2-hunter2"})
	s := r.Stream()
	rules := *r.rules.Load()
	rules.values = nil // entries refer to nothing
	r.rules.Store(&rules)
	if got := r.String("x hunter2-hunter2 y"); got != withheld {
		t.Errorf("String: %q", got)
	}
	if got := string(s.Write([]byte("x hunter2-hunter2 y"))) + string(s.Flush()); got != withheld {
		t.Errorf("Stream: %q", got)
	}
	if sealed, err := r.Seal(&struct{ S string }{"hunter2-hunter2"}); err == nil {
		t.Errorf("Seal: %s", sealed.Bytes())
	}
}
