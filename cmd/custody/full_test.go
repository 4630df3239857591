package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm"
)

// smallDisk gives the user a home on a separate disk: a tmpfs, or an ext4 in a file.
func smallDisk(t *testing.T, kind, size string) *door {
	t.Helper()
	d := &door{T: t, home: filepath.Join(t.TempDir(), "home"), dir: t.TempDir()}
	if err := os.Mkdir(d.home, 0o700); err != nil {
		t.Fatal(err)
	}
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "mode=700,size="+size, "custody-test", d.home)
	if kind == "ext4" {
		image := filepath.Join(d.dir, "disk")
		mkfs := exec.Command("mkfs.ext4", "-q", "-m", "0", image, size)
		mkfs.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin"}
		if out, err := mkfs.CombinedOutput(); err != nil {
			t.Fatalf("mkfs: %v: %s", err, out)
		}
		mount = exec.Command("mount", "-o", "loop", image, d.home)
	}
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", d.home).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	var err error
	if d.bin, err = furnish(d.home); err != nil {
		t.Fatal(err)
	}
	return d
}

// fill uses all the space that is left on the home's disk. It can be called repeatedly, until no other process can
// write.
func (d *door) fill() {
	d.Helper()
	d.fillTo(0)
}

// fillTo is fill, except for some bytes.
func (d *door) fillTo(left int64) {
	d.Helper()
	f, err := os.OpenFile(filepath.Join(d.home, "filler"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		if errors.Is(err, unix.ENOSPC) {
			return
		}
		d.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			d.Fatal(err)
		}
	}
	f.Sync()
	if info, err := f.Stat(); left > 0 && err == nil {
		if err := f.Truncate(info.Size() - left); err != nil {
			d.Fatal(err)
		}
	}
}

func (d *door) free() {
	d.Helper()
	if err := os.Remove(filepath.Join(d.home, "filler")); err != nil {
		d.Fatal(err)
	}
}

const frozen = "the sandbox is frozen until it can"

// A run that begins on a full disk waits, and reports that; nothing is lost, nothing runs unrecorded.
func TestDiskFullAtStart(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{true, false} {
		d := smallDisk(t, "tmpfs", "96m")
		if !fresh { // keys, store and what is known of KVM are there already
			d.script(0, "true")
		}
		d.fill()
		cmd := d.command("run", "--", "sh", "-c", "echo ran; exit 6")
		var out, errs screen
		cmd.Stdout, cmd.Stderr = &out, &errs
		d.start(cmd)
		errs.await(t, frozen)
		errs.await(t, "custody: hint: free space") // it is a line of its own
		d.contains(errs.String(), "no space left on device")
		d.fill()
		if out.String() != "" {
			t.Errorf("it ran while the disk was full: %q", out.String())
		}
		d.free()
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 6 || out.String() != "ran\n" {
			t.Fatalf("exit code %d, output %q: %s", code, out.String(), errs.String())
		}
		d.contains(errs.String(), "custody: the record can be written again")
		d.verified("last")
		d.tidy()
	}
}

// TestDiskNearlyFull: with little space a run works, or waits for more and reports that.
func TestDiskNearlyFull(t *testing.T) {
	t.Parallel()
	d := smallDisk(t, "tmpfs", "96m")
	d.script(0, "true")
	d.fillTo(40 << 20)
	cmd := d.command("run", "--", "echo", "ran")
	var out, errs screen
	cmd.Stdout, cmd.Stderr = &out, &errs
	d.start(cmd)
	if os.Getenv("CUSTODY_TEST_TIER") == vmm.Firecracker { // which stops a machine before the disk is full
		errs.await(t, frozen)
		if out.String() != "" {
			t.Errorf("it ran on a full disk: %q", out.String())
		}
		d.free()
		cmd.Wait()
	} else {
		cmd.Wait()
		d.free()
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 || out.String() != "ran\n" {
		t.Fatalf("exit code %d, output %q: %s", code, out.String(), errs.String())
	}
	d.verified("last")
	d.tidy()
}

// A disk that fills up while a command produces output and writes freezes the VM until there is space.
func TestDiskFullMidway(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			d := smallDisk(t, kind, "96m")
			d.script(0, "true")
			cmd := d.command("run", "--", "sh", "-c", // it ends when it has read a line
				"exec 3<&0; cat <&3 >stop & i=0; until [ -s stop ]; do echo line $i; echo $i > f$i; i=$((i+1)); done; echo end; exit 8")
			var out, errs screen
			cmd.Stdout, cmd.Stderr = &out, &errs
			stop, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			d.start(cmd)
			out.await(t, "line 20")
			eventually(t, "frozen: the sandbox", func() bool {
				d.fill()
				return strings.Contains(errs.String(), frozen)
			})
			fmt.Fprintln(stop, "stop")
			stop.Close()
			if strings.Contains(out.String(), "end") {
				t.Error("the command went on to its end")
			}
			d.free()
			cmd.Wait()
			var want strings.Builder
			for i := range strings.Count(out.String(), "\n") - 1 {
				fmt.Fprintln(&want, "line", i)
			}
			if code := cmd.ProcessState.ExitCode(); code != 8 || out.String() != want.String()+"end\n" {
				t.Fatalf("exit code %d, output %.300q: %s", code, out.String(), errs.String())
			}
			d.verified("last")
			d.halted("last")
			var recorded strings.Builder
			for _, r := range d.records("last", "output") {
				recorded.WriteString(string(r.Output.Text))
			}
			if recorded.String() != out.String() {
				t.Errorf("the record's output is not what was shown: %d bytes, %d", recorded.Len(), len(out.String()))
			}
			d.tidy()
		})
	}
}

// halted fails the test unless the record has the VM frozen and thawed, and no loss.
func (d *door) halted(run string) {
	d.Helper()
	ops := map[string]int{}
	for _, r := range d.records(run, "vm", "gap") {
		if r.Kind == audit.KindGap {
			if r.Gap.Stage != audit.StageDriver { // what the driver never observes is no loss
				d.Errorf("loss: %+v", *r.Gap)
			}
			continue
		}
		ops[r.VM.Op]++
	}
	if ops["freeze"] == 0 || ops["freeze"] != ops["thaw"] {
		d.Errorf("operations on the VM: %v", ops)
	}
}

// A run that was killed cannot be closed on a full disk; no command waits for that, and the run is closed when there is
// space.
func TestDiskFullAndKill(t *testing.T) {
	t.Parallel()
	for _, stalled := range []bool{false, true} { // killed before the disk is full, or while its VM is frozen over it
		d := smallDisk(t, "tmpfs", "96m")
		cmd := d.command("run", "--", "sh", "-c", "echo here; while :; do echo more; echo more > f; done")
		var out, errs screen
		cmd.Stdout, cmd.Stderr = &out, &errs
		d.start(cmd)
		out.await(t, "here")
		if stalled {
			eventually(t, "frozen: the sandbox", func() bool {
				d.fill()
				return strings.Contains(errs.String(), frozen)
			})
		}
		vms, run := machines(cmd.Process.Pid), d.logNames()[0]
		written := d.logged(run)
		cmd.Process.Kill()
		cmd.Wait()
		for _, m := range vms {
			d.gone(m)
		}
		d.fill()
		time.Sleep(500 * time.Millisecond) // the kernel may just have given free what the dead held
		d.fill()
		if s := d.custody("runs"); !strings.Contains(s.stderr, "no space left on device") {
			t.Errorf("custody runs on a full disk exits %d: %s%s", s.code, s.stdout, s.stderr)
		}
		d.free()
		runs := d.runs()
		if len(runs) != 1 || runs[0].Status != "interrupted" {
			t.Fatalf("runs: %+v; %s", runs, d.must(0, "runs").stderr)
		}
		d.verified(run)
		if left := d.logged(run); len(left) < len(written) {
			t.Errorf("%d records were written, %d are left", len(written), len(left))
		}
		d.tidy(vms...)
	}
}
