package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/audit/durable"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, want := range []string{"old", "new and longer", ""} {
		if err := durable.Replace(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	// A failed write leaves no temporary file and does not change the old file.
	if err := durable.Replace(filepath.Join(t.TempDir(), "none", "file"), nil, 0o600); err == nil {
		t.Error("a file in no directory was written")
	}
	full := filepath.Join(t.TempDir(), "dir")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Replace(full, []byte("data"), 0o600); err == nil {
		t.Error("a file took the place of a directory")
	}
	if _, err := os.Stat(full + ".tmp"); err == nil {
		t.Error("a temporary file was left")
	}
}
