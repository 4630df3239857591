package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/redteam/simnet"
	"github.com/custody-project/custody/vmm"
)

// numbers reads what a script has printed.
func (d *door) numbers(stdout string) (all []float64) {
	d.Helper()
	for _, word := range strings.Fields(stdout) {
		var n float64
		if _, err := fmt.Sscan(word, &n); err != nil {
			d.Fatalf("%q: %v", stdout, err)
		}
		all = append(all, n)
	}
	return all
}

// A slow host makes a transfer longer, and only a limit makes it this long on all hosts: the tests have lower bounds of time.

func (d *door) canLimitDiskRate() string {
	d.project("version: 1\nlimits: {disk_rate: 2MiB}\n")
	if d.tier == vmm.GVisor {
		return d.canLimitDiskByGroup()
	}
	// The limit is that of reads and writes together. The kernel decides when it writes, so this reads the template's disk.
	s := d.must(0, "run", "-q", "--", "bash", "-c", `
		sectors() { awk '$3 == "vda" { print $6 }' /proc/diskstats; }
		before=$(sectors) began=$(cut -d' ' -f1 /proc/uptime)
		cat /usr/bin/* /usr/lib/*-linux-gnu/*.so* 2>/dev/null | head -c 60000000 >/dev/null
		awk "BEGIN { print $(cut -d' ' -f1 /proc/uptime) - $began, ($(sectors) - $before) / 2048 }"`)
	if n := d.numbers(s.stdout); len(n) != 2 || n[1] < 8 || n[1]/n[0] > 3 {
		d.Errorf("with a limit of 2 MiB/s, the seconds and MiB of a read are %v", n)
	}
	return ""
}

// canLimitDiskByGroup looks for the limits in the control group. When the kernel writes what a sandbox has written is its own decision.
func (d *door) canLimitDiskByGroup() string {
	cmd := d.command("run", "-q", "--", "sh", "-c", "echo ready; sleep 100")
	var out, errs screen
	cmd.Stdout, cmd.Stderr = &out, &errs
	d.start(cmd)
	eventually(d.T, "started or refused", func() bool {
		return strings.Contains(out.String(), "ready") || strings.Contains(errs.String(), "limits.disk_rate")
	})
	if _, reason, refused := strings.Cut(errs.String(), "limits.disk_rate: "); refused {
		cmd.Wait()
		reason, _, _ = strings.Cut(reason, "\n")
		return reason
	}
	if errs.String() != "" {
		d.Fatal(errs.String())
	}
	limits := 0
	for _, c := range below(cmd.Process.Pid) {
		for _, group := range c.groups {
			b, _ := os.ReadFile(filepath.Join(group, "io.max"))
			limits = max(limits, strings.Count(string(b), "rbps=2097152 wbps=2097152"))
		}
	}
	if limits != 2 {
		d.Errorf("%d disks of the sandbox have a limit, want 2", limits)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	return ""
}

// transfers is a script that receives and sends 2 MB, with the certificate in ca.pem, and prints how long each takes in seconds.
const transfers = `
	now() { cut -d' ' -f1 /proc/uptime; }
	since() { awk "BEGIN { print $(now) - $1 }"; }
	began=$(now)
	curl -sS --cacert ca.pem https://` + simnet.Allowed + `/big 2>/dev/null | head -c 2000000 >big
	since $began
	test $(stat -c %s big) = 2000000 || exit 2
	began=$(now)
	curl -sS --cacert ca.pem -T big https://` + simnet.Allowed + `/swallow >answer
	since $began
	grep -q '` + simnet.Hello + `' answer`

// transferred checks that transfers took as long as 256 KiB/s imply.
func (d *door) transferred(printed string) {
	d.Helper()
	if n := d.numbers(printed); len(n) != 2 || n[0] < 3 || n[1] < 3 {
		d.Errorf("2 MB were received and sent at 256 KiB/s in %v s", n)
	}
}

func (d *door) canLimitNetworkRate() string {
	d.onSite()
	d.project(rules("  - allow: "+simnet.Allowed) + "limits: {network_rate: 256KiB}\n")
	s := d.must(0, "run", "-q", "--workdir", d.dir, "--", "bash", "-c", transfers)
	d.transferred(s.stdout)
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
