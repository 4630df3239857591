package channel

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestTrustBound: neither end lets through an identity that trusts more than is allowed, and both the most that is.
func TestTrustBound(t *testing.T) {
	for size, good := range map[int]bool{0: true, MaxTrust: true, MaxTrust + 1: false} {
		id := Identity{Run: "r", Trust: bytes.Repeat([]byte{0xff}, size)}
		c := newGuest(t, localRunner{}).awake(t, nil)
		if err := c.Identify(timeout(t), id); (err == nil) != good {
			t.Errorf("%d bytes: the host says %v", size, err)
		}
		var got []byte
		s := Server{Identify: func(_ context.Context, id Identity) error { got = id.Trust; return nil }}
		if r := s.identify(t.Context(), id); (r.Error == "") != good || good && !bytes.Equal(got, id.Trust) {
			t.Errorf("%d bytes: the guest says %q", size, r.Error)
		}
	}
}

// TestTrustEnv: each variable once, each with a value that a shell takes as it is but for Java's.
func TestTrustEnv(t *testing.T) {
	seen := map[string]bool{}
	for _, kv := range TrustEnv() {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || seen[name] || value == "" || strings.ContainsAny(kv, "\x00\n") {
			t.Errorf("%q", kv)
		}
		seen[name] = true
	}
}
