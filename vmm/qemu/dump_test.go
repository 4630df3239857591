package qemu_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/custody-project/custody/vmm/vmtest"
)

// TestDump: a dump is an ELF core with all of the machine's RAM, including what a program
// has in its memory. After it, the machine is frozen or running as before.
func TestDump(t *testing.T) {
	m := vmtest.Restore(t, vmtest.Options{})
	canary := make([]byte, 24)
	rand.Read(canary)
	text := hex.EncodeToString(canary)
	output := m.Bash("head -c 300000 /dev/zero | tr '\\0' x > /dev/shm/big; (read x; sleep 1000) & echo " + text + " > /dev/shm/c; cat /dev/shm/c; kill %1")
	if output != text+"\n" {
		t.Fatalf("output %q", output)
	}
	path := filepath.Join(t.TempDir(), "core")
	core, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer core.Close()
	if err := m.VM.Dump(t.Context(), core); err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(core)
	if err != nil {
		t.Fatal(err)
	}
	ram, found := uint64(0), false
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		b, err := io.ReadAll(p.Open())
		if err != nil || uint64(len(b)) != p.Filesz {
			t.Fatalf("segment at %#x: %d of %d bytes, %v", p.Paddr, len(b), p.Filesz, err)
		}
		ram += p.Filesz
		found = found || bytes.Contains(b, []byte(text))
	}
	if f.Type != elf.ET_CORE || ram < 512<<20 {
		t.Errorf("%v of %d bytes", f.Type, ram)
	}
	if !found {
		t.Error("the dump does not contain what was in the guest's memory")
	}
	if output := m.Bash("echo on"); output != "on\n" {
		t.Errorf("after a dump the output is %q", output)
	}
	staysFrozen(t, m)
	dumpFails(t, m)
}

// staysFrozen checks that a frozen machine is still frozen after a dump.
func staysFrozen(t *testing.T, m *vmtest.Machine) {
	if err := m.VM.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.VM.Dump(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := m.Guest.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen machine answered after a dump: %v", err)
	}
	if err := m.VM.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Guest.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// full accepts a number of bytes and then fails, like a full disk.
type full struct{ free int }

var errFull = errors.New("full")

func (f *full) Write(b []byte) (int, error) {
	if f.free -= len(b); f.free < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// dumpFails checks that a dump that cannot be written returns the reason, and that the machine continues.
func dumpFails(t *testing.T, m *vmtest.Machine) {
	if err := m.VM.Dump(t.Context(), &full{free: 10 << 20}); !errors.Is(err, errFull) {
		t.Errorf("dump to a full disk: %v", err)
	}
	if output := m.Bash("echo on"); output != "on\n" {
		t.Errorf("after a failed dump the output is %q", output)
	}
}
