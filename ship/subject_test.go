package ship

import (
	"errors"
	"strings"
	"testing"

	"github.com/custody-project/custody/store"
)

func TestTokens(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"", "a", "a.b", "a_b", "a-b", "_", "__", "a._b", "a_.b", "..", "._", "_.", "web-1.example.com", "A"} {
		token, ok := token(name)
		if !ok || token == "" || strings.ContainsAny(token, ". *>") {
			t.Errorf("%q has the token %q", name, token)
		}
		if other, there := seen[token]; there {
			t.Errorf("%q and %q have the same token %q", name, other, token)
		}
		seen[token] = name
	}
	for _, name := range []string{".", "a b", "*", ">", "ä", "a=b", "a\x00", "$JS", "a/b"} {
		if token, ok := token(name); ok {
			t.Errorf("%q has the token %q", name, token)
		}
	}
}

func TestSubjectsOfSegments(t *testing.T) {
	if s, err := subjectOf("", "web-1.example.com", "r-1"); err != nil || s != "custody.v1.segment._.web-1_example_com.r-1" {
		t.Errorf("%s, %v", s, err)
	}
	if _, err := subjectOf("a", "b", ""); !errors.Is(err, store.ErrMalformed) {
		t.Errorf("a run without a name: %v", err)
	}
}

// FuzzNames: every subject has at most one parse, and encoding it returns that subject again.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"custody.v1.segment._.web-1_example_com.r-1", "custody.v1.segment.a=b.c.d", "custody.v1.segment....", "custody.v1.segment.a.b", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := names(segmentRoot, s, 3)
		if err != nil {
			if !errors.Is(err, store.ErrMalformed) {
				t.Fatalf("not a typed error: %v", err)
			}
			return
		}
		if again, err := subject(segmentRoot, n...); err != nil || again != s {
			t.Fatalf("%q reads as %q, which has the subject %q, %v", s, n, again, err)
		}
	})
}
