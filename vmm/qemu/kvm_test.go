package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is not KVM is told from one: the device's name proves nothing.
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
