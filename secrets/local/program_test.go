package local

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCheckProgram: only a command that must fail has an error, and none runs.
func TestCheckProgram(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"tool": 0o755, "data": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ntouch ran\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		from string
		ok   bool
	}{
		{"cmd:./tool x", true},
		{"cmd:" + dir + "/tool", true},
		{"cmd:cat /etc/hostname", true},
		{"cmd:  printf secret-value", true},
		{"cmd:if true", true},
		{"cmd:.", true},
		{"cmd:./data", false},
		{"cmd:./gone x", false},
		{"cmd:.", true},
		{"cmd:" + dir, false}, // a directory
		{"cmd:no-such-program x", false},
		{"cmd:no-such-program | head -n 1", false},
		{"cmd:no-such-program && echo a", true}, // not parsed
		{"cmd:no-such-program || echo a", true},
		{"cmd:no-such-program; echo a", true},
		{"cmd:no-such-program\necho a", true},
		{"cmd:f () { echo a }", true},
		{"cmd:A=1 no-such-program", true},
		{"cmd:$TOOL x", true},
		{"cmd:'./gone' x", true},
		{"cmd:-v x", true},
		{"cmd:", true},
		{"env:no-such-program", true},
		{"vault:no/such#program", true},
	} {
		if err := CheckProgram(t.Context(), tc.from, dir, nil); (err == nil) != tc.ok {
			t.Errorf("%q: %v", tc.from, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a program was run")
	}
}
