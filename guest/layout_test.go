//go:build linux

package guest

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLayOut: the files of a sandbox stay, and links in the place of Custody's own files and directories lead nowhere.
func TestLayOut(t *testing.T) {
	disk, outside := t.TempDir(), t.TempDir()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"hostname", "hosts", "machine-id", "resolv.conf"} {
		ok(os.WriteFile(filepath.Join(outside, name), []byte("outside"), 0o600))
	}
	ok(layOut(disk))
	in := func(name string) string { return filepath.Join(disk, name) }
	ok(os.MkdirAll(in(filepath.Join("work", "work", "incompat", "volatile")), 0o700))
	ok(os.WriteFile(in("upper/workspace/kept"), []byte("kept"), 0o600))
	ok(os.WriteFile(in("upper/etc/kept"), []byte("kept"), 0o600))
	ok(os.Remove(in("upper/etc/hosts")))
	ok(os.Symlink(filepath.Join(outside, "hosts"), in("upper/etc/hosts")))
	ok(layOut(disk))
	for _, name := range []string{"upper/workspace/kept", "upper/etc/kept"} {
		if b, err := os.ReadFile(in(name)); err != nil || string(b) != "kept" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if b, err := os.ReadFile(in("upper/etc/resolv.conf")); err != nil || string(b) != resolvConf {
		t.Errorf("resolv.conf: %q, %v", b, err)
	}
	if left, err := os.ReadDir(in("work")); err != nil || len(left) > 0 {
		t.Errorf("work: %v, %v", left, err)
	}

	ok(os.RemoveAll(in("upper/etc")))
	ok(os.Symlink(outside, in("upper/etc")))
	ok(os.RemoveAll(in("upper/workspace")))
	ok(os.WriteFile(in("upper/workspace"), nil, 0o600))
	ok(layOut(disk))
	for _, name := range []string{"upper/etc", "upper/workspace"} {
		if info, err := os.Lstat(in(name)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for _, name := range []string{"hostname", "hosts", "machine-id", "resolv.conf"} {
		if b, err := os.ReadFile(filepath.Join(outside, name)); err != nil || string(b) != "outside" {
			t.Errorf("%s outside: %q, %v", name, b, err)
		}
	}
}
