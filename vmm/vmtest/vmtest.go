// Package vmtest starts real VMs for tests, from the base template that
// hack/test makes. It uses software emulation, which works on every host, or the tier that CUSTODY_TEST_TIER names:
// qemu-kvm, or firecracker with the programs in the directory $CUSTODY_TEST_FIRECRACKER.
package vmtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/firecracker"
	"github.com/custody-project/custody/vmm/gvisor"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/vmm/scratch"
	"github.com/custody-project/custody/vmm/template"
)

// Options change a machine's defaults. The zero value is valid.
type Options struct {
	Tap     *os.File        // see vmm.Machine
	Trust   []byte          // see channel.Identity
	Sensor  bool            // whether the sensors are attached
	CPUs    int             // number of virtual CPUs; 0: 1
	Handler channel.Handler // receives the guest's events; nil discards them
	Driver  template.Driver // nil: see the package's Driver
}

// Machine is a restored VM with a connected guest. It is destroyed at the end of its test.
type Machine struct {
	t       testing.TB
	VM      vmm.VM
	Guest   *channel.Client
	Machine vmm.Machine // what VM was started from
}

// Restore starts a machine. A missing template fails the test.
func Restore(t testing.TB, o Options) *Machine {
	t.Helper()
	m, err := TryRestore(t, o)
	check(t, err)
	return m
}

// TryRestore is like Restore, but returns an error if the guest cannot be connected.
func TryRestore(t testing.TB, o Options) (*Machine, error) {
	t.Helper()
	ctx, d := t.Context(), o.Driver
	if d == nil {
		d = Driver(t)
	}
	described := Describe(t, d, o)
	m := &Machine{t: t, Machine: described}
	var err error
	m.VM, err = d.Start(ctx, described)
	check(t, err)
	observed := observe(t, m.VM)
	t.Cleanup(func() {
		check(t, m.VM.Destroy(context.Background()))
		observed()
	})
	check(t, m.VM.Thaw(ctx))
	if described.Image.State == nil {
		check(t, channel.AwaitReady(ctx, m.VM.Channel()))
	}
	if m.Guest, err = channel.Connect(ctx, m.VM.Channel(), Wake(), o.Handler); err != nil {
		return nil, err
	}
	return m, m.Guest.Identify(ctx, Identity(o))
}

// observe discards what the driver observes, if it does. The returned function waits for the VM's end.
func observe(t testing.TB, vm vmm.VM) (wait func()) {
	o, ok := vm.(vmm.Observer)
	if !ok {
		return func() {}
	}
	done := make(chan error, 1)
	go func() {
		done <- o.Observe(context.Background(), func(context.Context, *audit.Event) error { return nil })
	}()
	return func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Describe returns a machine to restore with a driver, with a copy of the template's disk, or one to boot if the driver has no snapshots.
func Describe(t testing.TB, d template.Driver, o Options) vmm.Machine {
	t.Helper()
	shape := template.Shape{CPUs: max(1, o.CPUs), Memory: memory, Disk: disk}
	base, err := Templates(t).Open(t.Context(), "base")
	check(t, err)
	img, err := image(t, base, d, shape)
	check(t, err)
	t.Cleanup(func() { img.Close() })
	var scratchDisk *os.File
	if dir := t.TempDir(); img.Disk != nil {
		scratchDisk, err = scratch.Clone(dir, img.Disk)
	} else {
		scratchDisk, err = scratch.New(t.Context(), dir, filepath.Join(dir, "blanks"), shape.Disk)
	}
	check(t, err)
	t.Cleanup(func() { scratchDisk.Close() })
	return vmm.Machine{ID: "test", Image: img, CPUs: shape.CPUs, Memory: shape.Memory, Scratch: scratchDisk, Tap: o.Tap}
}

func image(t testing.TB, base template.Template, d template.Driver, shape template.Shape) (vmm.Image, error) {
	if d.Snapshots() {
		return base.Image(t.Context(), d, shape)
	}
	memory, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	check(t, err)
	return base.Cold(t.Context(), memory, shape)
}

// The size of the tests' machines, in bytes.
const (
	memory = 512 << 20
	disk   = 2 << 30
)

// Wake returns the message that wakes the guest of a machine.
func Wake() channel.Wake { return channel.Wake{Scratch: disk} }

// Identity returns the identity of a guest.
func Identity(o Options) channel.Identity {
	return channel.Identity{
		Run: "r-test", Time: time.Now(), Entropy: bytes.Repeat([]byte{7}, 64), MachineID: strings.Repeat("0", 32), Hostname: "test",
		Limits: channel.Limits{PIDs: 256, Memory: memory},
		Files:  channel.FileSettings{ReadOver: 8 << 20}, Trust: o.Trust, Sensor: o.Sensor,
	}
}

// Driver returns the driver of the tier that CUSTODY_TEST_TIER names.
func Driver(t testing.TB) template.Driver {
	t.Helper()
	if os.Getenv("CUSTODY_TEST_TIER") == vmm.Firecracker {
		return Firecracker(t)
	}
	d, err := qemu.New(os.Getenv("CUSTODY_TEST_TIER") == vmm.QEMUKVM)
	check(t, err)
	return d
}

// GVisor returns the driver of the program $CUSTODY_TEST_RUNSC.
func GVisor(t testing.TB) *gvisor.Driver {
	t.Helper()
	path := os.Getenv("CUSTODY_TEST_RUNSC")
	if path == "" {
		t.Fatal("CUSTODY_TEST_RUNSC is not set: run `make test`, which builds runsc")
	}
	d, err := gvisor.New(path)
	check(t, err)
	return d
}

// Firecracker returns the driver of the programs in $CUSTODY_TEST_FIRECRACKER. It skips a test for which there are none,
// or which runs on a host whose KVM boots no guest.
func Firecracker(t testing.TB) template.Driver {
	t.Helper()
	dir := os.Getenv("CUSTODY_TEST_FIRECRACKER")
	if dir == "" {
		t.Skip("CUSTODY_TEST_FIRECRACKER names no directory with firecracker and jailer: `make hosts` runs this test in a host with nested KVM")
	}
	if os.Getenv("CUSTODY_TEST_TIER") != vmm.Firecracker {
		t.Skip("CUSTODY_TEST_TIER is not firecracker: this test needs a KVM that boots guests; `make hosts` runs it in a host with nested KVM")
	}
	d, err := firecracker.New(t.Context(), firecracker.Paths{Firecracker: filepath.Join(dir, "firecracker"), Jailer: filepath.Join(dir, "jailer")})
	check(t, err)
	return d
}

// Templates returns the store that contains hack/test's base template. A missing store fails the test.
func Templates(t testing.TB) template.Store {
	t.Helper()
	dir := os.Getenv("CUSTODY_TEST_TEMPLATES")
	if dir == "" {
		t.Fatal("CUSTODY_TEST_TEMPLATES is not set: this test starts real VMs; run `make test`, which makes a template for them")
	}
	return template.Store{Dir: dir, Guest: guestProgram(t), Log: io.Discard}
}

// guestProgram builds the same custody-guest as the Makefile, byte for byte. With another one, opening the
// template would rebuild it while other tests use it.
func guestProgram(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("CUSTODY_TEST_BIN"); dir != "" {
		return filepath.Join(dir, "custody-guest")
	}
	path := filepath.Join(t.TempDir(), "custody-guest")
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/custody-project/custody/cmd/custody-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build custody-guest: %v\n%s", err, out)
	}
	return path
}

// scriptTimeout bounds the run time of a script on a busy host.
const scriptTimeout = 2 * time.Minute

// Bash runs a script in a cell and returns its standard output and standard error. env is added to PATH and HOME.
func (m *Machine) Bash(script string, env ...string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), scriptTimeout)
	defer cancel()
	p, err := m.Guest.Start(ctx, channel.Command{
		Step: "main", Argv: []string{"bash", "-c", "exec 2>&1\n" + script}, Env: append([]string{"PATH=/usr/bin:/bin", "HOME=/root"}, env...), Dir: "/workspace",
	})
	check(m.t, err)
	p.Stdin.Close()
	drained := make(chan struct{})
	go func() {
		io.Copy(io.Discard, p.Stderr)
		close(drained)
	}()
	output, err := io.ReadAll(p.Stdout)
	<-drained
	_, failed := p.Wait(ctx)
	check(m.t, err)
	check(m.t, failed)
	return string(output)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("virtual machine: %w", err))
	}
}
