package regular

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestCopy: the copy has no name, is read by its path until it is removed, and ends with its context.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	path, remove, err := Copy(t.Context(), strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "text" {
		t.Errorf("%s: %q, %v", path, text, err)
	}
	remove()
	if _, err := os.ReadFile(path); err == nil {
		t.Error("it is there after remove")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Copy(ended, strings.NewReader("text")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is done: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
