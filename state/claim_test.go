package state_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/custody-project/custody/state"
)

// TestBinding: a snapshot opens only for what it belongs to, with a distinct error for each value.
func TestBinding(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	put(t, s, state.Meta{Binding: binding}, "text")
	for what, set := range map[state.Bound]func(*state.Binding){
		state.BoundTenant:   func(b *state.Binding) { b.Tenant = "other" },
		state.BoundProject:  func(b *state.Binding) { b.Project = "other" },
		state.BoundHost:     func(b *state.Binding) { b.Host = "other" },
		state.BoundTier:     func(b *state.Binding) { b.Tier = "other" },
		state.BoundTemplate: func(b *state.Binding) { b.Template = "other" },
		state.BoundBase:     func(b *state.Binding) { b.Base = "other" },
		state.BoundPolicy:   func(b *state.Binding) { b.Policy = "other" },
	} {
		want := binding
		set(&want)
		for name, open := range map[string]func(context.Context, state.Binding) (*state.Snapshot, error){"Claim": s.Claim, "Share": s.Share} {
			_, err := open(t.Context(), want)
			var bound *state.BoundError
			if !errors.As(err, &bound) || bound.What != what || bound.Hint() == "" {
				t.Errorf("%s with another %s: %v", name, what, err)
			} else if strings.Contains(err.Error(), binding.Tenant) || strings.Contains(err.Error(), binding.Host) {
				t.Errorf("the error contains a value of the other: %v", err)
			}
		}
	}
	path := filepath.Join(p.dir, binding.Run+".snapshot")
	must(t, os.Rename(path, filepath.Join(p.dir, "r-other.snapshot")))
	var bound *state.BoundError
	if _, err := s.Claim(t.Context(), of("r-other").Binding); !errors.As(err, &bound) || bound.What != state.BoundRun {
		t.Errorf("under the name of another run: %v", err)
	}
	must(t, os.Rename(filepath.Join(p.dir, "r-other.snapshot"), path))
	p.clock.Time = p.clock.Add(state.DefaultKeep - time.Nanosecond)
	snap, err := s.Claim(t.Context(), binding)
	must(t, err)
	must(t, snap.Release())
	p.clock.Time = p.clock.Add(time.Nanosecond)
	if _, err := s.Claim(t.Context(), binding); !errors.Is(err, state.ErrExpired) {
		t.Errorf("after a week: %v", err)
	}
}

// TestKey: without the key, or with another, nothing opens, and both have the same distinct error.
func TestKey(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	put(t, s, of("r-1"), "text")
	moved := p.key + ".moved"
	must(t, os.Rename(p.key, moved))
	if _, err := s.Claim(t.Context(), of("r-1").Binding); !errors.Is(err, state.ErrNoKey) || errors.Is(err, state.ErrAltered) {
		t.Errorf("without the key: %v", err)
	}
	put(t, s, of("r-2"), "text") // with a new key
	if _, err := s.Claim(t.Context(), of("r-1").Binding); !errors.Is(err, state.ErrNoKey) || errors.Is(err, state.ErrAltered) {
		t.Errorf("with another key: %v", err)
	}
	must(t, os.Rename(moved, p.key))
	snap, err := s.Claim(t.Context(), of("r-1").Binding)
	must(t, err)
	if device(t, snap) != "text" {
		t.Error("the device differs")
	}
	must(t, snap.Release())
	away := errors.New("Vault is out of reach")
	p.config.Keys = outOfReach{err: away}
	if _, err := p.open(t).Claim(t.Context(), of("r-1").Binding); !errors.Is(err, away) || errors.Is(err, state.ErrAltered) {
		t.Errorf("a key service that is out of reach: %v", err)
	}
	if _, err := p.open(t).Create(t.Context(), of("r-3")); !errors.Is(err, away) {
		t.Errorf("a key service that is out of reach: %v", err)
	}
	if got := p.names(t); len(got) != 2 {
		t.Errorf("there are %q", got)
	}
}

type outOfReach struct{ err error }

func (o outOfReach) Wrap(context.Context, []byte) ([]byte, error)   { return nil, o.err }
func (o outOfReach) Unwrap(context.Context, []byte) ([]byte, error) { return nil, o.err }

// TestKeyRace: concurrent first users get the same key.
func TestKeyRace(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	var wg sync.WaitGroup
	runs := []string{"r-1", "r-2", "r-3", "r-4", "r-5", "r-6"}
	for _, run := range runs {
		wg.Go(func() { put(t, s, of(run), run) })
	}
	wg.Wait()
	for _, run := range runs {
		snap, err := s.Claim(t.Context(), of(run).Binding)
		must(t, err)
		if device(t, snap) != run {
			t.Errorf("run %s has another device", run)
		}
		must(t, snap.Consume())
	}
}

// readAll reads all parts of a snapshot.
func readAll(t *testing.T, s *state.Store, base *os.File) error {
	snap, err := s.Claim(t.Context(), binding)
	if err != nil {
		return err
	}
	defer snap.Release()
	r, _, err := snap.Part("device")
	if err == nil {
		_, err = new(bytes.Buffer).ReadFrom(r)
	}
	to := memfd(t)
	defer to.Close()
	return errors.Join(err, snap.File(t.Context(), "memory", to, base))
}

// TestAltered: no byte of a file can change, none can be missing or added, and no part can be moved or come from another snapshot.
func TestAltered(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	p := newPlace(t)
	s := p.open(t)
	base := random(r, 20)
	baseFile := image(t, base)
	write := func() []byte {
		w, err := s.Create(t.Context(), state.Meta{Binding: binding})
		must(t, err)
		must(t, w.File(t.Context(), "memory", image(t, random(r, 70)), baseFile))
		must(t, w.Part("device", strings.NewReader("text")))
		_, err = w.Commit(t.Context())
		must(t, err)
		b, err := os.ReadFile(filepath.Join(p.dir, binding.Run+".snapshot"))
		must(t, err)
		return b
	}
	first, second := write(), write()
	head := bytes.Index(first, []byte("age-encryption.org"))
	body := head + bytes.Index(first[head:], []byte("\n---")) + 64
	const block = 64<<10 + 16 // of age
	if len(first) < body+2*block || len(second) < body+2*block {
		t.Fatalf("the files have %d and %d bytes, too few for this test", len(first), len(second))
	}
	try := func(name string, b []byte, want error) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(p.dir, binding.Run+".snapshot"), b, 0o600))
		if err := readAll(t, s, baseFile); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	flipped := func(b []byte, at int, bit byte) []byte {
		b = bytes.Clone(b)
		b[at] ^= bit
		return b
	}
	for at := range body { // a value of the manifest or the ID of the key may differ, which has an error of its own
		try("a bit of the header", flipped(first, at, 1<<r.IntN(8)), nil)
	}
	for range 200 {
		try("a bit of the contents", flipped(first, body+r.IntN(len(first)-body), 1<<r.IntN(8)), state.ErrAltered)
	}
	for range 50 {
		try("cut off", first[:r.IntN(len(first))], state.ErrAltered)
	}
	for _, n := range []int{0, 1, head, body, body + block, len(first) - 1} {
		try("cut off", first[:n], state.ErrAltered)
	}
	try("a byte more", append(bytes.Clone(first), 0), state.ErrAltered)
	try("the file twice", append(bytes.Clone(first), first...), state.ErrAltered)
	try("the head of another", append(bytes.Clone(second[:body]), first[body:]...), state.ErrAltered)
	try("the manifest of another", bytes.Replace(first, []byte("2026-01-02T03:04:05Z"), []byte("2026-01-02T03:04:06Z"), 1), state.ErrAltered)
	swapped := bytes.Clone(first)
	end := body - 64 + bytes.IndexByte(first[body-64+4:], '\n') + 5 + 16 // behind the header and the nonce
	copy(swapped[end:], first[end+block:end+2*block])
	copy(swapped[end+block:], first[end:end+block])
	try("two blocks swapped", swapped, state.ErrAltered)
	mixed := bytes.Clone(first)
	copy(mixed[end:end+block], second[end:end+block])
	try("a block of another", mixed, state.ErrAltered)
	try("nothing", nil, state.ErrAltered)
	must(t, os.WriteFile(filepath.Join(p.dir, binding.Run+".snapshot"), first, 0o600))
	must(t, readAll(t, s, baseFile)) // the test reads what is not altered
}

// TestLongHeader: a header without an end is refused, and not read to its end.
func TestLongHeader(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	put(t, s, state.Meta{Binding: binding}, "text")
	path := filepath.Join(p.dir, binding.Run+".snapshot")
	b, err := os.ReadFile(path)
	must(t, err)
	at := bytes.Index(b, []byte("-> custody"))
	must(t, os.WriteFile(path, append(b[:at:at], bytes.Repeat([]byte("-> x\n\n"), 1<<20)...), 0o600))
	if _, err := s.Claim(t.Context(), binding); !errors.Is(err, state.ErrAltered) {
		t.Errorf("a header of 6 MiB: %v", err)
	}
}

// TestOneResume: of many concurrent resumes one has the snapshot. Forks share it.
func TestOneResume(t *testing.T) {
	p := newPlace(t)
	put(t, p.open(t), state.Meta{Binding: binding}, "text")
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		s := p.open(t)
		wg.Go(func() {
			snap, err := s.Claim(t.Context(), binding)
			switch {
			case err == nil:
				won.Add(1)
				if device(t, snap) != "text" {
					t.Error("the device differs")
				}
				if err := snap.Consume(); err != nil {
					t.Error(err)
				}
			case !errors.Is(err, state.ErrClaimed) && !errors.Is(err, state.ErrNotFound):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d resumes have the snapshot", won.Load())
	}
}

// TestShare: forks read a snapshot concurrently; meanwhile it is not resumed, deleted, erased or swept, and a newer one can replace it.
func TestShare(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	put(t, s, state.Meta{Binding: binding}, "old")
	a, err := s.Share(t.Context(), binding)
	must(t, err)
	b, err := s.Share(t.Context(), binding)
	must(t, err)
	inUse := func() {
		t.Helper()
		p.clock.Time = p.clock.Add(state.DefaultKeep)
		must(t, s.Sweep(t.Context()))
		_, claim := s.Claim(t.Context(), binding)
		removed, erase := s.Erase(t.Context(), binding.Run)
		for name, err := range map[string]error{"claim": claim, "delete": s.Delete(t.Context(), binding.Run), "erase": erase} {
			if !errors.Is(err, state.ErrClaimed) || len(removed) > 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(p.names(t)) != 1 {
			t.Errorf("there are %q", p.names(t))
		}
		p.clock.Time = p.clock.Add(-state.DefaultKeep)
	}
	inUse()
	if err := a.Consume(); err == nil {
		t.Error("a shared snapshot was consumed")
	}
	must(t, a.Release())
	inUse()
	put(t, s, state.Meta{Binding: binding}, "new")
	if device(t, b) != "old" {
		t.Error("a reader of the old snapshot reads another")
	}
	must(t, b.Release())
	c, err := s.Claim(t.Context(), binding)
	must(t, err)
	if device(t, c) != "new" {
		t.Error("the old snapshot was not replaced")
	}
	inUse()
	w, err := s.Create(t.Context(), state.Meta{Binding: binding})
	must(t, err)
	if _, err := w.Commit(t.Context()); !errors.Is(err, state.ErrClaimed) {
		t.Errorf("a snapshot that a resume has is replaced: %v", err)
	}
	must(t, c.Release())
	must(t, s.Delete(t.Context(), binding.Run))
}

// TestDeadClaim: the claim of a process ends with it, and the snapshot stays.
func TestDeadClaim(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	put(t, s, state.Meta{Binding: binding}, "text")
	child := exec.Command(os.Args[0], "-test.run=^TestChild$")
	child.Env = append(os.Environ(), "STATE_TEST_CHILD=claim", "STATE_TEST_HOME="+p.home)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), binding); !errors.Is(err, state.ErrClaimed) {
		t.Errorf("while another process has it: %v", err)
	}
	must(t, child.Process.Kill())
	child.Wait()
	snap, err := s.Claim(t.Context(), binding)
	must(t, err)
	must(t, snap.Consume())
}
