package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy/fence"
	"github.com/custody-project/custody/vmm/qemu"
)

// clearError fails the test unless the call failed with an error with this text, and a hint.
func (d *door) clearError(s said, says string) {
	d.Helper()
	if s.code != exitFailed || !strings.Contains(s.stderr, says) || !complaint.MatchString(s.stderr) {
		d.Errorf("exit code %d; want %d, %q and a hint:\n%s", s.code, exitFailed, says, s.stderr)
	}
}

// wrapped is a call of the program through another.
func (d *door) wrapped(args []string, through ...string) said {
	d.Helper()
	cmd := d.command(args...)
	through = append(through, cmd.Args...)
	by := exec.Command(through[0], through[1:]...)
	by.Env, by.Dir = cmd.Env, cmd.Dir
	return d.finish(by)
}

func TestMissingQEMU(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	if _, err := qemu.New(false); err != nil {
		t.Fatal(err)
	}
	// In a separate mount namespace, the program's directory is shown without QEMU.
	masked := `set -e
mkdir -p upper work
mount -t tmpfs none upper && mkdir upper/u upper/w
for f in /usr/bin/qemu-system-*; do mknod upper/u/${f##*/} c 0 0; done
mount -t overlay -o lowerdir=/usr/bin,upperdir=upper/u,workdir=upper/w none /usr/bin
exec "$@"`
	for _, args := range [][]string{{"run", "--", "true"}, {"run", "--cold", "--", "true"}} {
		d.clearError(d.wrapped(args, "unshare", "--mount", "sh", "-c", masked, "sh"), "qemu is not installed")
	}
	if s := d.wrapped([]string{"doctor"}, "unshare", "--mount", "sh", "-c", masked, "sh"); s.code != 1 || !strings.Contains(s.stdout, "qemu") {
		t.Errorf("doctor exits %d: %s%s", s.code, s.stdout, s.stderr)
	}
	if len(d.runs()) != 0 {
		t.Error("a run that could not begin is listed")
	}
}

// TestKernelRefuses: on a kernel that takes no packet program a run ends before a VM starts,
// with one line that reports why and one that describes what to do.
func TestKernelRefuses(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	copied := t.TempDir() // a program that this host has not seen yet, so its kernel is tried
	for _, name := range []string{"custody", "custody-guest"} {
		b, err := os.ReadFile(filepath.Join(d.bin, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, name), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d.bin = copied
	calls := filepath.Join(t.TempDir(), "calls")
	refusing := []string{"strace", "-f", "-qq", "-o", calls, "-e", "trace=bpf,execve", "-e", "inject=bpf:error=EINVAL", "--"}
	s := d.wrapped([]string{"run", "--", "true"}, refusing...)
	d.clearError(s, "cannot enforce a policy ("+fence.MinimumKernel+" or newer can)")
	if !strings.Contains(s.stderr, "invalid argument") || strings.Count(s.stderr, "\n") != 2 {
		t.Errorf("not the kernel's reason in one line, and a hint: %q", s.stderr)
	}
	traced, err := os.ReadFile(calls)
	if err != nil || !strings.Contains(string(traced), "INJECTED") {
		t.Fatalf("no call of bpf was refused: %v", err)
	}
	if strings.Contains(string(traced), "qemu-system") {
		t.Error("a VM was started")
	}
	if len(d.runs()) != 0 {
		t.Error("a run that could not begin is listed")
	}
	if s := d.wrapped([]string{"doctor"}, refusing...); s.code != 1 || !strings.Contains(s.stdout, "cannot enforce a policy") {
		t.Errorf("doctor exits %d: %s%s", s.code, s.stdout, s.stderr)
	}
	d.tidy()
	d.must(0, "run", "--", "true")
}

func TestNotRoot(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.script(0, "true")
	bundle := filepath.Join(d.dir, "bundle")
	d.must(0, "bundle", "last", "-o", bundle)
	nobody := []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}
	for _, dir := range []string{filepath.Dir(d.dir), d.dir, bundle} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	key, err := os.ReadFile(filepath.Join(d.home, "keys", "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	d.clearError(d.wrapped([]string{"run", "--", "true"}, nobody...), "this needs root")
	d.clearError(d.wrapped([]string{"template", "build", "base"}, nobody...), "this needs root")
	d.clearError(d.wrapped([]string{"runs"}, nobody...), "permission denied")
	// Checking a bundle needs neither root nor a home.
	s := d.wrapped([]string{"verify", bundle, "--key", string(key)}, nobody...)
	if s.code != 0 || !strings.Contains(s.stdout, "verified: ") {
		t.Errorf("verify exits %d: %s%s", s.code, s.stdout, s.stderr)
	}
}

// A snapshot's contents become the memory of every run: a template that was changed in any way after it was made is
// refused.
func TestBrokenTemplate(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.script(0, "true")
	shared, err := filepath.EvalSymlinks(filepath.Join(d.home, "templates"))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(d.home, "templates")
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", "--sparse=always", shared, own).CombinedOutput(); err != nil {
		t.Fatalf("copy the templates: %v: %s", err, out)
	}
	d.must(0, "run", "--", "true")
	d.project("version: 1\nlimits: {memory: 256MiB}\n")
	d.must(0, "run", "--", "true") // another shape
	os.Remove(filepath.Join(d.dir, "custody.yaml"))
	contents, err := filepath.EvalSymlinks(filepath.Join(own, "names", "base"))
	if err != nil {
		t.Fatal(err)
	}
	shape := func(mem string) string {
		found, _ := filepath.Glob(filepath.Join(contents, "shapes", "*-1-"+mem+"-2048"))
		if len(found) != 1 {
			t.Fatalf("shapes with %s MiB and the usual disk: %q", mem, found)
		}
		return found[0]
	}
	for _, c := range []struct {
		name, path string
		cold       bool
		change     func(path string) error
	}{
		{"a bit of the memory", filepath.Join(shape("512"), "memory"), false, flipBit},
		{"a bit of the device state", filepath.Join(shape("512"), "state"), false, flipBit},
		{"the device state of another shape", filepath.Join(shape("512"), "state"), false, func(path string) error {
			b, err := os.ReadFile(filepath.Join(shape("256"), "state"))
			if err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
			return err
		}},
		{"half a userland", filepath.Join(contents, "root.erofs"), false, func(path string) error { return os.Truncate(path, 10<<20) }},
		{"a bit of the kernel", filepath.Join(contents, "kernel"), true, flipBit},
		{"a bit of the initramfs", filepath.Join(contents, "initrd"), true, flipBit},
		{"another description", filepath.Join(contents, "template.json"), false, func(path string) error {
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, []byte(strings.Replace(string(b), `"amd64"`, `"amd65"`, 1)), 0o600)
			}
			return err
		}},
	} {
		saved := filepath.Join(d.dir, "saved")
		if out, err := exec.Command("cp", "-a", "--sparse=always", c.path, saved).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := c.change(c.path); err != nil {
			t.Fatal(err)
		}
		args := []string{"run", "--", "true"}
		if c.cold {
			args = []string{"run", "--cold", "--", "true"}
		}
		t.Log(c.name)
		d.clearError(d.custody(args...), "template is broken")
		os.Remove(c.path)
		if out, err := exec.Command("mv", saved, c.path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	d.must(0, "run", "--", "true")
	d.must(0, "run", "--cold", "--", "true")
	d.tidy()
}

// flipBit changes one bit in the middle of a file's data and restores its times.
func flipBit(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at, err := unix.Seek(int(f.Fd()), info.Size()/2, unix.SEEK_DATA)
	if err != nil {
		at = info.Size() / 2
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b, at); err != nil {
		return err
	}
	return os.Chtimes(path, info.ModTime(), info.ModTime())
}

func TestReadOnlyHome(t *testing.T) {
	t.Parallel()
	d := smallDisk(t, "tmpfs", "16m")
	if out, err := exec.Command("mount", "-o", "remount,ro", d.home).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d.clearError(d.custody("run", "--", "true"), "read-only file system")
}

// The cell's probes try what a workload would to get out, or to kill, blind or
// starve what watches it. Everything is refused, and the sensors see on.
func TestProbes(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	in := filepath.Join(d.dir, "in")
	if err := os.Mkdir(in, 0o755); err != nil {
		t.Fatal(err)
	}
	probes, err := os.ReadFile("../../guest/cell/testdata/probes.sh")
	if err != nil {
		t.Fatal(err)
	}
	d.write(filepath.Join(in, "probes.sh"), string(probes))
	mad := d.custody("run", "--", "sh", "-c", "kill -9 1; kill -9 -1; exit 0")
	s := d.custody("run", "--workdir", in, "--", "sh", "-c", "sh probes.sh; code=$?; /bin/echo still-seen; exit $code")
	if s.code != 0 || strings.Contains(s.stdout, "ESCAPED") || strings.Contains(s.stdout, "BROKEN") || strings.Count(s.stdout, "ok ") < 20 {
		t.Errorf("exit code %d:\n%s%s", s.code, s.stdout, s.stderr)
	}
	seen := slices.ContainsFunc(d.records("last", "exec"), func(r audit.Record) bool {
		return len(r.Exec.Argv) == 2 && r.Exec.Argv[1] == "still-seen"
	})
	if gaps := d.records("last", "gap"); !seen || len(gaps) > 0 {
		t.Errorf("seen: %v, losses: %v", seen, gaps)
	}
	for _, run := range d.runs() {
		d.verified(run.ID)
	}
	if mad.code != 0 && mad.code != 137 { // the shell's own kill -1 spares it
		t.Errorf("killing everything exits %d: %s", mad.code, mad.stderr)
	}
}
