package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

// redo builds the program in verify.md, outside of this module: it may use nothing of ours.
func redo(t *testing.T) string {
	t.Helper()
	_, rest, _ := strings.Cut(page(t, "verify.md"), "```go\n")
	source, _, ok := strings.Cut(rest, "\n```")
	if !ok {
		t.Fatal("verify.md has no program")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "redo.go"), []byte(source+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", "redo", "redo.go")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program in verify.md: %v\n%s", err, out)
	}
	return filepath.Join(dir, "redo")
}

// record writes a run of several segments, the last of them without records if empty is set.
func record(t *testing.T, key proof.Key, empty bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r-1")
	log, err := wal.Create(dir, wal.Options{Run: "r-1", Sealer: proof.NewSealer(key, proof.Facts{Tier: "qemu-tcg"})})
	if err != nil {
		t.Fatal(err)
	}
	rec := audit.NewRecorder(log, redact.New(make([]byte, 32)))
	for i := range 12 {
		ev := audit.Event{Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: "boot", Reason: fmt.Sprint(i)}}
		if _, err := rec.Record(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		if i == 0 || i == 6 || empty && i == 11 { // segments of 1, 6 and 5 records
			if err := log.Rotate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := log.Close(t.Context(), wal.Sealed); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRedo: the program in verify.md comes to the same result as verify, also when a file was changed.
func TestRedo(t *testing.T) {
	program := redo(t)
	key, err := proof.LoadOrCreateKey(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := proof.LoadOrCreateKey(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	judge := func(dir, public string) (string, bool) {
		out, err := exec.Command(program, dir, public).CombinedOutput()
		return string(out), err == nil
	}
	for _, empty := range []bool{false, true} {
		if out, ok := judge(record(t, key, empty), key.Public); !ok || !strings.Contains(out, "run r-1 holds to seq 12, sealed") {
			t.Errorf("a good record: %s", out)
		}
	}
	if out, ok := judge(record(t, key, false), other.Public); ok {
		t.Errorf("with another key: %s", out)
	}
	for _, name := range []string{"00000000000000000002.seg", "00000000000000000002.leaves", "00000000000000000002.manifest"} {
		dir := record(t, key, false)
		path := filepath.Join(dir, name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, ok := judge(dir, key.Public); ok {
			t.Errorf("%s was changed: %s", name, out)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if out, ok := judge(dir, key.Public); ok {
			t.Errorf("%s was removed: %s", name, out)
		}
	}
}
