package main

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/redteam/simnet"
	"github.com/custody-project/custody/vmm"
)

// took reads the seconds that a script has printed.
func (d *door) took(stdout string) (seconds []float64) {
	d.Helper()
	for _, word := range strings.Fields(stdout) {
		var s float64
		if _, err := fmt.Sscan(word, &s); err != nil {
			d.Fatalf("%q: %v", stdout, err)
		}
		seconds = append(seconds, s)
	}
	return seconds
}

// A slow host makes a transfer longer, and only a limit makes it this long on all hosts: the tests compare with a lower bound.

func (d *door) canLimitDiskRate() string {
	d.project("version: 1\nlimits: {disk_rate: 2MiB}\n")
	s := d.custody("run", "-q", "--", "python3", "-c", `
import os, time
def timed(do):
    began = time.monotonic()
    do()
    print(time.monotonic() - began)
def write():
    with open("file", "wb") as f:
        for i in range(12): f.write(os.urandom(1 << 20))
        f.flush(); os.fsync(f.fileno())
timed(write)`)
	if s.code == exitFailed && strings.Contains(s.stderr, "limits.disk_rate: ") {
		_, reason, _ := strings.Cut(lastLine(s.stderr), "limits.disk_rate: ")
		return reason
	}
	d.exited(0, s)
	if t := d.took(s.stdout); len(t) != 1 || t[0] < 4 {
		d.Errorf("12 MiB were written at 2 MiB/s in %v s", t)
	}
	return ""
}

func (d *door) canLimitNetworkRate() string {
	d.onSite()
	d.project(rules("  - allow: "+simnet.Allowed) + "limits: {network_rate: 256KiB}\n")
	site := "https://" + simnet.Allowed
	s := d.must(0, "run", "-q", "--workdir", d.dir, "--", "bash", "-c", `
		now() { cut -d' ' -f1 /proc/uptime; }
		since() { awk "BEGIN { print $(now) - $1 }"; }
		began=$(now)
		curl -sS --cacert ca.pem `+site+`/big 2>/dev/null | head -c 2000000 >big
		since $began
		test $(stat -c %s big) = 2000000 || exit 2
		began=$(now)
		curl -sS --cacert ca.pem -T big `+site+`/swallow >answer
		since $began
		grep -q '`+simnet.Hello+`' answer`)
	if t := d.took(s.stdout); len(t) != 2 || t[0] < 3 || t[1] < 3 {
		d.Errorf("2 MB were received and sent at 256 KiB/s in %v s", t)
	}
	d.verified("last")
	return ""
}

// TestGVisorDiskRate: gVisor limits the rate of the disk where control groups have version 2; elsewhere the run ends with the reason why not.
func TestGVisorDiskRate(t *testing.T) {
	t.Parallel()
	d := newGVisorDoor(t)
	d.tier = vmm.GVisor
	reason := d.canLimitDiskRate()
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err != nil {
		t.Fatal(err)
	}
	if unified := st.Type == unix.CGROUP2_SUPER_MAGIC; unified != (reason == "") {
		t.Errorf("control groups of version 2: %v, %q", unified, reason)
	}
}
