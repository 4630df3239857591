package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/state/archive"
	"github.com/custody-project/custody/state/archive/dir"
	"github.com/custody-project/custody/vmm/vmtest"
)

// stateStore is a host's store of paused sandboxes.
func stateStore(t *testing.T) *state.Store {
	t.Helper()
	home := t.TempDir()
	s, err := state.Open(filepath.Join(home, "paused"), state.Config{Keys: state.KeyFile(filepath.Join(home, "key"))})
	must(t, err)
	return s
}

// archived moves a saved state from one host to another through an archive. memory and disk are those of the template.
func (k kept) archived(t *testing.T, memory, disk *os.File) kept {
	t.Helper()
	binding := state.Binding{Run: "r-first", Tenant: "acme", Base: "sha256:base", Host: "host-1"}
	one, two := stateStore(t), stateStore(t)
	w, err := one.Create(t.Context(), state.Meta{Binding: binding})
	must(t, err)
	must(t, w.File(t.Context(), "memory", k.memory, memory))
	must(t, w.File(t.Context(), "disk", k.disk, disk))
	must(t, w.Part("devices", io.NewSectionReader(k.device, 0, 1<<62)))
	local, err := w.Commit(t.Context())
	must(t, err)

	storage, err := dir.New(filepath.Join(t.TempDir(), "archive"))
	must(t, err)
	key := state.SharedKeyFile(filepath.Join(t.TempDir(), "key"))
	must(t, key.Create())
	a, err := archive.Open(t.Context(), storage, archive.Config{Keys: key, Group: "eu"})
	must(t, err)
	snap, err := one.Claim(t.Context(), binding)
	must(t, err)
	receipt, err := a.Put(t.Context(), snap, time.Time{}, map[string]*os.File{"memory": memory, "disk": disk})
	must(t, err)
	must(t, snap.Consume())
	t.Logf("%d MiB on the host, %d MiB in the archive", local.Size>>20, receipt.Bytes>>20)

	_, err = a.Fetch(t.Context(), two, binding, "host-2")
	must(t, err)
	binding.Host, binding.Base = "host-2", "sha256:another base"
	snap, err = two.Claim(t.Context(), binding)
	must(t, err)
	k2 := kept{machine: k.machine, device: memfd(t), memory: memfd(t), disk: memfd(t), resumed: k.resumed}
	must(t, snap.File(t.Context(), "memory", k2.memory, nil))
	must(t, snap.File(t.Context(), "disk", k2.disk, nil))
	device, _, err := snap.Part("devices")
	must(t, err)
	_, err = io.Copy(k2.device, device)
	must(t, err)
	must(t, snap.Consume())
	for name, files := range map[string][2]*os.File{"memory": {k.memory, k2.memory}, "disk": {k.disk, k2.disk}, "devices": {k.device, k2.device}} {
		if !same(t, files[0], files[1]) {
			t.Errorf("the %s of the other host differs", name)
		}
	}
	return k2
}

// same compares two files.
func same(t *testing.T, a, b *os.File) bool {
	t.Helper()
	bufs := [2][]byte{make([]byte, 1<<20), make([]byte, 1<<20)}
	for at := int64(0); ; at += 1 << 20 {
		n, err := a.ReadAt(bufs[0], at)
		m, err2 := b.ReadAt(bufs[1], at)
		if n != m || !bytes.Equal(bufs[0][:n], bufs[1][:m]) {
			return false
		}
		if errors.Is(err, io.EOF) && errors.Is(err2, io.EOF) {
			return true
		}
		must(t, errors.Join(err, err2))
	}
}

// TestArchived: a sandbox that was archived continues on another host, whose template has another snapshot, with its processes.
func TestArchived(t *testing.T) {
	m := vmtest.Describe(t, vmtest.Driver(t), vmtest.Options{})
	s, r := begin(t, m, "r-first", nil)
	counter := sandbox.Step{
		Name: "counter", Argv: []string{"bash", "-c", `echo $$; i=0; while :; do echo $((i+=1)); sleep 0.05; done`}, Env: []string{"PATH=/usr/bin:/bin"}, Session: true, Live: true,
	}
	ended := make(chan error, 1)
	step := func(s *sandbox.Sandbox) {
		_, err := s.Step(t.Context(), counter)
		ended <- err
	}
	go step(s)
	await(t, "it counts", func() bool { return strings.Count(recordedFrom(t, r, "counter", 0), "\n") > 20 })
	must(t, suspension(s).Suspend(t.Context()))
	if err := <-ended; !errors.Is(err, sandbox.ErrSuspended) {
		t.Fatalf("the step: %v", err)
	}
	first := recordedFrom(t, r, "counter", 0)
	k := keep(t, s, m).archived(t, m.Image.Memory, m.Image.Disk)

	next := k.another(t)
	s, r = begin(t, next, "r-second", &k.resumed)
	counter.Attach, counter.Offsets[0] = true, int64(len(first))
	go step(s)
	await(t, "the step is attached", func() bool { return starts(r) > 0 })
	must(t, suspension(s).Thaw(t.Context()))
	await(t, "it counts on", func() bool { return strings.Count(recordedFrom(t, r, "counter", int64(len(first))), "\n") > 20 })
	whole := first + recordedFrom(t, r, "counter", int64(len(first)))
	for i, line := range strings.Split(whole[:strings.LastIndex(whole, "\n")], "\n")[1:] {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
}
