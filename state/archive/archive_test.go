package archive_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/state/archive"
	"github.com/custody-project/custody/state/archive/dir"
)

var binding = state.Binding{
	Run: "r-01kaaaaaaaaaaaaaaaaaaaaaaa", Tenant: "acme", Project: "build", Template: "sha256:t", Base: "sha256:b", Policy: "sha256:p", Tier: "qemu-tcg", Host: "host-1",
}

func key(t testing.TB) state.SharedKeyFile {
	t.Helper()
	k := state.SharedKeyFile(filepath.Join(t.TempDir(), "archive.key"))
	must(t, k.Create())
	return k
}

// host is a host's store of paused sandboxes.
type host struct {
	name, dir string
	*state.Store
}

func newHost(t testing.TB, name string) *host {
	t.Helper()
	return openHost(t, name, t.TempDir())
}

func openHost(t testing.TB, name, home string) *host {
	t.Helper()
	h := &host{name: name, dir: filepath.Join(home, "paused")}
	var err error
	h.Store, err = state.Open(h.dir, state.Config{Keys: state.KeyFile(filepath.Join(home, "key"))})
	must(t, err)
	return h
}

func (h *host) binding() state.Binding {
	b := binding
	b.Host = h.name
	return b
}

// names lists the files of the store, without its lock.
func (h *host) names(t testing.TB) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(h.dir)
	must(t, err)
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// pause stores a snapshot with device in it, and returns the bases of its parts.
func (h *host) pause(t testing.TB, device string) map[string]*os.File {
	t.Helper()
	files := make([]*os.File, 2)
	for i, second := range []string{"base", "changed"} {
		f, err := os.CreateTemp(t.TempDir(), "")
		must(t, err)
		t.Cleanup(func() { f.Close() })
		must(t, f.Truncate(2*state.PageSize))
		_, err = f.WriteAt([]byte("base"), 0)
		must(t, err)
		_, err = f.WriteAt([]byte(second), state.PageSize)
		must(t, err)
		files[i] = f
	}
	w, err := h.Create(t.Context(), state.Meta{Binding: h.binding(), Keep: time.Hour})
	must(t, err)
	must(t, w.File(t.Context(), "memory", files[1], files[0]))
	must(t, w.Part("device", strings.NewReader(device)))
	_, err = w.Commit(t.Context())
	must(t, err)
	return map[string]*os.File{"memory": files[0]}
}

// resume returns what the snapshot has, and removes it.
func (h *host) resume(t testing.TB) (memory, device string) {
	t.Helper()
	snap, err := h.Claim(t.Context(), h.binding())
	must(t, err)
	f, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer f.Close()
	must(t, snap.File(t.Context(), "memory", f, nil))
	b, err := os.ReadFile(f.Name())
	must(t, err)
	r, _, err := snap.Part("device")
	must(t, err)
	d, err := io.ReadAll(r)
	must(t, err)
	must(t, snap.Consume())
	return string(bytes.Trim(b[:state.PageSize], "\x00")) + string(bytes.Trim(b[state.PageSize:], "\x00")), string(d)
}

// archive moves the snapshot to an archive.
func (h *host) archive(t testing.TB, a *archive.Archive, bases map[string]*os.File) (archive.Receipt, error) {
	t.Helper()
	snap, err := h.Claim(t.Context(), h.binding())
	must(t, err)
	r, err := a.Put(t.Context(), snap, time.Time{}, bases)
	if err == nil {
		must(t, snap.Consume())
	}
	must(t, snap.Release())
	return r, err
}

func open(t testing.TB, o archive.Objects, k state.Wrapper) *archive.Archive {
	t.Helper()
	a, err := archive.Open(t.Context(), o, archive.Config{Keys: k, Group: "eu"})
	must(t, err)
	return a
}

// large is some MiB that do not compress.
func large(seed uint64) string {
	b, x := make([]byte, 3<<20), seed
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return string(b)
}

// TestMove archives a sandbox of one host, resumes it on another one, and moves it back.
func TestMove(t *testing.T) {
	storages(t, func(t *testing.T, o archive.Objects) {
		a, one, two := open(t, o, key(t)), newHost(t, "host-1"), newHost(t, "host-2")
		bases := one.pause(t, large(1))
		before, err := one.Stat(binding.Run)
		must(t, err)
		r, err := one.archive(t, a, bases)
		must(t, err)
		if got := one.names(t); len(got) > 0 {
			t.Errorf("host-1 has %q", got)
		}
		items, err := a.List(t.Context(), "acme")
		must(t, err)
		if len(items) != 1 || items[0].Run != binding.Run || items[0].Bytes != r.Bytes || r.Object != "tenant-acme/"+binding.Run+".snapshot" || len(r.SHA256) != 64 {
			t.Errorf("%+v, %+v", items, r)
		}
		if items, err := a.List(t.Context(), "another"); err != nil || len(items) > 0 {
			t.Errorf("another tenant has %+v, %v", items, err)
		}
		info, err := a.Stat(t.Context(), "acme", binding.Run)
		must(t, err)
		if info != r.Info || info.Created != before.Created || info.Expires != before.Expires || info.Host != "eu" {
			t.Errorf("%+v, want %+v", info, r.Info)
		}
		if err := o.List(t.Context(), "probe/", func(o archive.Object) error { return errors.New(o.Name) }); err != nil {
			t.Errorf("a probe is left: %v", err)
		}

		fetched, err := a.Fetch(t.Context(), two.Store, binding, two.name)
		must(t, err)
		if fetched.Host != "host-2" || fetched.Created != before.Created || fetched.Expires != before.Expires {
			t.Errorf("%+v", fetched)
		}
		if m, d := two.resume(t); m != "basechanged" || d != large(1) {
			t.Errorf("the memory has %q", m)
		}
		bases = two.pause(t, "again") // the archive still has the earlier state
		_, err = two.archive(t, a, bases)
		must(t, err)
		_, err = a.Fetch(t.Context(), one.Store, binding, one.name)
		must(t, err)
		if m, d := one.resume(t); m != "basechanged" || d != "again" {
			t.Errorf("the memory has %q, the device %q", m, d)
		}
		must(t, a.Delete(t.Context(), "acme", binding.Run))
		if _, err := a.Fetch(t.Context(), one.Store, binding, one.name); !errors.Is(err, archive.ErrNotFound) {
			t.Errorf("after the deletion: %v", err)
		}
	})
}

// TestFetchChecks: an archived state is fetched for what it belongs to, by the group that archived it, with its key.
func TestFetchChecks(t *testing.T) {
	d, err := dir.New(filepath.Join(t.TempDir(), "archive"))
	must(t, err)
	k, one, two := key(t), newHost(t, "host-1"), newHost(t, "host-2")
	a := open(t, d, k)
	_, err = one.archive(t, a, one.pause(t, "text"))
	must(t, err)
	name, err := archive.Name("mallory", binding.Run) // who can write to the storage copies it
	must(t, err)
	content, err := os.ReadFile(filepath.Join(string(d), "tenant-acme", binding.Run+".snapshot"))
	must(t, err)
	must(t, d.Put(t.Context(), name, bytes.NewReader(content)))
	want := func(change func(*state.Binding)) state.Binding {
		b := binding
		change(&b)
		return b
	}
	another, err := archive.Open(t.Context(), d, archive.Config{Keys: k, Group: "us"})
	must(t, err)
	for name, c := range map[string]struct {
		a    *archive.Archive
		want state.Binding
		what state.Bound
		err  error
	}{
		"tenant":   {a, want(func(b *state.Binding) { b.Tenant = "mallory" }), state.BoundTenant, nil},
		"project":  {a, want(func(b *state.Binding) { b.Project = "x" }), state.BoundProject, nil},
		"tier":     {a, want(func(b *state.Binding) { b.Tier = "x" }), state.BoundTier, nil},
		"template": {a, want(func(b *state.Binding) { b.Template = "x" }), state.BoundTemplate, nil},
		"policy":   {a, want(func(b *state.Binding) { b.Policy = "x" }), state.BoundPolicy, nil},
		"group":    {another, binding, state.BoundGroup, nil},
		"monitor":  {a.For("eu, qemu 8"), binding, state.BoundGroup, nil},
		"key":      {open(t, d, key(t)), binding, "", state.ErrNoKey},
		"run":      {a, want(func(b *state.Binding) { b.Run = "r-1" }), "", archive.ErrNotFound},
	} {
		_, err := c.a.Fetch(t.Context(), two.Store, c.want, two.name)
		var b *state.BoundError
		if err == nil || c.err != nil && !errors.Is(err, c.err) || c.what != "" && (!errors.As(err, &b) || b.What != c.what) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := two.names(t); len(got) > 0 {
		t.Errorf("host-2 has %q", got)
	}
}

// TestReplace: a later state replaces an earlier one and one that is damaged; an earlier one does not replace a later one.
func TestReplace(t *testing.T) {
	storages(t, func(t *testing.T, o archive.Objects) {
		a, one, two := open(t, o, key(t)), newHost(t, "host-1"), newHost(t, "host-2")
		name, err := archive.Name("acme", binding.Run)
		must(t, err)
		must(t, o.Put(t.Context(), name, strings.NewReader("damaged")))
		early := one.pause(t, "early")
		time.Sleep(2 * time.Millisecond) // times have milliseconds
		_, err = two.archive(t, a, two.pause(t, "late"))
		must(t, err)
		if _, err := one.archive(t, a, early); !errors.Is(err, archive.ErrNewer) {
			t.Errorf("an earlier state: %v", err)
		}
		if got := one.names(t); len(got) != 1 {
			t.Errorf("host-1 has %q", got)
		}
		time.Sleep(2 * time.Millisecond)
		_, err = one.archive(t, a, one.pause(t, "latest"))
		must(t, err)
		_, err = a.Fetch(t.Context(), two.Store, binding, two.name)
		must(t, err)
		if _, d := two.resume(t); d != "latest" {
			t.Errorf("the device has %q", d)
		}
	})
}

// TestSweep: what has expired is removed, and nothing else.
func TestSweep(t *testing.T) {
	storages(t, func(t *testing.T, o archive.Objects) {
		now := time.Now()
		a, err := archive.Open(t.Context(), o, archive.Config{Keys: key(t), Group: "eu", Now: func() time.Time { return now }})
		must(t, err)
		one := newHost(t, "host-1")
		_, err = one.archive(t, a, one.pause(t, "text")) // expires in an hour
		must(t, err)
		must(t, o.Put(t.Context(), "tenant-acme/r-1.snapshot", strings.NewReader("damaged")))
		for _, c := range []struct {
			after   time.Duration
			removed int
		}{{59 * time.Minute, 0}, {2 * time.Minute, 1}, {time.Hour, 0}} {
			now = now.Add(c.after)
			removed, err := a.Sweep(t.Context(), "acme")
			if err != nil || len(removed) != c.removed {
				t.Errorf("after %v more: %+v, %v", c.after, removed, err)
			}
		}
		if items, err := a.List(t.Context(), "acme"); err != nil || len(items) != 1 || items[0].Run != "r-1" {
			t.Errorf("%+v, %v", items, err)
		}
	})
}

// TestErase: an erasure removes the versions that a bucket keeps, and lists nothing.
func TestErase(t *testing.T) {
	s := start(t, false, "--versioning-dir", t.TempDir())
	b := s.bucket(t)
	a, one := open(t, b, key(t)), newHost(t, "host-1")
	s.keepVersions(t)
	_, err := one.archive(t, a, one.pause(t, "first"))
	must(t, err)
	s.spoil(t, "custody/prod/tenant-acme/"+binding.Run+".snapshot")
	name, err := archive.Name("acme", binding.Run)
	must(t, err)
	if rest, err := b.Rest(t.Context(), name); err != nil || len(rest) < 3 {
		t.Fatalf("the bucket has %q, %v", rest, err)
	}
	e, err := a.Erase(t.Context(), "acme", binding.Run)
	if err != nil || len(e.Left) > 0 || len(e.Removed) < 3 || !strings.Contains(e.Removed[0], name) {
		t.Errorf("%+v, %v", e, err)
	}
	e, err = a.Erase(t.Context(), "acme", binding.Run)
	if err != nil || len(e.Left) > 0 || len(e.Removed) > 0 {
		t.Errorf("again: %+v, %v", e, err)
	}
}

// TestPlaintext: neither the storage nor the store has bytes of the memory in plain text.
func TestPlaintext(t *testing.T) {
	root := t.TempDir()
	d, err := dir.New(filepath.Join(root, "archive"))
	must(t, err)
	a, one, two := open(t, d, key(t)), openHost(t, "host-1", filepath.Join(root, "1")), openHost(t, "host-2", filepath.Join(root, "2"))
	secret := "a password in the memory"
	_, err = one.archive(t, a, one.pause(t, secret))
	must(t, err)
	_, err = a.Fetch(t.Context(), two.Store, binding, two.name)
	must(t, err)
	files := 0
	must(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("%s has it", path)
		}
		return err
	}))
	if files < 4 {
		t.Errorf("there are only %d files", files)
	}
	if _, d := two.resume(t); d != secret {
		t.Error("the device differs")
	}
}

// TestOrder: a list has the order of the runs.
func TestOrder(t *testing.T) {
	d, err := dir.New(filepath.Join(t.TempDir(), "archive"))
	must(t, err)
	a := open(t, d, key(t))
	for _, name := range []string{"tenant-/r-2.snapshot", "tenant-/r-1.snapshot", "tenant-/else", "tenant-x/r-3.snapshot"} {
		must(t, d.Put(t.Context(), name, strings.NewReader("")))
	}
	items, err := a.List(t.Context(), "")
	must(t, err)
	if !slices.EqualFunc(items, []string{"r-1", "r-2"}, func(i archive.Item, run string) bool { return i.Run == run }) {
		t.Errorf("%+v", items)
	}
}
