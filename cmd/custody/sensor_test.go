package main

import (
	"testing"

	"github.com/custody-project/custody/audit"
)

// TestTimeLimitLosesNoWrite: a write that cannot be hashed before the run's time limit has an event that says so.
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
