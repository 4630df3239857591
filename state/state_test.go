package state_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/state"
)

const page = state.PageSize

var binding = state.Binding{
	Run: "r-01kaaaaaaaaaaaaaaaaaaaaaaa", Tenant: "acme", Project: "build", Template: "sha256:t", Base: "sha256:b", Policy: "sha256:p", Tier: "qemu-tcg", Host: "host-1",
}

func of(run string) state.Meta {
	b := binding
	b.Run = run
	return state.Meta{Binding: b}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clock is a clock that a test moves.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

// place is a directory with a key and a store.
type place struct {
	home, dir, key string
	config         state.Config
	clock          *clock
}

func newPlace(t testing.TB) *place {
	home := t.TempDir()
	p := &place{home: home, dir: filepath.Join(home, "paused"), key: filepath.Join(home, "keys", "state.key"), clock: newClock()}
	p.config = state.Config{Keys: state.KeyFile(p.key), Now: p.clock.now}
	return p
}

func (p *place) open(t testing.TB) *state.Store {
	t.Helper()
	s, err := state.Open(p.dir, p.config)
	must(t, err)
	return s
}

// names lists the files of the store, without its lock.
func (p *place) names(t testing.TB) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(p.dir)
	must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		if info.Mode() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// image is a sparse file with these bytes.
func image(t testing.TB, content []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "image")
	must(t, err)
	t.Cleanup(func() { f.Close() })
	must(t, f.Truncate(int64(len(content))))
	for at := 0; at < len(content); at += page {
		if piece := content[at:min(at+page, len(content))]; !bytes.Equal(piece, make([]byte, len(piece))) {
			_, err := f.WriteAt(piece, int64(at))
			must(t, err)
		}
	}
	return f
}

func memfd(t testing.TB) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	must(t, err)
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { f.Close() })
	return f
}

func contents(t testing.TB, f *os.File) []byte {
	t.Helper()
	info, err := f.Stat()
	must(t, err)
	b := make([]byte, info.Size())
	_, err = f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return b
}

// random returns pages of random bytes, a third of them zeros.
func random(r *rand.Rand, pages int) []byte {
	b := make([]byte, pages*page)
	for i := range pages {
		if r.IntN(3) > 0 {
			randomize(r, b[i*page:(i+1)*page])
		}
	}
	return b
}

func randomize(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// put stores a small snapshot with the part "device".
func put(t testing.TB, s *state.Store, m state.Meta, device string) state.Info {
	t.Helper()
	w, err := s.Create(t.Context(), m)
	must(t, err)
	must(t, w.Part("device", strings.NewReader(device)))
	info, err := w.Commit(t.Context())
	must(t, err)
	return info
}

// device reads that part.
func device(t testing.TB, s *state.Snapshot) string {
	t.Helper()
	r, n, err := s.Part("device")
	must(t, err)
	b, err := io.ReadAll(r)
	must(t, err)
	if int64(len(b)) != n {
		t.Errorf("the part has %d bytes, and its length is %d", len(b), n)
	}
	return string(b)
}

// TestRoundTrip stores and restores a memory, a disk and a device, into memfds and files, with and without bases of other sizes.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := newPlace(t)
	s := p.open(t)
	base := random(r, 700)
	memory := append(bytes.Clone(base), make([]byte, 100*page)...) // longer than its base
	for range 60 {
		randomize(r, memory[r.IntN(800)*page:][:page])
		clear(memory[r.IntN(800)*page:][:page])
	}
	disk := random(r, 300)
	state0 := make([]byte, 3<<20+5)
	randomize(r, state0[:2<<20])
	memoryFile, baseFile, diskFile := image(t, memory), image(t, base), image(t, disk)

	w, err := s.Create(t.Context(), state.Meta{Binding: binding})
	must(t, err)
	must(t, w.File(t.Context(), "memory", memoryFile, baseFile))
	must(t, w.Part("device", bytes.NewReader(state0)))
	must(t, w.Part("empty", strings.NewReader("")))
	must(t, w.File(t.Context(), "disk", diskFile, nil))
	must(t, w.File(t.Context(), "shorter", diskFile, baseFile))
	if len(p.names(t)) != 1 {
		t.Errorf("before Commit there are %q", p.names(t))
	}
	info, err := w.Commit(t.Context())
	must(t, err)
	w.Abort() // does nothing
	if got := p.names(t); len(got) != 1 || got[0] != binding.Run+".snapshot" {
		t.Errorf("after Commit there are %q", got)
	}

	snap, err := s.Claim(t.Context(), binding)
	must(t, err)
	if snap.Info != info || info.Expires.Sub(info.Created) != state.DefaultKeep {
		t.Errorf("Commit returned %+v, Claim %+v", info, snap.Info)
	}
	dirty := image(t, random(r, 900)) // a file with former contents
	for _, to := range []*os.File{memfd(t), image(t, nil), dirty} {
		for _, c := range []struct {
			part string
			base *os.File
			want []byte
		}{{"memory", baseFile, memory}, {"disk", nil, disk}, {"shorter", baseFile, disk}} {
			must(t, snap.File(t.Context(), c.part, to, c.base))
			if !bytes.Equal(contents(t, to), c.want) {
				t.Errorf("%s differs", c.part)
			}
		}
	}
	if got := device(t, snap); got != string(state0) {
		t.Error("the device differs")
	}
	for _, name := range []string{"memory", "none"} {
		if _, _, err := snap.Part(name); !errors.Is(err, state.ErrNoPart) {
			t.Errorf("Part(%s): %v", name, err)
		}
	}
	if err := snap.File(t.Context(), "device", dirty, nil); !errors.Is(err, state.ErrNoPart) || !snap.Has("disk") || snap.Has("none") {
		t.Errorf("File(device): %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := snap.File(ended, "disk", dirty, nil); !errors.Is(err, context.Canceled) || len(contents(t, dirty)) > 0 {
		t.Errorf("with a context that has ended: %v, and the file is not empty", err)
	}
	must(t, snap.Consume())
	must(t, snap.Release())
	if got := p.names(t); len(got) > 0 {
		t.Errorf("after Consume there are %q", got)
	}
	if _, err := s.Claim(t.Context(), binding); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a second resume: %v", err)
	}
}

// TestPages writes random pages in random order, some of them again, and compares the result with a model that applies each write to a copy of the base.
func TestPages(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := newPlace(t).open(t)
		const pages = 64
		base := random(r, pages)
		var below io.ReaderAt = bytes.NewReader(base)
		baseFile := image(t, base)
		model := bytes.Clone(base)
		if seed%4 == 0 {
			below, baseFile = nil, nil
			clear(model)
		}
		was := bytes.Clone(model)
		w, err := s.Create(t.Context(), state.Meta{Binding: binding})
		must(t, err)
		memory, err := w.Pages("memory", pages*page, below)
		must(t, err)
		writes := 0
		for range r.IntN(80) {
			first := r.IntN(pages)
			n := 1 + r.IntN(min(8, pages-first))
			content := random(r, n)
			switch r.IntN(3) {
			case 0:
				copy(content, was[first*page:])
			case 1:
				copy(content, model[first*page:])
			}
			must(t, memory.Page(int64(first*page), content))
			copy(model[first*page:], content)
			writes += n
		}
		info, err := w.Commit(t.Context())
		must(t, err)
		if writes == 0 && info.Size > 2<<10 {
			t.Errorf("seed %d: nothing was written, and the file has %d bytes", seed, info.Size)
		}
		snap, err := s.Claim(t.Context(), binding)
		must(t, err)
		got := memfd(t)
		must(t, snap.File(t.Context(), "memory", got, baseFile))
		if !bytes.Equal(contents(t, got), model) {
			t.Fatalf("seed %d: the memory differs from the model", seed)
		}
		must(t, snap.Release())
	}
}

// TestStoredPages: pages that are zeros or those of the base occupy nothing.
func TestStoredPages(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	s := newPlace(t).open(t)
	base := make([]byte, 4096*page)
	randomize(r, base[:2048*page])
	memory := bytes.Clone(base)
	clear(memory[:100*page])
	randomize(r, memory[3000*page:3010*page])
	w, err := s.Create(t.Context(), state.Meta{Binding: binding})
	must(t, err)
	pages, err := w.Pages("memory", int64(len(memory)), bytes.NewReader(base))
	must(t, err)
	must(t, pages.Page(0, memory))
	info, err := w.Commit(t.Context())
	must(t, err)
	if most := int64(10*page + 2<<10); info.Size > most {
		t.Errorf("10 pages have changed, and the file has %d bytes, more than %d", info.Size, most)
	}
}
