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
	"testing/iotest"
	"time"

	"github.com/custody-project/custody/state"
)

// shared returns a key that hosts share.
func shared(t testing.TB) state.SharedKeyFile {
	t.Helper()
	k := state.SharedKeyFile(filepath.Join(t.TempDir(), "archive.key"))
	must(t, k.Create())
	return k
}

// archived is the binding of an export.
func archived() state.Binding {
	b := binding
	b.Host, b.Base = "archive", "sha256:of this host"
	return b
}

// export exports the snapshot of binding.
func export(t testing.TB, s *state.Store, k state.Wrapper, bases map[string]*os.File) []byte {
	t.Helper()
	snap, err := s.Claim(t.Context(), binding)
	must(t, err)
	var b bytes.Buffer
	info, err := snap.Export(t.Context(), &b, state.Elsewhere{Host: "archive", Keys: k}, bases)
	must(t, err)
	if info.Size != int64(b.Len()) || info.Base != state.NoBase || info.Host != "archive" || info.Expires != snap.Expires || info.Created != snap.Created {
		t.Errorf("the export of %+v is %+v of %d bytes", snap.Info, info, b.Len())
	}
	must(t, snap.Release())
	return b.Bytes()
}

// TestTransfer exports memories with random pages to a host with another key and another base, and from there to a third one. Each has the same memory.
func TestTransfer(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 8))
		k := shared(t)
		s := newPlace(t).open(t)
		base := random(r, 300)
		memory := append(bytes.Clone(base), make([]byte, 50*page)...)
		if seed%3 == 0 {
			memory = memory[:200*page] // shorter than its base
		}
		pages := len(memory) / page
		for range 40 {
			randomize(r, memory[r.IntN(pages)*page:][:page])
			clear(memory[r.IntN(pages)*page:][:page])
		}
		disk, device0 := random(r, 600), incompressible(seed + 1)[:r.IntN(1<<20)]
		baseFile := image(t, base)
		w, err := s.Create(t.Context(), state.Meta{Binding: binding})
		must(t, err)
		must(t, w.File(t.Context(), "memory", image(t, memory), baseFile))
		must(t, w.File(t.Context(), "disk", image(t, disk), nil))
		must(t, w.Part("device", bytes.NewReader(device0)))
		_, err = w.Commit(t.Context())
		must(t, err)

		content := export(t, s, k, map[string]*os.File{"memory": baseFile, "disk": nil})
		for host := range 2 {
			p := newPlace(t)
			s = p.open(t)
			info, err := s.Import(t.Context(), iotest.HalfReader(bytes.NewReader(content)), int64(len(content)), archived(), k, binding.Host)
			must(t, err)
			if got := p.names(t); len(got) != 1 || info.Base != state.NoBase || info.Host != binding.Host {
				t.Errorf("host %d has %q, %+v", host, got, info)
			}
			other := image(t, random(r, 100))
			snap, err := s.Claim(t.Context(), binding)
			must(t, err)
			for part, want := range map[string][]byte{"memory": memory, "disk": disk} {
				to := memfd(t)
				must(t, snap.File(t.Context(), part, to, other)) // its base is not used
				if !bytes.Equal(contents(t, to), want) {
					t.Fatalf("seed %d: the %s of host %d differs", seed, part, host)
				}
			}
			if device(t, snap) != string(device0) {
				t.Errorf("seed %d: the device of host %d differs", seed, host)
			}
			must(t, snap.Release())
			content = export(t, s, k, nil)
		}
	}
}

// TestImportChecks: an export is imported for what it belongs to, and with its key, before it expires, and otherwise nothing is left.
func TestImportChecks(t *testing.T) {
	k := shared(t)
	from := newPlace(t).open(t)
	put(t, from, state.Meta{Binding: binding, Keep: time.Hour}, string(incompressible(1)))
	content := export(t, from, k, nil)
	size := int64(len(content))
	another := state.SharedKeyFile(filepath.Join(t.TempDir(), "none"))
	bound := func(change func(*state.Binding)) state.Binding {
		b := archived()
		change(&b)
		return b
	}
	changed := func(at int) []byte {
		b := bytes.Clone(content)
		b[at] ^= 1
		return b
	}
	for _, c := range []struct {
		name    string
		content []byte
		size    int64
		want    state.Binding
		keys    state.Wrapper
		after   time.Duration
		err     error
		what    state.Bound
	}{
		{name: "tenant", want: bound(func(b *state.Binding) { b.Tenant = "x" }), what: state.BoundTenant},
		{name: "run", want: bound(func(b *state.Binding) { b.Run = "r-1" }), what: state.BoundRun},
		{name: "project", want: bound(func(b *state.Binding) { b.Project = "x" }), what: state.BoundProject},
		{name: "host", want: bound(func(b *state.Binding) { b.Host = "x" }), what: state.BoundGroup},
		{name: "tier", want: bound(func(b *state.Binding) { b.Tier = "x" }), what: state.BoundTier},
		{name: "template", want: bound(func(b *state.Binding) { b.Template = "x" }), what: state.BoundTemplate},
		{name: "policy", want: bound(func(b *state.Binding) { b.Policy = "x" }), what: state.BoundPolicy},
		{name: "expired", after: time.Hour, err: state.ErrExpired},
		{name: "no key", keys: another, err: state.ErrNoKey},
		{name: "another key", keys: shared(t), err: state.ErrNoKey},
		{name: "cut off", content: content[:size-1], err: state.ErrAltered},
		{name: "cut off, and its size", content: content[:size-1], size: size - 1, err: state.ErrAltered},
		{name: "too long", content: append(bytes.Clone(content), 0), err: state.ErrAltered},
		{name: "empty", content: []byte{}, err: state.ErrAltered},
		{name: "the last byte", content: changed(len(content) - 1), err: state.ErrAltered},
		{name: "a chunk", content: changed(len(content) - 700), err: state.ErrAltered},
		{name: "the wrapped key", content: changed(bytes.Index(content, []byte("-> custody-snapshot")) + 60), err: state.ErrAltered},
		{name: "the time", content: bytes.Replace(content, []byte(`"expires":"2026`), []byte(`"expires":"2027`), 1), err: state.ErrAltered},
		{name: "a bad run", want: state.Binding{Run: "../x"}},
	} {
		p := newPlace(t)
		s := p.open(t)
		p.clock.Time = p.clock.Add(c.after)
		if c.content == nil {
			c.content = content
		}
		if c.size == 0 {
			c.size = size
		}
		if c.keys == nil {
			c.keys = k
		}
		if c.want == (state.Binding{}) {
			c.want = archived()
		}
		_, err := s.Import(t.Context(), bytes.NewReader(c.content), c.size, c.want, c.keys, binding.Host)
		var b *state.BoundError
		switch {
		case err == nil, c.err != nil && !errors.Is(err, c.err), c.what != "" && (!errors.As(err, &b) || b.What != c.what):
			t.Errorf("%s: %v", c.name, err)
		}
		if got := p.names(t); len(got) > 0 {
			t.Errorf("%s: there are %q", c.name, got)
		}
	}
}

// TestImportOfLocal: a snapshot of a host is not imported, although its key is known.
func TestImportOfLocal(t *testing.T) {
	from := newPlace(t)
	put(t, from.open(t), state.Meta{Binding: binding}, "text")
	content, err := os.ReadFile(filepath.Join(from.dir, binding.Run+".snapshot"))
	must(t, err)
	var b *state.BoundError
	_, err = newPlace(t).open(t).Import(t.Context(), bytes.NewReader(content), int64(len(content)), binding, state.KeyFile(from.key), "host-2")
	if !errors.As(err, &b) || b.What != state.BoundBase {
		t.Errorf("%v", err)
	}
}

// TestImportErrors: an import that its reader, its context, or the budget ends leaves what was stored.
func TestImportErrors(t *testing.T) {
	k := shared(t)
	from := newPlace(t).open(t)
	put(t, from, state.Meta{Binding: binding}, string(incompressible(1)))
	content := export(t, from, k, nil)
	size := int64(len(content))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		ctx    context.Context
		r      io.Reader
		budget int64
		want   error
	}{
		"reader":  {t.Context(), io.MultiReader(bytes.NewReader(content), iotest.ErrReader(broken)), 0, broken},
		"context": {ended, bytes.NewReader(content), 0, context.Canceled},
		"budget":  {t.Context(), bytes.NewReader(content), size - 1, state.ErrBudget},
	} {
		p := newPlace(t)
		p.config.Budget = c.budget
		s := p.open(t)
		put(t, s, state.Meta{Binding: binding}, "old")
		if _, err := s.Import(c.ctx, c.r, size, archived(), k, binding.Host); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		snap, err := s.Claim(t.Context(), binding)
		must(t, err)
		if got := p.names(t); device(t, snap) != "old" || len(got) != 1 {
			t.Errorf("%s: %q", name, got)
		}
		must(t, snap.Release())
	}
}

// TestExportErrors: an export names all bases, expires in time, and needs its key.
func TestExportErrors(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	w, err := s.Create(t.Context(), state.Meta{Binding: binding})
	must(t, err)
	_, err = w.Pages("memory", page, nil)
	must(t, err)
	_, err = w.Commit(t.Context())
	must(t, err)
	snap, err := s.Claim(t.Context(), binding)
	must(t, err)
	defer snap.Release()
	none, k := map[string]*os.File{"memory": nil}, shared(t)
	for name, c := range map[string]struct {
		to    state.Elsewhere
		bases map[string]*os.File
		want  string
	}{
		"base":   {state.Elsewhere{Keys: k}, nil, "part memory: its base is missing"},
		"past":   {state.Elsewhere{Keys: k, Expires: p.clock.Time}, none, "cannot expire"},
		"future": {state.Elsewhere{Keys: k, Expires: p.clock.AddDate(11, 0, 0)}, none, "cannot expire"},
		"host":   {state.Elsewhere{Keys: k, Host: "a\n"}, none, "printable"},
		"key":    {state.Elsewhere{Keys: state.SharedKeyFile(filepath.Join(t.TempDir(), "k"))}, none, "copy"},
	} {
		if _, err := snap.Export(t.Context(), io.Discard, c.to, c.bases); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	with := binding
	with.Base = state.NoBase
	w, err = s.Create(t.Context(), state.Meta{Binding: with})
	must(t, err)
	if _, err := w.Pages("memory", page, bytes.NewReader(nil)); err == nil {
		t.Error("a part has a base although its snapshot has none")
	}
}
