package template

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMakeSparse: a file keeps its bytes and its size, and takes less room.
func TestMakeSparse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	b := make([]byte, 4<<20+5)
	rand.Read(b[1<<20 : 1<<20+100])
	b[len(b)-1] = 7
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeSparse(path); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b) {
		t.Fatalf("the file was changed, %v", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Blocks*512 > 512<<10 {
		t.Errorf("the file takes %d bytes, %v", st.Blocks*512, err)
	}
}
