package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const (
	groupParent    = "/custody"
	memoryOverhead = 256 << 20 // of the sentry itself: heap, page tables, network buffers
	maxThreads     = 16384     // of the sentry, and one for each thread of the workload
	cpuPeriod      = 100_000   // microseconds
	cgroupRoot     = "/sys/fs/cgroup"
)

// controllers are those of cgroup version 1 that a sandbox uses. They are removed in this order: only what is not frozen ends.
var controllers = []string{"freezer", "memory", "cpu", "pids"}

// group is a sandbox's control group, version 1 or 2 as the host has it.
type group struct {
	path string
	v1   cgroup1.Cgroup
	v2   *cgroup2.Manager
}

func newGroup(name string, cpus int, memory int64) (*group, error) {
	g := openGroup(name)
	limit, pids := memory+memoryOverhead, int64(maxThreads)
	// One more CPU than the workload has, for the sentry's own threads.
	quota, period := int64(max(cpus, 1)+1)*cpuPeriod, uint64(cpuPeriod)
	var err error
	if cgroups.Mode() == cgroups.Unified {
		var noSwap int64
		g.v2, err = cgroup2.NewManager(cgroupRoot, g.path, &cgroup2.Resources{
			Memory: &cgroup2.Memory{Max: &limit, Swap: &noSwap}, Pids: &cgroup2.Pids{Max: pids}, CPU: &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)},
			IO: &cgroup2.IO{}, // for limitDisk
		})
	} else {
		g.v1, err = cgroup1.New(cgroup1.StaticPath(g.path), &specs.LinuxResources{
			Memory: &specs.LinuxMemory{Limit: &limit, Swappiness: new(uint64)}, Pids: &specs.LinuxPids{Limit: &pids}, CPU: &specs.LinuxCPU{Quota: &quota, Period: &period},
		}, cgroup1.WithHierarchy(hierarchy))
	}
	if err != nil {
		return nil, fmt.Errorf("make cgroup %s: %w", g.path, err)
	}
	return g, nil
}

// openGroup returns the group of that name, which can then be removed only.
func openGroup(name string) *group { return &group{path: filepath.Join(groupParent, "gvisor-"+name)} }

func hierarchy() ([]cgroup1.Subsystem, error) {
	all, err := cgroup1.Default()
	if err != nil {
		return nil, err
	}
	var used []cgroup1.Subsystem
	for _, s := range all {
		for _, c := range controllers {
			if string(s.Name()) == c {
				used = append(used, s)
			}
		}
	}
	return used, nil
}

func (g *group) add(pid int) error {
	if g.v2 != nil {
		return g.v2.AddProc(uint64(pid))
	}
	return g.v1.Add(cgroup1.Process{Pid: pid})
}

// freezeLimit bounds the time in which the processes of a group stop.
const freezeLimit = 10 * time.Second

// setFrozen stops the group's processes, or lets them run, and returns when they have stopped. It returns if ctx is done, also if
// another call changes the state again and again.
func (g *group) setFrozen(ctx context.Context, frozen bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, freezeLimit, fmt.Errorf("its processes did not change their state within %v", freezeLimit))
	defer cancel()
	file, value, events, event := g.freezer(frozen)
	for {
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("freeze or thaw the sandbox: %w", err)
		}
		b, err := os.ReadFile(events)
		if err != nil {
			return fmt.Errorf("freeze or thaw the sandbox: %w", err)
		}
		if slices.Contains(strings.Split(strings.TrimSpace(string(b)), "\n"), event) {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("freeze or thaw the sandbox: %w", context.Cause(ctx))
		}
	}
}

// freezer returns the file and the value to write for a state, and the file and the line that report it.
func (g *group) freezer(frozen bool) (file, value, events, event string) {
	if g.v2 == nil {
		file, value = filepath.Join(cgroupRoot, "freezer", g.path, "freezer.state"), "THAWED"
		if frozen {
			value = "FROZEN"
		}
		return file, value, file, value
	}
	dir, value := filepath.Join(cgroupRoot, g.path), "0"
	if frozen {
		value = "1"
	}
	return filepath.Join(dir, "cgroup.freeze"), value, filepath.Join(dir, "cgroup.events"), "frozen " + value
}

// limitDisk limits the bytes per second that the group reads from and writes to a block device, each; 0 is no limit.
func (g *group) limitDisk(disk *os.File, bytesPerSecond int64) error {
	if bytesPerSecond == 0 {
		return nil
	}
	if g.v2 == nil {
		return errors.New("limits.disk_rate: under gvisor it needs control groups of version 2, and this host has version 1, " +
			"which does not limit writes that the kernel delays: boot the host with systemd.unified_cgroup_hierarchy=1, require another tier, or remove the limit from custody.yaml and disk_rate from the quotas of host.yaml")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(disk.Fd()), &st); err != nil {
		return err
	}
	number, rate := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), strconv.FormatInt(bytesPerSecond, 10)
	line := number + " rbps=" + rate + " wbps=" + rate
	if err := os.WriteFile(filepath.Join(cgroupRoot, g.path, "io.max"), []byte(line), 0); err != nil {
		return fmt.Errorf("limits.disk_rate (the controller io of control groups is needed): %w", err)
	}
	return nil
}

// dirs are the group's directories.
func (g *group) dirs() []string {
	if cgroups.Mode() == cgroups.Unified {
		return []string{filepath.Join(cgroupRoot, g.path)}
	}
	var all []string
	for _, c := range controllers {
		all = append(all, filepath.Join(cgroupRoot, c, g.path))
	}
	return all
}

// outOfMemory reports whether the kernel has killed a process of the group because of its memory limit.
func (g *group) outOfMemory() bool {
	for _, dir := range g.dirs() {
		for _, name := range []string{"memory.oom_control", "memory.events"} { // version 1 and 2
			b, _ := os.ReadFile(filepath.Join(dir, name))
			for line := range strings.Lines(string(b)) {
				if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" && f[1] != "0" {
					return true
				}
			}
		}
	}
	return false
}

// removeLimit bounds the time in which killed processes give the group up.
const removeLimit = 10 * time.Second

// remove kills all processes of the group and removes it. A group that does not exist is no error.
func (g *group) remove() error {
	var errs []error
	for _, dir := range g.dirs() {
		errs = append(errs, removeDir(dir))
	}
	return errors.Join(errs...)
}

func removeDir(dir string) error {
	wait := 250 * time.Microsecond
	for end := time.Now().Add(removeLimit); ; time.Sleep(wait) {
		wait = min(2*wait, 4*time.Millisecond)
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		thawDir(dir)
		if err := killAll(dir); err != nil {
			return err
		}
	}
}

// thawDir lets frozen processes run, so that they can end.
func thawDir(dir string) {
	_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0)
	_ = os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0)
}

func killAll(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, word := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return err
}
