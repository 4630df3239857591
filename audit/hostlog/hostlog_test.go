package hostlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/custody-project/custody/audit/proof/merkle"
)

// key is a signer with its verifier.
type key struct {
	note.Signer
	v note.Verifier
}

func newKey(t testing.TB, name string) key {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	return key{s, v}
}

func mustOpen(t testing.TB, dir string, k key, more ...func(*Options)) *Log {
	t.Helper()
	o := Options{Dir: dir, Signer: k, Verifier: k.v}
	for _, m := range more {
		m(&o)
	}
	l, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func mustAdd(t testing.TB, l *Log, entry []byte) uint64 {
	t.Helper()
	i, err := l.Add(t.Context(), entry)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func mustPublish(t testing.TB, l *Log, index uint64) []byte {
	t.Helper()
	cp, err := l.Publish(t.Context(), index)
	if err != nil {
		t.Fatal(err)
	}
	return cp
}

// fill adds n entries and publishes after each "every" of them.
func fill(t testing.TB, l *Log, n int, every int) [][]byte {
	t.Helper()
	var all [][]byte
	for i := range n {
		e := fmt.Appendf(nil, "entry %d %x", i, rfc6962.DefaultHasher.HashLeaf([]byte{byte(i)}))
		all = append(all, e)
		index := mustAdd(t, l, e)
		if (i+1)%every == 0 || i == n-1 {
			mustPublish(t, l, index)
		}
	}
	return all
}

func reader(t testing.TB, dir string, k key, older ...note.Verifier) *Reader {
	t.Helper()
	r, err := OpenReader(dir, k.v, older...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// oracle computes everything from the entries with golang.org/x/mod/sumdb/tlog, which shares
// no code with Tessera.
type oracle struct {
	hashes []tlog.Hash
	n      int64
}

func (o *oracle) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		out[i] = o.hashes[x]
	}
	return out, nil
}

func newOracle(t testing.TB, entries [][]byte) *oracle {
	t.Helper()
	o := &oracle{}
	for _, e := range entries {
		h, err := tlog.StoredHashes(o.n, e, o)
		if err != nil {
			t.Fatal(err)
		}
		o.hashes = append(o.hashes, h...)
		o.n++
	}
	return o
}

func (o *oracle) root(t testing.TB, size int64) merkle.Hash {
	t.Helper()
	h, err := tlog.TreeHash(size, o)
	if err != nil {
		t.Fatal(err)
	}
	return merkle.Hash(h)
}

// TestOracle compares all results of a Reader with the oracle, across the sizes at which tiles fill up.
func TestOracle(t *testing.T) {
	t.Parallel()
	dir, k := filepath.Join(tempDir(t), "log"), newKey(t, "custody-test")
	l := mustOpen(t, dir, k)
	entries := fill(t, l, 530, 7)
	o, r := newOracle(t, entries), reader(t, dir, k)

	var read [][]byte
	for e, err := range r.Entries(t.Context(), 0, 530) {
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, bytes.Clone(e))
	}
	if len(read) != len(entries) || !bytes.Equal(bytes.Join(read, nil), bytes.Join(entries, nil)) {
		t.Fatalf("read %d entries, or other ones", len(read))
	}
	all, err := r.Checkpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1+530/7+1 { // that of the empty tree too
		t.Fatalf("%d checkpoints are kept", len(all))
	}
	for _, c := range all {
		if c.Root != o.root(t, int64(c.Size)) {
			t.Errorf("checkpoint of %d entries has another root than the oracle", c.Size)
		}
	}
	for _, size := range []uint64{1, 2, 3, 255, 256, 257, 511, 512, 513, 529, 530} {
		checkProofs(t, r, o, size, entries)
	}
	if err := r.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
}

func checkProofs(t *testing.T, r *Reader, o *oracle, size uint64, entries [][]byte) {
	t.Helper()
	root := tlog.Hash(o.root(t, int64(size)))
	for _, i := range []uint64{0, 1, size / 2, size - 1} {
		if i >= size {
			continue
		}
		if got, err := r.Index(t.Context(), entries[i]); err != nil || got != i {
			t.Errorf("entry %d is found at %d: %v", i, got, err)
		}
		path, err := r.Inclusion(t.Context(), i, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckRecord(tlogPath(path), int64(size), root, int64(i), tlog.RecordHash(entries[i])); err != nil {
			t.Errorf("inclusion of %d in %d: %v", i, size, err)
		}
	}
	for _, from := range []uint64{1, 2, size/2 + 1, size} {
		if from > size {
			continue
		}
		path, err := r.Consistency(t.Context(), from, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckTree(tlogPath(path), int64(size), root, int64(from), tlog.Hash(o.root(t, int64(from)))); err != nil {
			t.Errorf("consistency of %d and %d: %v", from, size, err)
		}
	}
}

func tlogPath(path []merkle.Hash) []tlog.Hash {
	out := make([]tlog.Hash, len(path))
	for i, h := range path {
		out[i] = tlog.Hash(h)
	}
	return out
}

func TestIndex(t *testing.T) {
	dir, k := filepath.Join(tempDir(t), "log"), newKey(t, "custody-test")
	l := mustOpen(t, dir, k)
	r := reader(t, dir, k)
	if _, err := r.Index(t.Context(), []byte("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in an empty log: %v", err)
	}
	for _, e := range []string{"a", "b", "a"} {
		mustAdd(t, l, []byte(e))
	}
	mustPublish(t, l, 2)
	mustAdd(t, l, []byte("c"))
	for entry, want := range map[string]uint64{"a": 2, "b": 1} {
		if got, err := r.Index(t.Context(), []byte(entry)); err != nil || got != want {
			t.Errorf("%s is at %d, want %d: %v", entry, got, want, err)
		}
	}
	if _, err := r.Index(t.Context(), []byte("c")); !errors.Is(err, ErrNotFound) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an entry under no checkpoint: %v", err)
	}
}

func TestLimits(t *testing.T) {
	dir, k := filepath.Join(tempDir(t), "log"), newKey(t, "custody-test")
	l := mustOpen(t, dir, k)
	if _, err := l.Add(t.Context(), make([]byte, MaxEntry+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large an entry: %v", err)
	}
	big := bytes.Repeat([]byte{7}, MaxEntry)
	mustPublish(t, l, mustAdd(t, l, big))
	mustPublish(t, l, mustAdd(t, l, nil))
	if i, err := reader(t, dir, k).Index(t.Context(), big); err != nil || i != 0 {
		t.Errorf("the largest entry is at %d: %v", i, err)
	}
	if _, err := l.Publish(t.Context(), 2); !errors.Is(err, ErrNotFound) {
		t.Errorf("publication of what is not there: %v", err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Add(t.Context(), big); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := l.Publish(t.Context(), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestOneProcess opens the log twice in one process, where Tessera's locks exclude no one.
func TestOneProcess(t *testing.T) {
	dir, k := filepath.Join(tempDir(t), "log"), newKey(t, "custody-test")
	logs := []*Log{mustOpen(t, dir, k), mustOpen(t, dir, k)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[uint64]string{}
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				entry := fmt.Sprintf("%d/%d", g, i)
				index, err := logs[g%2].Add(t.Context(), []byte(entry))
				if err == nil && i%5 == 0 {
					_, err = logs[g%2].Publish(t.Context(), index)
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if other, ok := got[index]; ok {
					t.Errorf("index %d is that of %s and of %s", index, other, entry)
				}
				got[index] = entry
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	mustPublish(t, logs[0], 159)
	r := reader(t, dir, k)
	if err := r.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for i, entry := range got {
		for e, err := range r.Entries(t.Context(), i, i+1) {
			if err != nil || string(e) != entry {
				t.Errorf("at %d stands %q, want %q: %v", i, e, entry, err)
			}
		}
	}
}

func TestLockGivesUp(t *testing.T) {
	dir, k := filepath.Join(tempDir(t), "log"), newKey(t, "custody-test")
	l := mustOpen(t, dir, k)
	other, err := openLock(filepath.Join(dir, "append.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Add(ctx, []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Add beside a lock that is held: %v", err)
	}
	other.unlock()
	mustAdd(t, l, []byte("x"))
	if err := other.close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRotation(t *testing.T) {
	dir := filepath.Join(tempDir(t), "log")
	old, next := newKey(t, "custody-test"), newKey(t, "custody-test")
	l := mustOpen(t, dir, old)
	mustPublish(t, l, mustAdd(t, l, []byte("a")))
	l = mustOpen(t, dir, next, func(o *Options) { o.Others = []note.Signer{old}; o.Older = []note.Verifier{old.v} })
	mustPublish(t, l, mustAdd(t, l, []byte("b")))
	for _, k := range []key{old, next} {
		if _, err := reader(t, dir, k, old.v).Checkpoint(t.Context()); err != nil {
			t.Errorf("while both sign: %v", err)
		}
	}
	l = mustOpen(t, dir, next, func(o *Options) { o.Older = []note.Verifier{old.v} })
	mustPublish(t, l, mustAdd(t, l, []byte("c")))
	if _, err := reader(t, dir, old).Checkpoint(t.Context()); !errors.Is(err, ErrForged) {
		t.Errorf("the old key still opens it: %v", err)
	}
	if err := reader(t, dir, next, old.v).Check(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := Open(t.Context(), Options{Dir: dir, Signer: next, Verifier: next.v, Others: []note.Signer{newKey(t, "other")}}); err == nil {
		t.Error("a key of another name signs too")
	}
	if _, err := Open(t.Context(), Options{Dir: dir, Signer: next, Verifier: old.v}); err == nil {
		t.Error("the verifier is of another key")
	}
}

func diskUsage(t testing.TB, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		bytes += (info.Size() + 4095) / 4096 * 4096
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes
}

// tempDir is t.TempDir, but it retries the removal: Tessera's goroutines, which end shortly after Close, may still make a file.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hostlog")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 {
			if err = os.RemoveAll(dir); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error(err)
	})
	return dir
}
