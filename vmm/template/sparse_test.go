package template

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// naiveDigest computes the same as sparseDigest, from a file's content in memory.
func naiveDigest(b []byte) string {
	h := sha256.New()
	for at := 0; at < len(b); at += sparseBlock {
		part := b[at:min(at+sparseBlock, len(b))]
		if bytes.Count(part, []byte{0}) < len(part) {
			binary.Write(h, binary.BigEndian, []uint64{uint64(at), uint64(len(part))})
			h.Write(part)
		}
	}
	binary.Write(h, binary.BigEndian, uint64(len(b)))
	return hex.EncodeToString(h.Sum(nil))
}

// TestMakeSparse: a file keeps its bytes and its size, and occupies less space. Its digest depends on
// its bytes, not on where the holes are.
func TestMakeSparse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	b := make([]byte, 4<<20+5)
	rand.Read(b[1<<20 : 1<<20+100])
	b[sparseBlock] = 1
	b[3*sparseBlock-1] = 1
	b[len(b)-1] = 7
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	want := naiveDigest(b)
	for _, compute := range []hasher{hashSparse, makeSparse, hashSparse, makeSparse} {
		if got, err := compute(t.Context(), path); err != nil || got != want {
			t.Errorf("the digest is %s, %v, want %s", got, err, want)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b) {
		t.Fatalf("the file was changed, %v", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Blocks*512 > 512<<10 {
		t.Errorf("the file takes %d bytes, %v", st.Blocks*512, err)
	}
}

// TestSparseDigestDiffers: files that differ in a byte, in the size or in an offset have different digests.
func TestSparseDigestDiffers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	seen := map[string]string{}
	for name, b := range map[string][]byte{
		"empty": {}, "zero": {0}, "two zeros": {0, 0}, "one": {1}, "a block of zeros": make([]byte, sparseBlock),
		"one, zero": {1, 0}, "in the second block": append(make([]byte, sparseBlock), 1), "in the third block": append(make([]byte, 2*sparseBlock), 1),
		"second byte": {0, 1}, "two blocks of zeros": make([]byte, 2*sparseBlock),
	} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		sum, err := hashSparse(t.Context(), path)
		if err != nil || sum != naiveDigest(b) {
			t.Errorf("%s: %s, %v", name, sum, err)
		}
		if other, is := seen[sum]; is {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		seen[sum] = name
	}
}

// TestPhase: a phase ends with its context, writes progress messages, and has a time limit.
func TestPhase(t *testing.T) {
	var log strings.Builder
	s := Store{Log: &log}
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	err := s.phase(t.Context(), "waiting", 10*time.Millisecond, wait)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting: not done after 10ms") {
		t.Errorf("a phase that is too slow: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.phase(ctx, "waiting", time.Hour, wait); !errors.Is(err, context.Canceled) {
		t.Errorf("a phase that was cancelled: %v", err)
	}
	if _, err := makeSparse(ctx, sparseFile(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("a digest that was cancelled: %v", err)
	}
	if _, err := hashFile(ctx, sparseFile(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("a hash that was cancelled: %v", err)
	}
}

func sparseFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLockEndsWithContext: lock waits for another holder until the context ends.
func TestLockEndsWithContext(t *testing.T) {
	s := Store{Dir: t.TempDir(), Log: io.Discard}
	unlock, err := s.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second lock: %v", err)
	}
}
