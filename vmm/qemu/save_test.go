package qemu_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/vmm/scratch"
	"github.com/custody-project/custody/vmm/vmtest"
)

// counting is a script that counts in its memory and appends each number to a file on the scratch disk.
const counting = `i=0; while :; do i=$((i+1)); echo "counted $i." >>/workspace/numbers; sync; sleep 0.05; done`

var counted = regexp.MustCompile(`counted ([0-9]+)\.`)

// count returns how far the script has counted, according to the disk.
func count(t *testing.T, disk *os.File) int {
	t.Helper()
	last := 0
	err := scratch.Extents(disk, func(off, n int64) error {
		b := make([]byte, n)
		if _, err := disk.ReadAt(b, off); err != nil {
			return err
		}
		for _, m := range counted.FindAllSubmatch(b, -1) {
			n, err := strconv.Atoi(string(m[1]))
			if err != nil {
				return err
			}
			last = max(last, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// countsOn waits until the script has counted beyond n, and returns how far.
func countsOn(t *testing.T, disk *os.File, n int) int {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if now := count(t, disk); now > n {
			return now
		}
	}
	t.Fatalf("the script does not count beyond %d", n)
	return 0
}

// saved is a machine whose parts were copied.
type saved struct {
	machine       vmm.Machine
	memory, state *os.File
	disk          *os.File
	counted       int
}

// memfd returns an empty file in memory.
func memfd(t testing.TB) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	return f
}

// readOnly opens a file again for reading.
func readOnly(t *testing.T, f *os.File) *os.File {
	t.Helper()
	r, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func copyDisk(t *testing.T, disk *os.File) *os.File {
	t.Helper()
	f, err := scratch.Clone(t.TempDir(), disk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// saveState writes the state of a frozen machine.
func saveState(t testing.TB, vm vmm.VM) *os.File {
	t.Helper()
	state := memfd(t)
	if err := vm.(vmm.Saver).Save(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	return state
}

// dumpTo writes the RAM of a machine to a file in memory.
func dumpTo(t testing.TB, vm vmm.VM, size int64) *os.File {
	t.Helper()
	memory := memfd(t)
	if err := memory.Truncate(size); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(vm.Dump(context.Background(), w)) }() // ends with the reader
	zero := make([]byte, vmm.PageSize)
	err := vmm.ReadCore(r, size, func(offset int64, b []byte) error {
		if bytes.Equal(b, zero) {
			return nil
		}
		_, err := memory.WriteAt(b, offset)
		return err
	})
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	return memory
}

// save freezes a machine that counts and copies its parts.
func save(t *testing.T, vm vmm.VM, m vmm.Machine) saved {
	t.Helper()
	if err := vm.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := saved{machine: m, state: saveState(t, vm), memory: dumpTo(t, vm, m.Memory), disk: copyDisk(t, m.Scratch)}
	s.counted = count(t, s.disk)
	return s
}

// start starts a machine and lets it run.
func start(t *testing.T, m vmm.Machine) vmm.VM {
	t.Helper()
	d, err := qemu.New(false)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := d.Start(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, vm.Channel()) // ends with the machine
	t.Cleanup(func() {
		if err := vm.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := vm.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	return vm
}

// fork returns a machine that starts from s and changes none of its files.
func (s saved) fork(t *testing.T) vmm.Machine {
	m := s.machine
	m.Image.Memory, m.Image.State, m.Scratch = readOnly(t, s.memory), s.state, copyDisk(t, s.disk)
	return m
}

func digest(t *testing.T, f *os.File) [sha256.Size]byte {
	t.Helper()
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<40)); err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// saveCounting starts a machine from the template, with a process that counts, and saves it.
func saveCounting(t *testing.T) (*vmtest.Machine, saved) {
	t.Helper()
	m := vmtest.Restore(t, vmtest.Options{})
	p, err := m.Guest.Start(t.Context(), channel.Command{
		Step: "main", Argv: []string{"bash", "-c", counting}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/workspace",
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin.Close()
	go io.Copy(io.Discard, p.Stdout) // both end with the machine
	go io.Copy(io.Discard, p.Stderr)
	countsOn(t, m.Machine.Scratch, 3)
	return m, save(t, m.VM, m.Machine)
}

// TestSave: a machine that was saved continues. Two machines that start from what was saved continue from there, independently of each
// other, and leave it unchanged.
func TestSave(t *testing.T) {
	t.Parallel()
	m, s := saveCounting(t)
	if err := m.VM.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	countsOn(t, m.Machine.Scratch, s.counted)
	if _, err := m.Guest.Ping(t.Context()); err != nil {
		t.Errorf("after it was saved: %v", err)
	}
	if err := m.VM.(vmm.Saver).Save(t.Context(), memfd(t)); err == nil || !strings.Contains(err.Error(), "freeze it before") {
		t.Errorf("the state of a machine that runs: %v", err)
	}
	before := digest(t, s.memory)
	first, second := s.fork(t), s.fork(t)
	a, b := start(t, first), start(t, second)
	countsOn(t, first.Scratch, s.counted)
	if err := a.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopped := count(t, first.Scratch)
	countsOn(t, second.Scratch, stopped+3)
	if now := count(t, first.Scratch); now != stopped {
		t.Errorf("a frozen machine counted from %d to %d", stopped, now)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	countsOn(t, first.Scratch, stopped)
	if digest(t, s.memory) != before || count(t, s.disk) != s.counted {
		t.Error("a machine has changed what it was started from")
	}
}

// TestSaveAgain: a machine that owns its memory file continues in it, and can be saved again and again.
func TestSaveAgain(t *testing.T) {
	t.Parallel()
	m, s := saveCounting(t)
	if err := m.VM.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	own := s.machine
	own.Image.Memory, own.Image.Own, own.Image.State, own.Scratch = s.memory, true, s.state, s.disk
	counted := s.counted
	const rounds = 3
	for round := range rounds {
		vm := start(t, own)
		countsOn(t, own.Scratch, counted)
		if err := vm.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		own.Image.State = saveState(t, vm)
		var dumped *os.File
		if round == rounds-1 {
			dumped = dumpTo(t, vm, own.Memory)
		}
		if err := vm.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if dumped != nil {
			samePages(t, own.Image.Memory, dumped)
		}
		counted = count(t, own.Scratch)
	}
}

// samePages checks that a machine's memory file contains what was dumped of it, except where firmware covers the RAM.
func samePages(t *testing.T, memory, dumped *os.File) {
	t.Helper()
	const firmware, above = 0xf0000, 1 << 20
	for _, part := range [][2]int64{{0, firmware}, {above, 512<<20 - above}} {
		a, b := io.NewSectionReader(memory, part[0], part[1]), io.NewSectionReader(dumped, part[0], part[1])
		x, y := make([]byte, 1<<20), make([]byte, 1<<20)
		for {
			n, err := io.ReadFull(a, x)
			k, _ := io.ReadFull(b, y)
			if !bytes.Equal(x[:n], y[:k]) {
				t.Fatalf("the memory file and the dump differ between %#x and %#x", part[0], part[0]+part[1])
			}
			if err != nil {
				break
			}
		}
	}
}

// TestSaveRefuses: a state or a memory file that does not belong to the machine is an error, and no machine is left.
func TestSaveRefuses(t *testing.T) {
	t.Parallel()
	m := vmtest.Restore(t, vmtest.Options{})
	s := save(t, m.VM, m.Machine)
	whole, err := io.ReadAll(io.NewSectionReader(s.state, 0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	state := func(b []byte) func(*vmm.Machine) {
		return func(m *vmm.Machine) {
			m.Image.State = memfd(t)
			if _, err := m.Image.State.Write(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*vmm.Machine)
		want   string
	}{
		"no state":        {state(nil), "contains none that QEMU wrote"},
		"text":            {state([]byte("It is no state.")), "contains none that QEMU wrote"},
		"its beginning":   {state(whole[:len(whole)/2]), "load of migration failed"},
		"without its end": {state(whole[:len(whole)-1]), "load of migration failed"},
		"another version": {state(append([]byte("QEVM\x00\x00\x00\x04"), whole[8:]...)), "contains none that QEMU wrote"},
		"zeros in it":     {state(append(append([]byte{}, whole[:100]...), make([]byte, len(whole)-100)...)), "load of migration failed"},
		"other memory":    {func(m *vmm.Machine) { m.Memory = 256 << 20 }, "536870912 bytes in place of the machine's 268435456"},
		"memory that can be written": {
			func(m *vmm.Machine) { m.Image.Memory = s.memory }, "does not own it must be open for reading only",
		},
		"memory that cannot be written": {func(m *vmm.Machine) { m.Image.Own = true }, "must be open for reading and writing"},
	} {
		t.Run(name, func(t *testing.T) {
			other := s.fork(t)
			c.change(&other)
			d, err := qemu.New(false)
			if err != nil {
				t.Fatal(err)
			}
			vm, err := d.Start(t.Context(), other)
			if err == nil {
				t.Fatal("it started", vm.Destroy(t.Context()))
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; %q is expected", err, c.want)
			}
		})
	}
}

// BenchmarkSave measures how long an idle machine of 512 MiB is frozen: its device state, and its RAM in a core file that is split into pages.
func BenchmarkSave(b *testing.B) {
	m := vmtest.Restore(b, vmtest.Options{})
	if err := m.VM.Freeze(b.Context()); err != nil {
		b.Fatal(err)
	}
	var state, memory *os.File
	var saving time.Duration
	for b.Loop() {
		began := time.Now()
		state = saveState(b, m.VM)
		saving += time.Since(began)
		memory = dumpTo(b, m.VM, m.Machine.Memory)
	}
	var device, ram unix.Stat_t
	if err := errors.Join(unix.Fstat(int(state.Fd()), &device), unix.Fstat(int(memory.Fd()), &ram)); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(saving.Microseconds())/1000/float64(b.N), "state-ms/op")
	b.ReportMetric(float64(device.Size)/1024, "state-KiB")
	b.ReportMetric(float64(ram.Blocks)*512/(1<<20), "memory-MiB")
}
