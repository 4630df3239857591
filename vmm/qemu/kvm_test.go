package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A device that is not KVM is an error, regardless of its name.
func TestOpenKVMPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kvm")
	ok(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]string{
		"/dev/null": "is not a usable KVM device", "/dev/zero": "is not a usable KVM device", file: "is not a usable KVM device", file + ".absent": "no such file",
	} {
		f, err := openKVMPath(path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if f != nil {
			f.Close()
		}
	}
}
