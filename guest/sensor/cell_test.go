package sensor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

// cell is what the guest makes for a step: a cgroup, and an overlay that
// becomes the root of a mount and pid namespace. Its only program is the test
// binary itself, as /workload.
type cell struct {
	t      testing.TB
	sensor *Sensor
	dir    string
	root   string
	cgroup *os.File

	mu     sync.Mutex // guards events
	events []audit.Event
}

var testSettings = Settings{Boot: "boot", Run: "run", ReadOver: -1}

// newCell starts a sensor and a cell that it tracks as step "step".
func newCell(t testing.TB, set Settings) *cell {
	s, err := Load()
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &cell{t: t, sensor: s}
	c.prepare()
	must(t, s.Start(context.Background(), set, c.take))
	c.track()
	return c
}

func (c *cell) take(_ context.Context, e *audit.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, *e)
	return nil
}

func (c *cell) track() {
	info, err := c.cgroup.Stat()
	must(c.t, err)
	id := info.Sys().(*syscall.Stat_t).Ino
	must(c.t, c.sensor.Track(id, "step", c.root))
	c.t.Cleanup(func() { must(c.t, c.sensor.Untrack(id)) })
}

// prepare makes the cgroup and the overlay.
func (c *cell) prepare() {
	name := strings.ReplaceAll(c.t.Name(), "/", "_")
	c.dir = filepath.Join("/tmp", name)
	c.root = filepath.Join(c.dir, "root")
	for _, d := range []string{"root", "upper", "work", "lower/proc", "lower/dev", "lower/tmp", "lower/workspace"} {
		must(c.t, os.MkdirAll(filepath.Join(c.dir, d), 0o755))
	}
	must(c.t, os.WriteFile(filepath.Join(c.dir, "lower/workload"), nil, 0o755))
	must(c.t, os.WriteFile(filepath.Join(c.dir, "lower/workspace/given"), bytes.Repeat([]byte("given"), 1000), 0o644))
	must(c.t, unix.Mount("/init", filepath.Join(c.dir, "lower/workload"), "", unix.MS_BIND, ""))
	must(c.t, unix.Mount("overlay", c.root, "overlay", 0,
		fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", c.dir)))
	must(c.t, unix.Mount("/init", filepath.Join(c.root, "workload"), "", unix.MS_BIND, ""))
	cg := filepath.Join("/sys/fs/cgroup", name)
	must(c.t, os.Mkdir(cg, 0o755))
	f, err := os.Open(cg)
	must(c.t, err)
	c.cgroup = f
	c.t.Cleanup(func() {
		f.Close()
		must(c.t, os.Remove(cg))
		must(c.t, unix.Unmount(c.root, unix.MNT_DETACH))
		must(c.t, unix.Unmount(filepath.Join(c.dir, "lower/workload"), unix.MNT_DETACH))
		must(c.t, os.RemoveAll(c.dir))
	})
}

// command is a workload (see workload_test.go) in the cell.
func (c *cell) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/init", append([]string{"workload", "enter", c.root}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(c.cgroup.Fd()),
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID,
	}
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.Stderr = os.Stderr
	return cmd
}

// run runs a workload to its end and returns all events since the last call.
func (c *cell) run(args ...string) []audit.Event {
	c.t.Helper()
	if err := c.command(args...).Run(); err != nil {
		c.t.Fatalf("workload %q: %v", args, err)
	}
	return c.flush()
}

func (c *cell) flush() []audit.Event {
	c.t.Helper()
	must(c.t, c.sensor.Flush(context.Background()))
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events = nil
	return slices.DeleteFunc(events, func(e audit.Event) bool { // how the cell got its root
		return e.File != nil && e.File.Op == audit.FileChroot && e.File.Path == "/"
	})
}

// enter makes root the root of this mount namespace, and goes on as /workload.
func enter(root string, args []string) error {
	steps := []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return os.Chdir(root) },
		func() error { return unix.Mount(".", "/", "", unix.MS_MOVE, "") }, // pivot_root is not possible from an initramfs
		func() error { return unix.Chroot(".") },
		func() error { return os.Chdir("/") },
		func() error { return unix.Mount("proc", "/proc", "proc", 0, "") },
		func() error { return unix.Mount("devtmpfs", "/dev", "devtmpfs", 0, "") },
		func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") },
		func() error { return os.Chdir("/workspace") },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("enter the cell, step %d: %w", i, err)
		}
	}
	return syscall.Exec("/workload", append([]string{"/workload", "workload"}, args...), os.Environ())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
