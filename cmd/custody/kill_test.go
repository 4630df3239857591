package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/hostd"
)

// machine is a process of QEMU or Firecracker as the host sees it.
type machine struct {
	pid     int
	name    string // its arguments
	started string // in clock ticks since boot: a later process with the same pid has another one
	uid     int
	spaces  []string // its mount and network namespaces
}

// machines returns the machines that a process has started, itself or through the shell that Firecracker ends with.
func machines(pid int) []machine {
	var all []machine
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(b)) {
			child, _ := strconv.Atoi(field)
			m := machine{pid: child, started: startOf(child)}
			exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", child))
			info, err := os.Stat(fmt.Sprintf("/proc/%d", child))
			if err == nil && strings.HasSuffix(exe, "sh") {
				all = append(all, machines(child)...)
			}
			if err != nil || !strings.Contains(exe, "qemu") && !strings.HasSuffix(exe, "/firecracker") {
				continue
			}
			if m.uid = int(info.Sys().(*syscall.Stat_t).Uid); m.uid < 1<<30 {
				continue // asked for its version only
			}
			for _, kind := range []string{"mnt", "net"} {
				space, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", child, kind))
				m.spaces = append(m.spaces, space)
			}
			all = append(all, m)
		}
	}
	return all
}

// startOf is the 22nd field of /proc/PID/stat (proc(5)), "" for no such process.
func startOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(b, []byte(") "))
	if fields := strings.Fields(string(rest)); len(fields) > 19 && fields[0] != "Z" {
		return fields[19]
	}
	return ""
}

// gone fails the test if anything of the machine remains. Its control group is removed by the next start.
func (d *door) gone(m machine) {
	d.Helper()
	eventually(d.T, fmt.Sprintf("gone: machine %d", m.pid), func() bool { return startOf(m.pid) != m.started })
	eventually(d.T, "left: its namespaces", func() bool {
		links, _ := filepath.Glob("/proc/[0-9]*/ns/*")
		return !slices.ContainsFunc(links, func(link string) bool {
			space, _ := os.Readlink(link)
			return slices.Contains(m.spaces, space)
		})
	})
}

// tidy fails the test if the home contains unexpected files.
func (d *door) tidy(gone ...machine) {
	d.Helper()
	for _, m := range gone {
		eventually(d.T, fmt.Sprintf("removed: the control group of %d", m.uid), func() bool {
			groups, _ := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/*custody/%d", m.uid))
			inner, _ := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/*/custody/%d", m.uid))
			return len(groups)+len(inner) == 0 || leased(m.uid)
		})
	}
	entries, err := os.ReadDir(d.home)
	if err != nil {
		d.Fatal(err)
	}
	for _, e := range entries {
		switch e.Name() {
		case "custody.db", "custody.db-wal", "custody.db-shm", "erasing", "host.yaml", "keys", "log", "log.checkpoints", "log.entries", "log.entries-wal", "log.entries-shm", "log.lock", "runs", "stamps", "templates", "trusted", "lost+found":
		default:
			d.Errorf("%s was left in the home", e.Name())
		}
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		d.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "/run/custody") || strings.Contains(line, d.home+"/") {
			d.Errorf("a mount was left: %s", line)
		}
	}
	if held := d.held(); len(held) > 0 {
		d.Errorf("files of the home are still held: %q", held)
	}
}

// leased reports whether a live machine has the uid.
func leased(uid int) bool {
	f, err := os.Open(fmt.Sprintf("/run/custody/uid/%d", uid))
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

// held names the files of the home, the nameless ones among them, that some process has open.
func (d *door) held() []string {
	var held []string
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if to, _ := os.Readlink(link); strings.HasPrefix(to, d.home+"/") {
			held = append(held, link+" -> "+to)
		}
	}
	return held
}

// logged returns the records in a run's log, as they lie there just now.
func (d *door) logged(run string) [][]byte {
	var bodies [][]byte
	segments, _ := filepath.Glob(filepath.Join(d.home, "runs", run, "*"+wal.SegmentSuffix))
	slices.Sort(segments)
	for _, path := range segments {
		for frame, err := range wal.ReadSegment(path) {
			if err != nil {
				break // it is being written
			}
			bodies = append(bodies, frame.Bytes)
		}
	}
	return bodies
}

func (d *door) logNames() []string {
	entries, _ := os.ReadDir(filepath.Join(d.home, "runs"))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

const busy = `i=0; while [ $i -lt 30 ]; do echo line $i; echo $i > f$i; i=$((i+1)); done; cat f*; sleep 0.3; echo end`

// Killed at any moment, a run leaves nothing behind but a record that verifies
// and holds all that was written before.
func TestKilled(t *testing.T) {
	for part := range 2 {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			d := newDoor(t)
			began := time.Now()
			d.script(0, busy)
			life := time.Since(began)
			const kills = 6
			for i := range kills {
				at := time.Duration((float64(i) + rand.Float64()) / kills * float64(life))
				d.killAt(at, i%2 == 0)
			}
			d.script(0, "echo still well")
			d.tidy()
		})
	}
}

func (d *door) killAt(at time.Duration, nextIsRun bool) {
	d.Helper()
	if at < time.Second {
		os.Remove(hostd.TierCache) // so that it is killed in the probe of KVM, too
	}
	before := d.logNames()
	cmd := d.command("run", "--", "sh", "-c", busy)
	var out screen
	cmd.Stdout = &out
	d.start(cmd)
	time.Sleep(at)
	vms := machines(cmd.Process.Pid)
	var id string
	if names := d.logNames(); len(names) > len(before) {
		id = names[len(names)-1] // names sort by time
	}
	written := d.logged(id)
	cmd.Process.Kill()
	cmd.Wait()
	for _, m := range vms {
		d.gone(m)
	}
	if nextIsRun {
		d.script(0, "true")
	}
	runs := d.runs()
	d.tidy(vms...)
	if _, err := os.Stat(filepath.Join(d.home, "runs", id)); id == "" || len(written) == 0 && err != nil {
		return // killed before anything was written: nothing is left to show
	}
	for _, r := range runs {
		if r.Status == "running" {
			d.Errorf("killed after %v: run %s is still listed as running", at, r.ID)
		}
	}
	d.verified(id)
	after := d.logged(id)
	if len(after) < len(written) {
		d.Fatalf("killed after %v: %d records were written, %d are left", at, len(written), len(after))
	}
	for i := range written {
		if !bytes.Equal(written[i], after[i]) {
			d.Errorf("killed after %v: record %d is not what was written", at, i+1)
		}
	}
	if text := d.must(0, "timeline", id, "--json").stdout; out.String() != "" {
		d.contains(text, `"kind":"run"`, `"kind":"step"`)
	}
}

// A machine that dies ends the run, with an error for the user and in the record.
func TestMachineKilled(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.script(0, "true") // template, snapshot and probe are made: what is killed below is the run's
	for _, after := range []string{"", "ready"} {
		cmd := d.command("run", "--", "sh", "-c", "echo ready; sleep 100")
		var out, errs screen
		cmd.Stdout, cmd.Stderr = &out, &errs
		d.start(cmd)
		out.await(t, after)
		var vms []machine
		eventually(t, "there: a machine", func() bool { vms = machines(cmd.Process.Pid); return len(vms) == 1 })
		unix.Kill(vms[0].pid, unix.SIGKILL)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitFailed {
			t.Errorf("exit code %d: %s", code, errs.String())
		}
		d.contains(errs.String(), "signal: killed")
		d.gone(vms[0])
		run := d.runs()[0]
		if run.Status != "interrupted" || run.Result != "interrupted" {
			t.Errorf("run is %s, %s: %s", run.Status, run.Result, errs.String())
		}
		if gaps := d.records(run.ID, "gap"); after != "" && (len(gaps) != 1 || gaps[0].Gap.Stage != "guest" || gaps[0].Step != "main") {
			t.Errorf("that the sensors' last reports may be missing is not recorded as such: %+v", gaps)
		}
		d.verified(run.ID)
		d.tidy(vms...)
	}
}

// The two ends of a run's life where a kill is most awkward: in a VM that is
// frozen, and while another run of the same home goes on.
func TestKilledBesideAnother(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	start := func(script string) (*exec.Cmd, *screen) {
		cmd := d.command("run", "-q", "--", "sh", "-c", script)
		out := new(screen)
		cmd.Stdout = out
		d.start(cmd)
		return cmd, out
	}
	survivor, out := start("echo one; sleep 6; echo two; exit 4")
	out.await(t, "one")
	victim, victimOut := start("echo here; sleep 100")
	victimOut.await(t, "here")
	victim.Process.Kill()
	victim.Wait()
	eventually(t, "in the store: both runs", func() bool { return len(d.runs()) == 2 })
	if runs := d.runs(); runs[0].Status != "interrupted" {
		t.Errorf("runs: %+v", runs)
	}
	survivor.Wait()
	if code := survivor.ProcessState.ExitCode(); code != 4 {
		t.Errorf("the run beside it exited %d", code)
	}
	for _, run := range d.runs() {
		d.verified(run.ID)
	}
	d.tidy()
}

func TestParallel(t *testing.T) {
	d := newDoor(t) // not in parallel with others: ten concurrent runs are enough
	type call struct {
		cmd       *exec.Cmd
		out, errs screen
	}
	const n = 10
	calls := make([]call, n)
	for i := range calls {
		c := &calls[i]
		c.cmd = d.command("run", "--", "sh", "-c", fmt.Sprintf("echo I am %d > f; cat f; exit %d", i, i))
		c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.errs
		d.start(c.cmd)
	}
	for i := range calls {
		c := &calls[i]
		c.cmd.Wait()
		if code := c.cmd.ProcessState.ExitCode(); code != i || c.out.String() != fmt.Sprintf("I am %d\n", i) {
			t.Errorf("run %d exited %d: %s%s", i, code, c.out.String(), c.errs.String())
		}
	}
	runs := d.runs()
	if len(runs) != n {
		t.Fatalf("%d runs, want %d", len(runs), n)
	}
	codes := map[int]bool{}
	for _, run := range runs {
		if run.Status != "sealed" || run.ExitCode == nil {
			t.Fatalf("run: %+v", run)
		}
		codes[*run.ExitCode] = true
		d.verified(run.ID)
		d.contains(d.must(0, "timeline", run.ID, "--json", "--kind", "output").stdout, fmt.Sprintf(`"text":"I am %d\n"`, *run.ExitCode))
	}
	if len(codes) != n {
		t.Errorf("exit codes %v", codes)
	}
	d.tidy()
}

// SIGTERM soon ends the making of a template's snapshot, and removes its files.
func TestTerminatedWhileASnapshotIsMade(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	shared, err := filepath.EvalSymlinks(filepath.Join(d.home, "templates"))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "templates")
	// Copied without links: a link more would change when the shared files were changed last.
	script := `mkdir "$2" && cp -a "$1/names" "$2/" && cd "$1" && for d in sha256-*; do
		mkdir "$2/$d" && cp -a "$d/kernel" "$d/initrd" "$d/root.erofs" "$d/template.json" "$2/$d/" || exit 1
	done`
	if out, err := exec.Command("sh", "-c", script, "sh", shared, own).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	templates := filepath.Join(d.home, "templates")
	if err := errors.Join(os.Remove(templates), os.Symlink(own, templates)); err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Duration{time.Second, 5 * time.Second} {
		cmd := d.command("run", "--", "true")
		var stderr screen
		cmd.Stderr = &stderr
		d.start(cmd)
		time.Sleep(at)
		vms := machines(cmd.Process.Pid)
		if at > time.Second && len(vms) != 1 {
			t.Errorf("after %v there are %d machines: this proves little", at, len(vms))
		}
		began := time.Now()
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if took := time.Since(began); took > 30*time.Second || cmd.ProcessState.ExitCode() != exitFailed {
			t.Errorf("after %v it ended in %v with %d: %s", at, took, cmd.ProcessState.ExitCode(), &stderr)
		}
		for _, m := range vms {
			d.gone(m)
		}
		if left, _ := filepath.Glob(own + "/build-*"); len(left) > 0 {
			t.Errorf("after %v there is %v", at, left)
		}
	}
}
