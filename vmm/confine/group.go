package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// cgroupParent is the parent directory of every VM's control group.
const cgroupParent = "/custody"

const (
	memoryOverhead = 192 << 20 // of the machine monitor itself: heap, disk cache, and QEMU's translation buffer
	maxThreads     = 96
	cpuPeriod      = 100_000 // microseconds
)

// Group is a VM's control group, version 1 or 2 depending on the host: one of v1 and v2 is set.
type Group struct {
	path    string
	v1      cgroup1.Cgroup
	v2      *cgroup2.Manager
	unified *os.File // of version 2; nil unless Unified was called
}

// NewGroup makes the control group of the machine with this uid, which limits what its process uses: memory is that of
// the guest, in bytes.
func NewGroup(uid, cpus int, memory int64) (*Group, error) {
	path := filepath.Join(cgroupParent, strconv.Itoa(uid))
	limit, pids := memory+memoryOverhead, int64(maxThreads)
	// One CPU more than the guest has, so that the monitor's own threads do not starve the virtual CPUs.
	quota, period := int64(cpus+1)*cpuPeriod, uint64(cpuPeriod)
	if cgroups.Mode() == cgroups.Unified {
		m, err := cgroup2.NewManager("/sys/fs/cgroup", path, &cgroup2.Resources{
			Memory: &cgroup2.Memory{Max: &limit},
			Pids:   &cgroup2.Pids{Max: pids},
			CPU:    &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)},
		})
		if err == nil {
			err = noSwap(path)
		}
		if err != nil {
			return nil, fmt.Errorf("make cgroup %s: %w", path, err)
		}
		return &Group{path: path, v2: m}, nil
	}
	c, err := cgroup1.New(cgroup1.StaticPath(path), &specs.LinuxResources{
		Memory: noSwapV1(limit),
		Pids:   &specs.LinuxPids{Limit: &pids},
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
	}, cgroup1.WithHierarchy(usedControllers))
	if err != nil {
		return nil, fmt.Errorf("make cgroup %s: %w", path, err)
	}
	return &Group{path: path, v1: c}, nil
}

// noSwap keeps the group's memory, which can hold credentials, out of the host's swap. A kernel without
// swap accounting (swapaccount=0) lacks the file.
func noSwap(path string) error {
	f, err := os.OpenFile(filepath.Join("/sys/fs/cgroup", path, "memory.swap.max"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString("0")
	return errors.Join(err, f.Close())
}

// noSwapV1 comes as close to noSwap as version 1 can: the kernel avoids swapping the group's memory, and
// with swap accounting, memory and swap together do not exceed the limit.
func noSwapV1(limit int64) *specs.LinuxMemory {
	m := &specs.LinuxMemory{Limit: &limit, Swappiness: new(uint64)}
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"); err == nil {
		m.Swap = &limit // memory and swap together
	}
	return m
}

// usedControllers returns the controllers of the default hierarchy that NewGroup sets a limit with.
func usedControllers() ([]cgroup1.Subsystem, error) {
	all, err := cgroup1.Default()
	if err != nil {
		return nil, err
	}
	var used []cgroup1.Subsystem
	for _, s := range all {
		switch s.Name() {
		case cgroup1.Memory, cgroup1.Cpu, cgroup1.Pids:
			used = append(used, s)
		}
	}
	return used, nil
}

// Add moves a process to the group. Its later children are in the group as well.
func (c *Group) Add(pid int) error {
	if c.v2 != nil {
		return c.v2.AddProc(uint64(pid))
	}
	if c.unified != nil {
		if err := join(c.unified, pid); err != nil {
			return err
		}
	}
	return c.v1.Add(cgroup1.Process{Pid: pid})
}

// UsedMemory returns what the function UsedMemory does.
func (c *Group) UsedMemory() (int64, error) { return UsedMemory(c.path) }

// Remove removes the group, whose processes have ended.
func (c *Group) Remove() error {
	if c.v2 != nil {
		return errors.Join(c.closeUnified(), c.v2.Delete())
	}
	if c.unified == nil {
		return c.v1.Delete()
	}
	return errors.Join(c.closeUnified(), awaitEmpty(func() error { return removeUnified(c.path) }), c.v1.Delete())
}

// removeGroup removes the control group of a machine that has ended, as far as it still exists.
func removeGroup(uid int) error {
	var errs []error
	if cgroups.Mode() != cgroups.Unified {
		errs = append(errs, removeUnified(filepath.Join(cgroupParent, strconv.Itoa(uid))))
	}
	for _, controller := range []string{"", "memory", "cpu", "pids"} {
		err := os.Remove(filepath.Join("/sys/fs/cgroup", controller, cgroupParent, strconv.Itoa(uid)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// anyController returns a directory of /sys/fs/cgroup in which every VM has its control group.
func anyController() string {
	if cgroups.Mode() == cgroups.Unified {
		return ""
	}
	return "memory"
}
