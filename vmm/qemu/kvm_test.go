package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A device that is not KVM is an error, whatever its name.
func TestAskKVM(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kvm")
	ok(t, os.WriteFile(file, nil, 0o600))
	for path, says := range map[string]string{
		"/dev/null": "is no usable KVM", "/dev/zero": "is no usable KVM", file: "is no usable KVM", file + ".absent": "no such file",
	} {
		f, err := askKVM(path)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", path, err, says)
		}
		if f != nil {
			f.Close()
		}
	}
}
