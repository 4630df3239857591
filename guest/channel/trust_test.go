package channel

import (
	"bytes"
	"net"
	"strings"
	"testing"
)

// TestTrustBound: neither end lets through a wake that trusts more than is allowed, and both the most that is.
func TestTrustBound(t *testing.T) {
	for size, good := range map[int]bool{0: true, MaxTrust: true, MaxTrust + 1: false} {
		w := Wake{Run: "r", Trust: bytes.Repeat([]byte{0xff}, size)}
		host, guest := net.Pipe()
		go func() {
			if _, err := AwaitWake(guest); err == nil {
				SendAwake(guest, Awake{OK: true})
			}
			guest.Close()
		}()
		_, _, err := wake(host, w)
		host.Close()
		if (err == nil) != good {
			t.Errorf("%d bytes: the host says %v", size, err)
		}
		var line bytes.Buffer
		if err := writeLine(&line, w); err != nil {
			t.Fatal(err)
		}
		got, err := AwaitWake(&line)
		if (err == nil) != good || good && !bytes.Equal(got.Trust, w.Trust) {
			t.Errorf("%d bytes: the guest says %v", size, err)
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
