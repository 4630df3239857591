package main

import (
	"testing"

	"github.com/custody-project/custody/audit"
)

// TestTimeLimitLosesNoWrite: a write that cannot be hashed before the run's time limit has an event with that reason.
func TestTimeLimitLosesNoWrite(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.project("version: 1\nproject: writes\nlimits: {time: 15s}\n")
	d.must(124, "run", "--", "sh", "-c", `truncate -s 1T huge; truncate -s 12G large; echo small >small; sleep 1000`)
	reasons := map[string]string{}
	for _, r := range d.records("last", "file") {
		if r.File.Op == audit.FileWrite {
			reasons[string(r.File.Path)] = r.File.Unhashed
			if (r.File.SHA256 == "") == (r.File.Unhashed == "") {
				t.Errorf("neither digest nor reason, or both: %+v", *r.File)
			}
		}
	}
	for path, want := range map[string]string{"huge": "larger than 16 GiB", "large": "not hashed in time", "small": ""} {
		if got, written := reasons["/workspace/"+path]; !written || got != want {
			t.Errorf("%s: written %v, not hashed because %q; want %q", path, written, got, want)
		}
	}
	if gaps := d.records("last", "gap"); len(gaps) > 0 {
		t.Errorf("gaps: %+v", *gaps[0].Gap)
	}
	d.verified("last")
}

// TestNoDirectIO: direct I/O could write to the pages of a file that no one has open, which would make
// its digest another content's. It is refused by each call that could ask for it, and by these as file
// systems without it refuse it; process_vm_writev(2), which can do the same, is denied.
func TestNoDirectIO(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.must(0, "run", "--", "sh", "-ec", `
		echo content >f
		dd if=f of=/dev/null 2>/dev/null
		! dd if=f of=/dev/null iflag=direct 2>said
		grep -q "Invalid argument" said
		perl -e 'use POSIX;
			open(F, "<", "f") or die; my $direct = $ARGV[0] eq "x86_64" ? 0x4000 : 0x10000;
			!fcntl(F, F_SETFL, $direct) && $! == EINVAL or die "F_SETFL: $!";
			fcntl(F, F_SETFL, O_NONBLOCK) or die "F_SETFL: $!";
			my ($name, $how) = ("f", pack("QQQ", $direct, 0, 0));
			syscall(437, -100, $name, $how, 24) == -1 && $! == ENOSYS or die "openat2: $!";
			syscall($ARGV[0] eq "x86_64" ? 311 : 271, $$, 0, 0, 0, 0, 0) == -1 && $! == EPERM or die "process_vm_writev: $!"' "$(uname -m)"`)
}
