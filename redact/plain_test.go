package redact

import (
	"bytes"
	"testing"
)

// allSecret is a detector that considers all text a secret.
type allSecret struct{}

func (allSecret) Find(dst []Hit, text []byte) []Hit {
	return append(dst, Hit{0, len(text), "all"})
}
func (allSecret) Reach() int     { return 1000 }
func (allSecret) Digest() string { return "" }

func TestPlain(t *testing.T) {
	r := New([]byte("key"), allSecret{})
	if err := r.Add("a", []byte("some-secret-value")); err != nil {
		t.Fatal(err)
	}
	s := r.Plain()
	out := append(bytes.Clone(s.Write([]byte("text: some-sec"))), s.Write([]byte("ret-value, text"))...)
	if out = append(out, s.Flush()...); string(out) != "text: [REDACTED:a:"+r.Tag([]byte("some-secret-value"))+"], text" {
		t.Errorf("%q", out)
	}
	if out := s.Write([]byte("words;")); string(out) != "words;" {
		t.Errorf("held back: %q", out)
	}
}
