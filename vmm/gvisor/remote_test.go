package gvisor_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/gvisor"
	"github.com/custody-project/custody/vmm/remote/remotetest"
	"github.com/custody-project/custody/vmm/vmtest"
)

func TestMain(m *testing.M) {
	privseptest.Main(m, func() error {
		return remotetest.Work(func(c *privsep.Conn) vmm.Driver { return gvisor.NewRemote(c) })
	})
}

// describe returns a container that is named after the test.
func describe(t *testing.T) (*gvisor.Driver, vmm.Machine) {
	t.Helper()
	d := vmtest.GVisor(t)
	m := vmtest.Describe(t, d, vmtest.Options{})
	m.ID = strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	return d, m
}

// traces are what the container leaves on the host.
func traces(t *testing.T, m vmm.Machine) (all []string) {
	t.Helper()
	for _, pattern := range []string{"/run/custody/gvisor/" + m.ID + "-*", "/sys/fs/cgroup/*/custody/gvisor-" + m.ID + "-*", "/sys/fs/cgroup/custody/gvisor-" + m.ID + "-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	disks, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range disks {
		if b, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(b), filepath.Dir(m.Scratch.Name())+"/") {
			all = append(all, path)
		}
	}
	return all
}

// awaitNone waits until the container has left nothing: the kernel detaches disks a moment after their last user has ended.
func awaitNone(t *testing.T, m vmm.Machine) {
	t.Helper()
	var left []string
	for range 3000 {
		if left = traces(t, m); len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("left: %q", left)
}

// TestRemoteEnds: a container ends with its server, the worker gets the reason, and nothing is left.
func TestRemoteEnds(t *testing.T) {
	t.Parallel()
	d, m := describe(t)
	s := d.NewServer(m)
	w := remotetest.Start(t, s)
	if err := w.Start(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, operation := range []string{"freeze", "thaw", "freeze"} {
		if err := w.Do(t.Context(), operation); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
	}
	if len(traces(t, m)) < 3 {
		t.Errorf("the traces of a container are %q: the test looks at wrong places", traces(t, m))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Do(t.Context(), "died"); err == nil || !strings.Contains(err.Error(), "runsc ended by itself: signal: killed") {
		t.Error(err)
	}
	awaitNone(t, m)
}

// TestHostileWorker: a worker that was taken over reaches the ends of its own container, and nothing else.
func TestHostileWorker(t *testing.T) {
	t.Parallel()
	d, m := describe(t)
	w := remotetest.Start(t, d.NewServer(m))
	fails := func(name, body, want string) {
		t.Helper()
		files, err := w.Raw(t.Context(), name, body)
		if err == nil || !strings.Contains(err.Error(), want) || len(files) > 0 {
			t.Errorf("%s %s: %v, %d files, want %q", name, body, err, len(files), want)
		}
	}
	for name, body := range map[string]string{"vm-freeze": `{}`, "vm-thaw": `{}`, "vm-changed": `{"Report":true}`, "vm-kill": `{}`, "vm-remove": `{}`, "vm-quote": `{}`, "vm-wait": `{}`} {
		fails(name, body, "has not been started")
	}
	fails("vm-start", `{"Image":"/etc/shadow"}`, "unknown field")
	fails("vm-start", `"/"`, "cannot unmarshal")
	files, err := w.Raw(t.Context(), "vm-start", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 {
		t.Fatalf("the start of a container without a network passes %d files", len(files))
	}
	for i, want := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		kind, err := unix.GetsockoptInt(int(files[i].Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil || kind != want {
			t.Errorf("file %d is a socket of type %d, want %d: %v", i, kind, want, err)
		}
		defer files[i].Close()
	}
	fails("vm-start", `{}`, "started or removed already")
	fails("vm-changed", `{"Report":true,"Path":"/etc"}`, "unknown field")
	fails("vm-freeze", `{"Group":"/"}`, "unknown field")
	for range 3 { // no result of a scan before is read
		files, err := w.Raw(t.Context(), "vm-changed", `{"Report":true}`)
		if err != nil || len(files) != 1 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		if mode, err := unix.FcntlInt(files[0].Fd(), unix.F_GETFL, 0); err != nil || mode&unix.O_ACCMODE != unix.O_RDONLY {
			t.Errorf("the result can be written: %#x, %v", mode, err)
		}
		if b, err := io.ReadAll(files[0]); err != nil || !strings.HasSuffix(string(b), "{\"end\":true}\n") {
			t.Errorf("the result is %q, %v", b, err)
		}
		files[0].Close()
	}
	if _, err := w.Raw(t.Context(), "vm-remove", `{}`); err != nil {
		t.Error(err)
	}
	fails("vm-changed", `{"Report":true}`, "was removed")
	fails("vm-start", `{}`, "started or removed already")
	awaitNone(t, m)
}

// TestWorkerKilled: a container whose worker has gone ends with its server, also one that the worker has frozen.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	d, m := describe(t)
	s := d.NewServer(m)
	w := remotetest.Start(t, s)
	if err := w.Start(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := w.Do(t.Context(), "freeze"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	awaitNone(t, m)
}

// TestFlood: a worker that makes more calls than can be carried out, which wait or contradict each other, does not keep its container from being removed.
func TestFlood(t *testing.T) {
	t.Parallel()
	d, m := describe(t)
	s := d.NewServer(m)
	w := remotetest.Start(t, s)
	if err := w.Start(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	var floods sync.WaitGroup
	for name, body := range map[string]string{"vm-freeze": `{}`, "vm-thaw": `{}`, "vm-changed": `{"Report":true}`, "vm-wait": `{}`} {
		floods.Go(func() { _ = w.Flood(t.Context(), name, body, 100) }) // its result comes behind the calls, if at all
	}
	time.Sleep(200 * time.Millisecond) // while they are carried out
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	floods.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	awaitNone(t, m)
}
