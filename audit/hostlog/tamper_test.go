package hostlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
)

// edit changes a file of the log.
func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(data), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		if at < 0 {
			at += len(b)
		}
		b[at] ^= 1
		return b
	}
}

func cut(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// TestTampering: each change to the files is detected, with a specific error. The log has 300 entries, of
// which 290 were published first, so that there are full and partial tiles and two levels.
func TestTampering(t *testing.T) {
	t.Parallel()
	k := newKey(t, "custody-test")
	origin := tempDir(t)
	l := mustOpen(t, filepath.Join(origin, "log"), k)
	entries := fill(t, l, 290, 30)
	older := filepath.Join(tempDir(t), "older")
	copyTree(t, origin, older)
	for i := range 10 {
		entries = append(entries, fmt.Appendf(nil, "last %d", i))
		mustPublish(t, l, mustAdd(t, l, entries[len(entries)-1]))
	}
	bundle, tile := "tile/entries/000", "tile/0/000"
	partBundle, partTile := "tile/entries/001.p/44", "tile/0/001.p/44"

	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   error
	}{
		"nothing":                {func(*testing.T, string) {}, nil},
		"flip in an entry":       {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, bundle), flip(20)) }, ErrEntriesAltered},
		"flip in the last entry": {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, partBundle), flip(-1)) }, ErrEntriesAltered},
		"length of an entry":     {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, bundle), flip(1)) }, ErrEntriesAltered},
		"entries cut":            {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, bundle), cut(3)) }, ErrEntriesAltered},
		"entry dropped":          {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, partBundle), dropEntry) }, ErrEntriesAltered},
		"entries swapped":        {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, bundle), swapEntries) }, ErrEntriesAltered},
		"flip in a tile":         {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, tile), flip(100)) }, ErrTilesAltered},
		"flip in the last tile":  {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, partTile), flip(-1)) }, ErrTilesAltered},
		"flip above":             {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, "tile/1/000.p/1"), flip(3)) }, ErrTilesAltered},
		"tile cut":               {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, tile), cut(32)) }, ErrTilesAltered},
		"bundle missing":         {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, bundle)) }, ErrMissing},
		"tile missing":           {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, tile)) }, ErrMissing},
		"entry and tile altered": {alterBoth, ErrForked},
		"checkpoint missing":     {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "checkpoint")) }, ErrMissing},
		"checkpoint altered":     {func(t *testing.T, dir string) { edit(t, filepath.Join(dir, "checkpoint"), flip(30)) }, ErrForged},
		"checkpoint by another": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "checkpoint"), func(b []byte) []byte { return resign(t, b, newKey(t, "custody-test")) })
		}, ErrForged},
		"checkpoint replayed": {func(t *testing.T, dir string) {
			replay, err := os.ReadFile(filepath.Join(older, "log/checkpoint"))
			if err != nil {
				t.Fatal(err)
			}
			edit(t, filepath.Join(dir, "checkpoint"), func([]byte) []byte { return replay })
		}, ErrRolledBack},
		"two roots for one size": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "checkpoint"), func(b []byte) []byte {
				lines := strings.Split(string(b), "\n")
				lines[2] = "A" + lines[2][1:]
				return resign(t, []byte(strings.Join(lines, "\n")), k)
			})
		}, ErrForked},
		"directory rolled back": {func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			copyTree(t, filepath.Join(older, "log"), dir)
		}, ErrRolledBack},
		"tree state rolled back": {func(t *testing.T, dir string) {
			state, err := os.ReadFile(filepath.Join(older, "log/.state/treeState"))
			if err != nil {
				t.Fatal(err)
			}
			edit(t, filepath.Join(dir, ".state/treeState"), func([]byte) []byte { return state })
		}, ErrRolledBack},
		"tree state altered": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, ".state/treeState"), func(b []byte) []byte { return flip(bytes.Index(b, []byte(`root":"`)) + 10)(b) })
		}, ErrTilesAltered},
		"tree state missing": {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, ".state/treeState")) }, ErrMissing},
		"kept, flip":         {func(t *testing.T, dir string) { edit(t, keptPath(dir), flip(400)) }, ErrForged},
		"kept, swapped":      {func(t *testing.T, dir string) { edit(t, keptPath(dir), swapKept) }, ErrRolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(tempDir(t), "root")
			copyTree(t, origin, root)
			dir := filepath.Join(root, "log")
			c.change(t, dir)
			if err := reader(t, dir, k).Check(t.Context()); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("check: %v, want %v", err, c.want)
			}
		})
	}
}

func dropEntry(b []byte) []byte { return b[2+int(b[0])<<8+int(b[1]):] }

// swapEntries exchanges the first two, which keeps all lengths.
func swapEntries(b []byte) []byte {
	n := 2 + int(b[0])<<8 + int(b[1])
	m := n + 2 + int(b[n])<<8 + int(b[n+1])
	return slices.Concat(b[n:m], b[:n], b[m:])
}

func swapKept(b []byte) []byte {
	notes, _ := splitNotes(b)
	notes[2], notes[3] = notes[3], notes[2]
	return append(bytes.Join(notes, []byte("\n")), '\n')
}

// alterBoth changes an entry and its hash, as an attacker who knows the format would.
func alterBoth(t *testing.T, dir string) {
	var leaf []byte
	edit(t, filepath.Join(dir, "tile/entries/000"), func(b []byte) []byte {
		b[5] ^= 1
		leaf = rfc6962.DefaultHasher.HashLeaf(b[2 : 2+int(b[0])<<8+int(b[1])])
		return b
	})
	edit(t, filepath.Join(dir, "tile/0/000"), func(b []byte) []byte { return append(leaf, b[32:]...) })
}

func resign(t *testing.T, signed []byte, k key) []byte {
	t.Helper()
	text, _, _ := strings.Cut(string(signed), "\n\n")
	again, err := note.Sign(&note.Note{Text: text + "\n"}, k)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestRolledBack: a writer neither appends to nor signs a directory that was rolled back.
func TestRolledBack(t *testing.T) {
	k := newKey(t, "custody-test")
	root := tempDir(t)
	dir := filepath.Join(root, "log")
	l := mustOpen(t, dir, k)
	fill(t, l, 5, 1)
	older := filepath.Join(tempDir(t), "older")
	copyTree(t, dir, older)
	fill(t, l, 3, 1)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	copyTree(t, older, dir)
	if _, err := Open(t.Context(), Options{Dir: dir, Signer: k, Verifier: k.v}); !errors.Is(err, ErrRolledBack) {
		t.Errorf("open: %v", err)
	}
	if _, err := reader(t, dir, k).Checkpoint(t.Context()); !errors.Is(err, ErrRolledBack) {
		t.Errorf("reader: %v", err)
	}
	// The log stayed open. It has 5 entries on disk, 8 were published.
	for _, want := range []error{ErrRolledBack, ErrRolledBack, ErrForked, ErrForked} {
		index := mustAdd(t, l, []byte("another"))
		if cp, err := l.Publish(t.Context(), index); cp != nil || !errors.Is(err, want) {
			t.Errorf("published %q with %d: %v, want %v", cp, index, err, want)
		}
	}
}

// TestEmptied: if an attacker removes the whole directory, no new log is created in its place.
func TestEmptied(t *testing.T) {
	k := newKey(t, "custody-test")
	dir := filepath.Join(tempDir(t), "log")
	fill(t, mustOpen(t, dir, k), 3, 1)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Dir: dir, Signer: k, Verifier: k.v}); !errors.Is(err, ErrMissing) {
		t.Errorf("open: %v", err)
	}
	if err := reader(t, dir, k).Check(t.Context()); !errors.Is(err, ErrMissing) {
		t.Errorf("check: %v", err)
	}
}

// TestAlteredEdge: no entry is appended to a damaged tree.
func TestAlteredEdge(t *testing.T) {
	t.Parallel()
	k := newKey(t, "custody-test")
	for name, c := range map[string]struct {
		file   string
		change func([]byte) []byte
		want   error
	}{
		"tile":     {"tile/0/000.p/5", flip(7), ErrTilesAltered},
		"tile cut": {"tile/0/000.p/5", cut(5), ErrTilesAltered},
		"entry":    {"tile/entries/000.p/5", flip(7), ErrEntriesAltered},
		"bundle":   {"tile/entries/000.p/5", cut(1), ErrEntriesAltered},
		"state":    {".state/treeState", func(b []byte) []byte { return b[:9] }, ErrTilesAltered},
		"larger":   {".state/treeState", func(b []byte) []byte { return bytes.Replace(b, []byte(":5"), []byte(":6"), 1) }, ErrMissing},
	} {
		dir := filepath.Join(tempDir(t), "log")
		l := mustOpen(t, dir, k)
		fill(t, l, 5, 1)
		edit(t, filepath.Join(dir, c.file), c.change)
		if i, err := l.Add(t.Context(), []byte("x")); !errors.Is(err, c.want) {
			t.Errorf("%s: added at %d: %v", name, i, err)
		}
	}
}

// TestHealed: Publish completes what a killed process left between two of its writes, and reports and overwrites a
// checkpoint that was rolled back.
func TestHealed(t *testing.T) {
	t.Parallel()
	k := newKey(t, "custody-test")
	dir := filepath.Join(tempDir(t), "log")
	var warnings []error
	l := mustOpen(t, dir, k, func(o *Options) { o.Warn = func(err error) { warnings = append(warnings, err) } })
	fill(t, l, 3, 1)
	first, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	edit(t, keptPath(dir), cut(len(first)+1)) // it was published and not kept
	if got := mustPublish(t, l, 2); !bytes.Equal(got, first) {
		t.Errorf("published %q again", got)
	}
	if all, err := reader(t, dir, k).Checkpoints(t.Context()); err != nil || len(all) != 4 {
		t.Errorf("%d are kept: %v", len(all), err)
	}
	edit(t, keptPath(dir), func(b []byte) []byte { return append(b, first[:40]...) }) // torn
	mustPublish(t, l, mustAdd(t, l, []byte("x")))
	edit(t, filepath.Join(dir, "checkpoint"), func([]byte) []byte { return first }) // put back
	mustPublish(t, l, mustAdd(t, l, []byte("y")))
	if len(warnings) == 0 || !errors.Is(warnings[0], ErrRolledBack) {
		t.Errorf("warnings %v", warnings)
	}
	if err := reader(t, dir, k).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHolds compares the log with checkpoints that another party has kept.
func TestHolds(t *testing.T) {
	t.Parallel()
	k := newKey(t, "custody-test")
	root := tempDir(t)
	dir := filepath.Join(root, "log")
	l := mustOpen(t, dir, k)
	fill(t, l, 5, 1)
	copyOf := filepath.Join(tempDir(t), "copy")
	copyTree(t, root, copyOf)
	later := mustPublish(t, l, mustAdd(t, l, []byte("a")))
	other := filepath.Join(copyOf, "log")
	r := reader(t, other, k)
	if err := r.Holds(t.Context(), later); !errors.Is(err, ErrRolledBack) {
		t.Errorf("a shorter log: %v", err)
	}
	l = mustOpen(t, other, k)
	mustPublish(t, l, mustAdd(t, l, []byte("b")))
	mustPublish(t, l, mustAdd(t, l, []byte("c")))
	if err := r.Holds(t.Context(), later); !errors.Is(err, ErrForked) {
		t.Errorf("another log: %v", err)
	}
	if err := r.Holds(t.Context(), resign(t, later, newKey(t, "custody-test"))); !errors.Is(err, ErrForged) {
		t.Errorf("another key: %v", err)
	}
	mine, err := r.Checkpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range mine {
		if err := r.Holds(t.Context(), c.Note); err != nil {
			t.Errorf("its own of %d entries: %v", c.Size, err)
		}
	}
}

// TestKeptIsBounded: the file of checkpoints does not grow without bound; the first and the last stay.
func TestKeptIsBounded(t *testing.T) {
	t.Parallel()
	k := newKey(t, "custody-test")
	dir := filepath.Join(tempDir(t), "log")
	l := mustOpen(t, dir, k)
	l.kept.max = 6 << 10
	for i := range 120 {
		mustPublish(t, l, mustAdd(t, l, manifest(i)))
	}
	info, err := os.Stat(keptPath(dir))
	if err != nil || info.Size() > l.kept.max+1<<10 {
		t.Errorf("%d bytes: %v", info.Size(), err)
	}
	all, err := reader(t, dir, k).Checkpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if all[0].Size != 0 || all[len(all)-1].Size != 120 || all[len(all)-5].Size != 116 {
		t.Errorf("kept are %d, from %d to %d", len(all), all[0].Size, all[len(all)-1].Size)
	}
	if err := reader(t, dir, k).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPrune: partial tiles do not accumulate, and a reader with an older checkpoint finds the tiles that it needs.
func TestPrune(t *testing.T) {
	t.Parallel()
	k := newKey(t, "custody-test")
	dir := filepath.Join(tempDir(t), "log")
	l := mustOpen(t, dir, k)
	entries := fill(t, l, 300, 1)
	files := 0
	for _, sub := range []string{"tile/0/*.p/*", "tile/1/*.p/*", "tile/entries/*.p/*"} {
		names, err := filepath.Glob(filepath.Join(dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		files += len(names)
	}
	if files > 8 {
		t.Errorf("%d partial tiles are left", files)
	}
	o, r := newOracle(t, entries), reader(t, dir, k)
	for size := uint64(1); size <= 300; size += 13 {
		checkProofs(t, r, o, size, entries)
	}
}

// TestReadWhileWriting: readers without locks see only consistent states.
func TestReadWhileWriting(t *testing.T) {
	t.Parallel()
	k := newKey(t, "custody-test")
	dir := filepath.Join(tempDir(t), "log")
	l := mustOpen(t, dir, k)
	fill(t, l, 250, 250)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r := reader(t, dir, k)
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, err := r.checkpoint()
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := r.Inclusion(t.Context(), c.Size-1, c.Size); err != nil {
				t.Error(err)
				return
			}
			if err := r.Check(t.Context()); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	fill(t, l, 30, 1)
	close(stop)
	<-done
}

func TestNoGoroutineStays(t *testing.T) {
	before := runtime.NumGoroutine()
	k := newKey(t, "custody-test")
	w := newWatcher(t, "w", k.v)
	for range 5 {
		l, err := Open(t.Context(), Options{Dir: filepath.Join(tempDir(t), "log"), Signer: k, Verifier: k.v, Witnesses: quorum(t, 1, w)})
		if err != nil {
			t.Fatal(err)
		}
		mustPublish(t, l, mustAdd(t, l, []byte("x")))
		if err := errors.Join(l.Close(t.Context()), l.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
}

// FuzzNotes: splitting complete notes and joining them is lossless; a torn note is left out.
func FuzzNotes(f *testing.F) {
	one := "o\n1\nAAAA\n\n— o AAAA\n\n"
	for _, seed := range []string{"", one, one + one, one + one[:9], "\n\n\n", "— \n\n— \n\n", one + "\x00\x00", "— o AAAA\n\n" + one} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		notes, whole := splitNotes(data)
		var again []byte
		for _, n := range notes {
			again = append(append(again, n...), '\n')
		}
		if !bytes.Equal(again, data[:whole]) {
			t.Errorf("%q became %q", data[:whole], again)
		}
		more, end := splitNotes(append(slices.Clone(data[:whole]), one...))
		if len(more) != len(notes)+1 || end != whole+len(one) {
			t.Errorf("%d notes and one more are %d", len(notes), len(more))
		}
	})
}
