package qemu

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

// cagePrefix is the parent of every VM's control group.
const cagePrefix = "/custody"

const (
	memoryOverhead = 192 << 20 // QEMU's own memory: translation buffer, heap, disk cache
	maxThreads     = 96
	cpuPeriod      = 100_000 // microseconds
)

// cage is a VM's control group, version 1 or 2 as the host has it.
type cage struct {
	v1 cgroup1.Cgroup
	v2 *cgroup2.Manager
}

func newCage(uid, cpus int, memory int64) (*cage, error) {
	path := filepath.Join(cagePrefix, strconv.Itoa(uid))
	limit, pids := memory+memoryOverhead, int64(maxThreads)
	// One more CPU than the guest has: QEMU's own threads must not starve its virtual ones.
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
		return &cage{v2: m}, nil
	}
	c, err := cgroup1.New(cgroup1.StaticPath(path), &specs.LinuxResources{
		Memory: littleSwap(limit),
		Pids:   &specs.LinuxPids{Limit: &pids},
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
	}, cgroup1.WithHierarchy(usedControllers))
	if err != nil {
		return nil, fmt.Errorf("make cgroup %s: %w", path, err)
	}
	return &cage{v1: c}, nil
}

// noSwap keeps the group's memory, credentials included, off the host's swap. A kernel without
// accounting of swap (swapaccount=0) has no such file.
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

// littleSwap is the same as far as version 1 knows it: the group's memory is the last to be swapped, and
// with accounting of swap no more of it than the limit.
func littleSwap(limit int64) *specs.LinuxMemory {
	m := &specs.LinuxMemory{Limit: &limit, Swappiness: new(uint64)}
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"); err == nil {
		m.Swap = &limit // of memory and swap together
	}
	return m
}

// usedControllers is the part of the default hierarchy that has a limit of ours.
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

func (c *cage) add(pid int) error {
	if c.v2 != nil {
		return c.v2.AddProc(uint64(pid))
	}
	return c.v1.Add(cgroup1.Process{Pid: pid})
}

func (c *cage) remove() error {
	if c.v2 != nil {
		return c.v2.Delete()
	}
	return c.v1.Delete()
}

// removeCage removes what is left of the control group of a machine that is gone.
func removeCage(uid int) error {
	var errs []error
	for _, controller := range []string{"", "memory", "cpu", "pids"} {
		err := os.Remove(filepath.Join("/sys/fs/cgroup", controller, cagePrefix, strconv.Itoa(uid)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// v1Controller is a folder of the hierarchy in which every cage stands.
func v1Controller() string {
	if cgroups.Mode() == cgroups.Unified {
		return ""
	}
	return "memory"
}
