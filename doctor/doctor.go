// Package doctor checks what a host supports and whether its store, logs and exporters work. It tries
// operations instead of looking for files.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy/fence"
)

// Grade is the severity of a finding.
type Grade string

// The grades. Missing means that runs cannot work.
const (
	OK      Grade = "ok"
	Warn    Grade = "warn"
	Missing Grade = "missing"
)

// Finding is the result of one check.
type Finding struct {
	Name   string `json:"name"`
	Grade  Grade  `json:"grade"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// machine checks the machine itself. home is $CUSTODY_HOME.
func machine(ctx context.Context, home string) []Finding {
	fs := []Finding{kernel(), root()}
	fs = append(fs, programs()...)
	return append(fs, cgroup(), network(ctx, home), disk(home), fsync(home), memory(), clock())
}

func kernel() Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Finding{"kernel", Warn, err.Error(), ""}
	}
	return Finding{"kernel", OK, fmt.Sprintf("%s %s, %d CPUs", unix.ByteSliceToString(u.Release[:]), runtime.GOARCH, runtime.NumCPU()), ""}
}

func root() Finding {
	if os.Geteuid() != 0 {
		return Finding{"rights", Missing, "not root", "run custody with sudo: it needs root to confine each VM"}
	}
	return Finding{"rights", OK, "root", ""}
}

// programs checks the programs that Custody starts, and names the package of a missing one.
func programs() []Finding {
	qemu := map[string][2]string{
		"amd64": {"qemu-system-x86_64", "qemu-system-x86"}, "arm64": {"qemu-system-aarch64", "qemu-system-arm"},
	}[runtime.GOARCH]
	var fs []Finding
	for _, p := range [][2]string{qemu, {"mkfs.ext4", "e2fsprogs"}, {"mkfs.erofs", "erofs-utils"}, {"mmdebstrap", "mmdebstrap"}, {"dpkg-deb", "dpkg"}} {
		path, err := exec.LookPath(p[0])
		if err != nil {
			fs = append(fs, Finding{p[0], Missing, "not installed", "apt-get install " + p[1]})
			continue
		}
		fs = append(fs, Finding{p[0], OK, path, ""})
	}
	return fs
}

func cgroup() Finding {
	switch cgroups.Mode() {
	case cgroups.Unified:
		return Finding{"cgroups", OK, "version 2", ""}
	case cgroups.Legacy, cgroups.Hybrid:
		return Finding{"cgroups", OK, "version 1", ""}
	}
	return Finding{"cgroups", Missing, "not mounted", "mount cgroup2 on /sys/fs/cgroup"}
}

func network(ctx context.Context, home string) Finding {
	began := time.Now()
	if err := fence.Check(ctx, home); err != nil {
		f := Finding{Name: "network", Grade: Missing, Detail: err.Error(), Hint: "no sandbox starts without its network: TUN, nf_tables and cgroups as docs/operations.md lists them"}
		if h := new(fence.CheckError); errors.As(err, &h) {
			f.Hint = h.Hint()
		}
		return f
	}
	took := time.Since(began).Round(time.Millisecond)
	return Finding{"network", OK, fmt.Sprintf("a namespace with a network interface, packet programs and tables made and removed in %v", took), ""}
}

// minFree is the free disk space, in bytes, below which a run is likely to be frozen.
const minFree = 2 << 30

func disk(home string) Finding {
	var st unix.Statfs_t
	if err := unix.Statfs(existing(home), &st); err != nil {
		return Finding{"disk", Warn, err.Error(), ""}
	}
	free := int64(st.Bavail) * st.Bsize
	f := Finding{"disk", OK, units.BytesSize(float64(free)) + " free at " + home, ""}
	if free < minFree {
		f.Grade, f.Hint = Warn, "a run is frozen when its record or scratch disk cannot be written"
	}
	return f
}

// fsync measures the duration of a write and fsync, the minimum latency of a durable event.
func fsync(home string) Finding {
	f, err := os.CreateTemp(existing(home), "doctor-")
	if err != nil {
		return Finding{"fsync", Warn, err.Error(), ""}
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const times = 10
	began := time.Now()
	for range times {
		_, err := f.Write(make([]byte, 4096))
		if err := errors.Join(err, f.Sync()); err != nil {
			return Finding{"fsync", Warn, err.Error(), ""}
		}
	}
	return Finding{"fsync", OK, fmt.Sprintf("%v for 4 KiB", (time.Since(began) / times).Round(10*time.Microsecond)), ""}
}

// existing returns path, or the nearest directory above it that exists.
func existing(path string) string {
	for ; path != "/" && path != "."; path = filepath.Dir(path) {
		if _, err := os.Stat(path); err == nil {
			break
		}
	}
	return path
}

func memory() Finding {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Finding{"memory", Warn, err.Error(), ""}
	}
	return Finding{"memory", OK, units.BytesSize(float64(uint64(info.Totalram)*uint64(info.Unit))) + " in all", ""}
}

// clock checks whether the kernel's clock is synchronised.
func clock() Finding {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return Finding{"clock", Warn, err.Error(), ""}
	}
	if state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0 {
		return Finding{"clock", Warn, "not synchronised: the times in the record are this host's own", "run an NTP client, such as chrony"}
	}
	return Finding{"clock", OK, fmt.Sprintf("synchronised, error at most %d us", t.Maxerror), ""}
}
