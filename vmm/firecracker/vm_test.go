package firecracker_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/firecracker"
	"github.com/custody-project/custody/vmm/scratch"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/vmtest"
)

// TestRestored: a program runs in a machine that was restored from a snapshot.
func TestRestored(t *testing.T) {
	vmtest.Firecracker(t)
	m := vmtest.Restore(t, vmtest.Options{})
	if out := m.Bash("echo $((6*7)); uname -r"); !strings.HasPrefix(out, "42\n") {
		t.Errorf("output %q", out)
	}
}

// TestConfined: Firecracker has no rights on the host, and sees only the files of its machine.
func TestConfined(t *testing.T) {
	vmtest.Firecracker(t)
	m := vmtest.Restore(t, vmtest.Options{})
	pid, err := firecracker.PID(t.Context(), m.VM)
	check(t, err)
	status := statusOf(t, pid)
	uid := strings.Fields(status["Uid"])[0]
	if !strings.HasPrefix(uid, "112") || strings.Fields(status["Gid"])[0] != uid {
		t.Errorf("uid %s, gid %s", status["Uid"], status["Gid"])
	}
	for key, want := range map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000",
		"NoNewPrivs": "1", "Seccomp": "2", "Groups": "",
	} {
		if status[key] != want {
			t.Errorf("%s is %q, want %q", key, status[key], want)
		}
	}
	for _, kind := range []string{"mnt", "net", "pid", "ipc", "uts"} {
		space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		check(t, err)
		if ours, _ := os.Readlink("/proc/self/ns/" + kind); space == ours {
			t.Errorf("its %s namespace is that of the host", kind)
		}
	}
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	check(t, err)
	if !strings.Contains(string(group), "/custody/"+uid) {
		t.Errorf("its control groups are %s", group)
	}
	var names []string
	root := fmt.Sprintf("/proc/%d/root", pid)
	check(t, filepath.WalkDir(root+"/", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, strings.TrimPrefix(path, root+"/"))
		}
		return err
	}))
	for _, name := range names {
		if !slices.Contains([]string{
			"api.sock", "v.sock", "root", "scratch", "memory", "state", "firecracker", "firecracker.pid",
			"dev/kvm", "dev/net/tun", "dev/urandom", "dev/userfaultfd",
		}, name) && !strings.HasPrefix(name, "sys/") {
			t.Errorf("it sees %s", name)
		}
	}
	if files, _ := os.ReadDir("/run/custody/firecracker"); len(files) > 0 {
		t.Errorf("the host sees %v", files)
	}
}

// statusOf is /proc/PID/status.
func statusOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	defer f.Close()
	status := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		status[key] = strings.TrimSpace(value)
	}
	return status
}

// BenchmarkSnapshot saves the memory of a machine, and after two seconds what changed since.
func BenchmarkSnapshot(b *testing.B) {
	d := vmtest.Firecracker(b).(*firecracker.Driver)
	ctx, shape := b.Context(), template.Shape{CPUs: 1, Memory: 512 << 20, Disk: 2 << 30}
	base, err := vmtest.Templates(b).Open(ctx, "base")
	check(b, err)
	dir := b.TempDir()
	for b.Loop() {
		memory, err := os.Create(filepath.Join(dir, "memory"))
		check(b, err)
		img, err := base.Cold(ctx, memory, shape)
		check(b, err)
		disk, err := scratch.New(ctx, dir, filepath.Join(dir, "blank"), shape.Disk)
		check(b, err)
		m, err := firecracker.BootTracked(ctx, d, vmm.Machine{ID: "bench", Image: img, CPUs: shape.CPUs, Memory: shape.Memory, Scratch: disk})
		check(b, err)
		check(b, channel.AwaitReady(ctx, m.Channel()))
		save(b, m, memory, "full", "Full")
		time.Sleep(2 * time.Second)
		check(b, memory.Truncate(0))
		save(b, m, memory, "diff", "Diff")
		check(b, m.Destroy(context.WithoutCancel(ctx)))
		disk.Close()
		img.Close()
	}
}

// save freezes the machine, saves its memory, reports how long it took and the space of the file, and thaws the machine.
func save(b *testing.B, m vmm.VM, memory *os.File, name, kind string) {
	b.Helper()
	check(b, m.Freeze(b.Context()))
	began := time.Now()
	check(b, firecracker.SaveMemory(b.Context(), m, kind))
	b.ReportMetric(float64(time.Since(began).Milliseconds()), name+"-ms")
	info, err := memory.Stat()
	check(b, err)
	b.ReportMetric(float64(info.Sys().(*syscall.Stat_t).Blocks)*512/1e6, name+"-MB")
	check(b, m.Thaw(b.Context()))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
