package main

import (
	"strings"
	"testing"
)

// What eats the guest's resources hurts only the guest: a command beside it
// goes on, the next step runs, the run ends with its own exit code and a record that verifies.
func TestResources(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, limits, script string
		says                 []string
	}{
		{"fork bomb", "{pids: 64}", `
			python3 -c '
import os, sys, time
n = 0
while True:
    try:
        if os.fork() == 0: time.sleep(600)
        n += 1
    except OSError as e:
        print("forks refused:", e.strerror, 40 < n < 64, flush=True); break
'
			bomb() { bomb | bomb & }; (bomb) 2>/dev/null
			echo bombed`,
			[]string{"forks refused: Resource temporarily unavailable True", "bombed"}},
		{"memory hog", "{memory: 256MiB}", `
			python3 -c 'b = []
while True: b.append(bytearray(8 << 20))'
			echo "hog: $?"
			dd if=/dev/zero of=/dev/shm/f bs=1M 2>&1 | tail -n 1 | sed "s/.*No space.*/shm is full/"
			echo "shm: $(( $(stat -c %s /dev/shm/f) < 200000000 ))"
			rm /dev/shm/f`,
			[]string{"hog: 137", "shm: 1"}},
		{"disk filler", "{disk: 64MiB}", `
			dd if=/dev/zero of=/workspace/f bs=1M 2>&1 | grep -o "No space left on device"
			i=0; while echo x > /tmp/file$i 2>/dev/null; do i=$((i+1)); [ $i -lt 300 ] || break; done
			mkdir -p /run/d && dd if=/dev/zero of=/run/d/f bs=1M 2>&1 | grep -o "No space left on device"
			rm -f /workspace/f /tmp/file*`,
			[]string{"No space left on device\nNo space left on device\n"}},
		{"descriptors", "{pids: 64}", `
			python3 -c '
import os
held = []
try:
    while True: held.append(os.pipe())
except OSError as e: print(e.strerror)
import socket
print(len(held) < 4096)'`,
			[]string{"Too many open files\nTrue\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDoor(t)
			var yaml strings.Builder
			yaml.WriteString("version: 1\nlimits: " + c.limits + "\nsteps:\n- name: greedy\n  run: |\n")
			for line := range strings.Lines(c.script) {
				yaml.WriteString("    " + strings.TrimLeft(line, "\t"))
			}
			yaml.WriteString("\n- {name: after, run: \"echo after > /workspace/f && cat /workspace/f && python3 -c 'print(6*7)'; exit 5\"}\n")
			d.project(yaml.String())
			s := d.must(5, "run")
			d.contains(s.stdout, append(c.says, "after\n42\n")...)
			d.verified("last")
			if run := d.runs()[0]; run.Result != "done" || *run.ExitCode != 5 {
				t.Errorf("run: %+v", run)
			}
		})
	}
}

// Output without end: all of it comes through, the record keeps what the
// policy allows and declares the rest.
func TestOutputFlood(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.project("version: 1\nrecord: {output: 1MiB}\n")
	const size = 32 << 20
	counted := 0
	cmd := d.command("run", "-q", "--", "sh", "-c", "head -c 32M /dev/zero | tr '\\0' y; echo end >&2; exit 3")
	cmd.Stdout = countingWriter{&counted}
	var errs screen
	cmd.Stderr = &errs
	cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 3 || counted != size || errs.String() != "end\n" {
		t.Fatalf("exit code %d, %d bytes, stderr %q", code, counted, errs.String())
	}
	kept, lost := 0, int64(0)
	for _, r := range d.records("last", "output", "gap") {
		if r.Output != nil {
			kept += len(r.Output.Text)
		} else if r.Gap.Stage == "output" {
			lost += r.Gap.Bytes
		} else {
			t.Errorf("unexpected loss: %+v", *r.Gap)
		}
	}
	if kept == 0 || kept > 1<<20 || int64(kept)+lost != size+4 {
		t.Errorf("%d bytes kept, %d declared lost, of %d", kept, lost, size+4)
	}
	d.verified("last")
	d.contains(d.must(0, "verify", "last").stdout, "loss      stage output")
}

type countingWriter struct{ n *int }

func (w countingWriter) Write(b []byte) (int, error) {
	*w.n += len(b)
	return len(b), nil
}
