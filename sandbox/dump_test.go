package sandbox

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/custody-project/custody/secrets"
)

// finder finds one value.
type finder []byte

func (k finder) Values(text []byte) []string {
	if bytes.Contains(text, k) {
		return []string{"git"}
	}
	return nil
}
func (finder) Begin(context.Context, string, []string, time.Duration) (*secrets.Lease, error) {
	return nil, errors.ErrUnsupported
}
func (finder) RevokeAll(context.Context, string) error { return nil }
func (finder) Printed(string) *secrets.Printed         { return nil }

// TestSearch: a memory image is copied completely, or no part of a value in it is, regardless of where the pieces end.
func TestSearch(t *testing.T) {
	value := finder("a-value-of-some-length")
	s := image{find: (&credentials{issuer: value}).in}
	const first = searchOverlap + searchPiece // the first border between pieces
	for _, at := range []int{0, first - len(value), first - len(value)/2, first, first + searchPiece - 3, 2*first + 5} {
		memory := bytes.Repeat([]byte{'.'}, 2*first+100)
		copy(memory[at:], value)
		var out bytes.Buffer
		if err := s.search(t.Context(), bytes.NewReader(memory), &out); !errors.Is(err, ErrHoldsSecret) {
			t.Errorf("value at %d: %v", at, err)
		}
		if bytes.ContainsAny(out.Bytes(), string(value)) {
			t.Errorf("value at %d: a part of it was written", at)
		}
	}
	for _, size := range []int{0, 1, first - 1, first, first + 1, first + searchPiece, 3 * first} {
		memory := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		var out bytes.Buffer
		if err := s.search(t.Context(), bytes.NewReader(memory), &out); err != nil || !bytes.Equal(out.Bytes(), memory) {
			t.Errorf("%d bytes: %d came out, %v", size, out.Len(), err)
		}
	}
}
