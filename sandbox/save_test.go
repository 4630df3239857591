package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/scratch"
	"github.com/custody-project/custody/vmm/vmtest"
)

// memfd returns an empty file in memory.
func memfd(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	must(t, err)
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	return f
}

// begin starts a machine as the sandbox of a run. It is closed at the end of the test.
func begin(t *testing.T, m vmm.Machine, run string, resumed *sandbox.Resumed) (*sandbox.Sandbox, *record) {
	t.Helper()
	r := &record{}
	parts := sandbox.Parts{Recorder: r, Redactor: redact.New([]byte("key")), Notice: func(text string) { t.Log(text) }}
	return beginWith(t, m, run, resumed, parts), r
}

func beginWith(t *testing.T, m vmm.Machine, run string, resumed *sandbox.Resumed, parts sandbox.Parts) *sandbox.Sandbox {
	t.Helper()
	w, err := sandbox.Start(t.Context(), sandbox.Machine{
		ID: run, Driver: vmtest.Driver(t), Image: m.Image, Scratch: m.Scratch, CPUs: m.CPUs, Memory: m.Memory, ScratchSize: shape.Disk,
	})
	must(t, err)
	t.Cleanup(func() { w.Close(context.Background()) })
	settings := sandbox.Settings{Run: run, Memory: m.Memory, PIDs: 256, Output: 1 << 40, Sensor: true, Files: channel.FileSettings{ReadOver: 8 << 20}, Resumed: resumed}
	s, err := w.Assign(t.Context(), parts, settings, func(err error) { t.Errorf("abort: %v", err) })
	must(t, err)
	must(t, s.Identify(t.Context()))
	return s
}

// kept is the saved state of a sandbox.
type kept struct {
	machine              vmm.Machine // that it was
	device, memory, disk *os.File
	resumed              sandbox.Resumed
}

// keep saves a suspended sandbox and closes it.
func keep(t *testing.T, s *sandbox.Sandbox, m vmm.Machine) kept {
	t.Helper()
	k := kept{machine: m, device: memfd(t), memory: memfd(t)}
	must(t, k.memory.Truncate(m.Memory))
	zero := make([]byte, vmm.PageSize)
	must(t, suspension(s).Save(t.Context(), sandbox.State{Device: k.device, Page: func(offset int64, page []byte) error {
		if bytes.Equal(page, zero) {
			return nil
		}
		_, err := k.memory.WriteAt(page, offset)
		return err
	}}))
	k.resumed = suspension(s).Identity()
	k.disk = copyOf(t, m.Scratch)
	must(t, s.Close(t.Context()))
	return k
}

// another returns a machine that starts from the state and leaves it as it is.
func (k kept) another(t *testing.T) vmm.Machine {
	t.Helper()
	reopen := func(f *os.File) *os.File {
		again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		must(t, err)
		t.Cleanup(func() { again.Close() })
		return again
	}
	m := k.machine
	m.Image.State, m.Image.Memory, m.Scratch = reopen(k.device), reopen(k.memory), copyOf(t, k.disk)
	return m
}

// copyOf returns a copy of a disk.
func copyOf(t *testing.T, disk *os.File) *os.File {
	t.Helper()
	c, err := scratch.Clone(t.TempDir(), disk)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSave: the processes of a suspended sandbox continue in another machine, with the same process IDs, and in the first one if it could
// not be saved.
func TestSave(t *testing.T) {
	m := vmtest.Describe(t, vmtest.Driver(t), vmtest.Options{})
	s, r := begin(t, m, "r-first", nil)
	counter := sandbox.Step{
		Name: "counter", Argv: []string{"bash", "-c", `echo $$; i=0; while :; do echo $((i+=1)); sleep 0.05; done`}, Env: []string{"PATH=/usr/bin:/bin"}, Session: true, Live: true,
	}
	var ended chan error
	step := func(s *sandbox.Sandbox) {
		done := make(chan error, 1)
		ended = done
		go func() {
			_, err := s.Step(t.Context(), counter)
			done <- err
		}()
	}
	output := func(r *record) string { return recordedFrom(t, r, "counter", counter.Offsets[0]) }
	suspend := func(s *sandbox.Sandbox) {
		t.Helper()
		must(t, suspension(s).Suspend(t.Context()))
		if err := <-ended; !errors.Is(err, sandbox.ErrSuspended) {
			t.Fatalf("the step: %v", err)
		}
	}
	attach := func(s *sandbox.Sandbox, r *record, offset int) {
		t.Helper()
		counter.Attach, counter.Offsets[0] = true, int64(offset)
		before := starts(r)
		step(s)
		await(t, "the step is attached", func() bool { return starts(r) > before })
		must(t, suspension(s).Thaw(t.Context()))
	}
	if err := suspension(s).Save(t.Context(), sandbox.State{}); err == nil {
		t.Error("a sandbox that runs was saved")
	}
	step(s)
	await(t, "it counts", func() bool { return strings.Count(output(r), "\n") > 20 })
	suspend(s)

	full := errors.New("no space is left")
	if err := suspension(s).Save(t.Context(), sandbox.State{Device: memfd(t), Page: func(int64, []byte) error { return full }}); !errors.Is(err, full) {
		t.Errorf("not saved: %v", err)
	}
	must(t, suspension(s).Continue(t.Context()))
	whole := output(r)
	attach(s, r, len(whole))
	await(t, "it counts again", func() bool { return strings.Count(output(r), "\n") > 20 })
	suspend(s)
	whole += output(r)

	k := keep(t, s, m)
	m.Image.State, m.Image.Memory, m.Image.Own, m.Scratch = k.device, k.memory, true, k.disk
	second, r2 := begin(t, m, "r-second", &k.resumed)
	attach(second, r2, len(whole))
	await(t, "it counts in another machine", func() bool { return strings.Count(output(r2), "\n") > 20 })
	whole += output(r2)
	lines := strings.Split(whole[:strings.LastIndex(whole, "\n")], "\n")
	for i, line := range lines[1:] {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	var out bytes.Buffer
	_, err := second.Step(t.Context(), sandbox.Step{
		Name: "killer", Argv: []string{"bash", "-c", "hostname; kill " + lines[0]}, Env: counter.Env, Session: true, Stdout: &out, Stderr: &out,
	})
	must(t, err)
	if out.String() != "r-first\n" {
		t.Errorf("the host name, and the end of process %s: %q", lines[0], out.String())
	}
	if err := <-ended; err != nil {
		t.Errorf("the step that was killed: %v", err)
	}
}

// starts returns how many steps have started.
func starts(r *record) (n int) {
	for _, ev := range r.all() {
		if ev.Kind == audit.KindStep && ev.Lifecycle.Phase == audit.PhaseStart {
			n++
		}
	}
	return n
}

// recordedFrom returns the output of a step from an offset on, which must be without a gap.
func recordedFrom(t *testing.T, r *record, step string, offset int64) string {
	t.Helper()
	var out strings.Builder
	for _, ev := range r.all() {
		if ev.Step != step || ev.Output == nil || ev.Output.Offset < offset {
			continue
		}
		if ev.Output.Offset != offset+int64(out.Len()) {
			t.Fatalf("%s: output at offset %d follows %d bytes from %d on", step, ev.Output.Offset, out.Len(), offset)
		}
		out.WriteString(string(ev.Output.Text))
	}
	return out.String()
}
