package wal_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
)

// closedRun is a closed run of three segments: seqs 1 to 4, 5 to 8, 9 to 12.
func closedRun(t testing.TB, k key) string {
	t.Helper()
	dir := runDir(t)
	l, err := wal.Create(dir, k.options())
	check(t, err)
	for id := range 12 {
		_, err := l.Append(context.Background(), event(t, id))
		check(t, err)
		if id == 3 || id == 7 {
			check(t, l.Rotate(context.Background()))
		}
	}
	check(t, l.Close(context.Background(), wal.Sealed))
	return dir
}

func erasedSegment(t testing.TB, k key) []byte {
	t.Helper()
	dir := closedRun(t, k)
	check(t, wal.Erase(t.Context(), dir, 6))
	data, err := os.ReadFile(filepath.Join(dir, wal.FileName(5, wal.SegmentSuffix)))
	check(t, err)
	return data
}

// frames reads all frames of a run.
func frames(t testing.TB, dir string) (all []wal.Frame) {
	t.Helper()
	paths, err := wal.Segments(dir)
	check(t, err)
	for _, path := range paths {
		for f, err := range wal.ReadSegment(path) {
			check(t, err)
			all = append(all, f)
		}
	}
	return all
}

// TestErase erases each record of a run, twice, and checks that every other frame,
// offset and leaf is unchanged.
func TestErase(t *testing.T) {
	k := newKey(t)
	for seq := uint64(1); seq <= 12; seq++ {
		dir := closedRun(t, k)
		before := frames(t, dir)
		old := open(t, filepath.Join(dir, segmentAt(t, dir, seq)))
		for range 2 {
			check(t, wal.Erase(t.Context(), dir, seq))
			wantErased(t, dir, before, seq)
		}
		// The record cannot be read through a descriptor of the old file either.
		data, err := os.ReadFile(old)
		check(t, err)
		if bytes.Contains(data, before[seq-1].Bytes[30:]) || bytes.Contains(data, before[seq-1].Salt[:]) {
			t.Errorf("seq %d: the old file still has the record", seq)
		}
	}
}

// open opens a file and returns a path to it that does not depend on its name.
func open(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Open(path)
	check(t, err)
	t.Cleanup(func() { f.Close() })
	return filepath.Join("/proc/self/fd", itoa(int(f.Fd())))
}

func segmentAt(t testing.TB, dir string, seq uint64) (name string) {
	t.Helper()
	paths, err := wal.Segments(dir)
	check(t, err)
	for _, path := range paths {
		if first, _ := wal.ParseName(filepath.Base(path), wal.SegmentSuffix); first <= seq {
			name = filepath.Base(path)
		}
	}
	return name
}

// wantErased compares a run with its state before those seqs were erased.
func wantErased(t testing.TB, dir string, before []wal.Frame, erased ...uint64) {
	t.Helper()
	after := frames(t, dir)
	if len(after) != len(before) {
		t.Fatalf("%d frames, want %d", len(after), len(before))
	}
	for i, f := range after {
		want := before[i]
		if f.Seq != want.Seq || f.Run != want.Run || f.Offset != want.Offset || f.Size() != want.Size() || f.Leaf() != want.Leaf() {
			t.Errorf("seq %d is now %+v", want.Seq, f)
		}
		switch gone := slices.Contains(erased, want.Seq); {
		case f.Erased != gone:
			t.Errorf("seq %d: erased is %v", f.Seq, f.Erased)
		case gone && (f.Bytes != nil || f.Salt != [16]byte{}):
			t.Errorf("seq %d: some of its contents are left", f.Seq)
		case !gone && !bytes.Equal(f.Bytes, want.Bytes):
			t.Errorf("seq %d has other bytes", f.Seq)
		}
	}
	wantNothingLeft(t, dir)
	for _, path := range glob(t, dir, "*") {
		data, err := os.ReadFile(path)
		check(t, err)
		for _, seq := range erased {
			if bytes.Contains(data, before[seq-1].Salt[:]) {
				t.Errorf("%s has the salt of seq %d", filepath.Base(path), seq)
			}
		}
	}
}

func wantNothingLeft(t testing.TB, dir string) {
	t.Helper()
	for _, path := range glob(t, dir, "*.eras*") {
		t.Errorf("%s was left", filepath.Base(path))
	}
}

func glob(t testing.TB, dir, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	check(t, err)
	return paths
}

func TestEraseRefused(t *testing.T) {
	k := newKey(t)
	dir := runDir(t)
	l, err := wal.Create(dir, k.options())
	check(t, err)
	for id := range 4 {
		seq, err := l.Append(t.Context(), event(t, id))
		check(t, err)
		check(t, l.Sync(t.Context(), seq))
	}
	refused := func(seq uint64, want error) {
		t.Helper()
		if err := wal.Erase(t.Context(), dir, seq); !errors.Is(err, want) {
			t.Errorf("erase seq %d: %v, want %v", seq, err, want)
		}
	}
	refused(2, wal.ErrUnsealed)
	check(t, l.Rotate(t.Context()))
	check(t, wal.Erase(t.Context(), dir, 2)) // of a live run, in a sealed segment
	gap, err := red.Seal(&audit.Event{Observer: audit.Host, Kind: audit.KindGap, Gap: &audit.Gap{Stage: "output", Count: 1}})
	check(t, err)
	claim, err := red.Seal(&audit.Event{Observer: audit.Guest, Kind: audit.KindGap, Gap: &audit.Gap{Stage: "kernel_ring", What: "of a person"}})
	check(t, err)
	_, err = l.Append(t.Context(), gap)
	check(t, err)
	_, err = l.Append(t.Context(), claim)
	check(t, err)
	check(t, l.Close(t.Context(), wal.Sealed))
	refused(0, wal.ErrNoRecord)
	refused(7, wal.ErrNoRecord)
	refused(5, wal.ErrKept)
	check(t, wal.Erase(t.Context(), dir, 6))
	if err := wal.Erase(t.Context(), filepath.Join(dir, "none"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("erase in no directory: %v", err)
	}
	garble(t, filepath.Join(dir, wal.FileName(1, wal.SegmentSuffix)), 60)
	refused(1, wal.ErrDamaged)
	refused(3, wal.ErrDamaged)
}

func garble(t testing.TB, path string, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	check(t, err)
	data[at] ^= 1
	check(t, os.WriteFile(path, data, 0o600))
}

// TestEraseSlipped replaces the record's frame by one that was not sealed:
// erasing it would hide that.
func TestEraseSlipped(t *testing.T) {
	k := newKey(t)
	dir, other := closedRun(t, k), closedRun(t, k)
	name := wal.FileName(5, wal.SegmentSuffix)
	data, err := os.ReadFile(filepath.Join(other, name))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	if err := wal.Erase(t.Context(), dir, 6); !errors.Is(err, wal.ErrDamaged) {
		t.Errorf("erase: %v", err)
	}
}

// TestErasedRun: sealed segments of a run whose process died have erased records.
func TestErasedRun(t *testing.T) {
	k := newKey(t)
	c := crashedRun(t, k)
	before := frames(t, c.dir)
	check(t, wal.Erase(t.Context(), c.dir, 2))
	if err := wal.Erase(t.Context(), c.dir, 6); !errors.Is(err, wal.ErrUnsealed) {
		t.Errorf("erase in the unsealed segment of a dead run: %v", err)
	}
	l, rec, err := wal.Recover(t.Context(), c.dir, k.options())
	check(t, err)
	check(t, l.Close(t.Context(), wal.Interrupted))
	if rec.Last != 7 || rec.CutBytes != 0 {
		t.Errorf("recovery %+v", rec)
	}
	wantErased(t, c.dir, before, 2)
	check(t, wal.Erase(t.Context(), c.dir, 6))
	wantErased(t, c.dir, before, 2, 6)
}

// TestErasedFrame: invalid frames of erased records.
func TestErasedFrame(t *testing.T) {
	k := newKey(t)
	data := erasedSegment(t, k)
	at := bounds(t, data)[0] // seq 6 begins here
	end := bounds(t, data)[1]
	for name, spoil := range map[string]func(frame []byte){
		"a byte of the record": func(b []byte) { b[len(b)-1] = 'x' },
		"no seq":               func(b []byte) { clear(b[44:52]) },
		"no run":               func(b []byte) { b[52] = 0 },
		"a run beyond its end": func(b []byte) { b[52] = 255 },
		"a run with a slash":   func(b []byte) { b[53] = '/' },
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Clone(data)
			spoil(bad[at:end])
			sum(bad[at:end])
			r := wal.NewReader("x.seg", bytes.NewReader(bad))
			_, err := r.Next()
			check(t, err)
			if f, err := r.Next(); !errors.Is(err, wal.ErrErased) || f.Seq != 0 || f.Erased {
				t.Errorf("got %+v, %v", f, err)
			}
			if f, err := r.Next(); err != nil || f.Seq != 7 {
				t.Errorf("and then %+v, %v", f, err)
			}
		})
	}
	if !strings.Contains(string(data), "event 4") || strings.Contains(string(data), "event 5") {
		t.Error("an event other than event 5 was erased")
	}
}

// TestRecoverShipped: the sealed segments of a run whose process died were shipped and removed from the
// host; the manifests stay.
func TestRecoverShipped(t *testing.T) {
	k := newKey(t)
	c := crashedRun(t, k)
	check(t, os.Remove(filepath.Join(c.dir, wal.FileName(1, wal.SegmentSuffix))))
	check(t, os.Remove(filepath.Join(c.dir, wal.FileName(1, wal.LeavesSuffix))))
	if err := wal.Erase(t.Context(), c.dir, 2); !errors.Is(err, wal.ErrNoRecord) {
		t.Errorf("erase what is gone: %v", err)
	}
	l, rec, err := wal.Recover(t.Context(), c.dir, k.options())
	check(t, err)
	check(t, l.Close(t.Context(), wal.Interrupted))
	if rec.Last != 7 || rec.Sealed != 1 || rec.Unsealed != 3 {
		t.Errorf("recovery %+v", rec)
	}
	if all := frames(t, c.dir); len(all) != 3 || all[0].Seq != 5 {
		t.Errorf("%d frames are left", len(all))
	}
}
