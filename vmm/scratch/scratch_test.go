package scratch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const size = 64 << 20

// allocated returns the number of bytes that a file occupies on the host's disk.
func allocated(t *testing.T, f *os.File) int64 {
	t.Helper()
	var st unix.Stat_t
	ok(t, unix.Fstat(int(f.Fd()), &st))
	return st.Blocks * 512
}

// TestNew: a disk is an ext4 file system of the requested size, in a sparse file without a
// name, and shares no blocks with other disks.
func TestNew(t *testing.T) {
	dir := t.TempDir()
	work, blanks := filepath.Join(dir, "work"), filepath.Join(dir, "blanks")
	ok(t, os.Mkdir(work, 0o700))
	a, err := New(t.Context(), work, blanks, size)
	ok(t, err)
	b, err := New(t.Context(), work, blanks, size)
	ok(t, err)
	defer b.Close()
	magic := make([]byte, 2)
	_, err = a.ReadAt(magic, 1024+0x38) // s_magic of the superblock
	ok(t, err)
	if magic[0] != 0x53 || magic[1] != 0xEF {
		t.Errorf("magic %x is not ext4's", magic)
	}
	if info, err := a.Stat(); err != nil || info.Size() != size {
		t.Errorf("size %d, %v", info.Size(), err)
	}
	if n := allocated(t, a); n > 1<<20 {
		t.Errorf("an empty disk takes %d bytes", n)
	}
	if list, _ := os.ReadDir(work); len(list) != 0 {
		t.Errorf("the disk has a name: %v", list)
	}
	_, err = a.WriteAt([]byte("guest"), size/2)
	ok(t, err)
	got := make([]byte, 5)
	if _, err := b.ReadAt(got, size/2); err != nil || bytes.Equal(got, []byte("guest")) {
		t.Errorf("another disk holds %q, %v", got, err)
	}
	// The second descriptor of the same file shows the result of Wipe.
	fd, err := unix.Dup(int(a.Fd()))
	ok(t, err)
	after := os.NewFile(uintptr(fd), "after")
	defer after.Close()
	ok(t, Wipe(a))
	if n := allocated(t, after); n != 0 {
		t.Errorf("a wiped disk takes %d bytes", n)
	}
}

// TestCopy: the copy has the same bytes as the original and occupies less space.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	from, err := os.Create(filepath.Join(dir, "from"))
	ok(t, err)
	defer from.Close()
	ok(t, from.Truncate(1<<20+100))
	for _, at := range []int64{0, 5000, 300 << 10, 1 << 20} {
		_, err := from.WriteAt(bytes.Repeat([]byte{byte(at>>8) | 1}, 77), at)
		ok(t, err)
	}
	_, err = from.WriteAt(make([]byte, 128<<10), 500<<10) // zeros that are not a hole
	ok(t, err)
	to, err := Clone(dir, from)
	ok(t, err)
	defer to.Close()
	want, got := make([]byte, 1<<20+100), make([]byte, 1<<20+100)
	_, err = from.ReadAt(want, 0)
	ok(t, err)
	_, err = to.ReadAt(got, 0)
	ok(t, err)
	if !bytes.Equal(want, got) {
		t.Error("the copy differs")
	}
	if a, b := allocated(t, to), allocated(t, from); a >= b {
		t.Errorf("the copy takes %d bytes, the original %d", a, b)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCapacity: Capacity agrees with dumpe2fs.
func TestCapacity(t *testing.T) {
	blanks := t.TempDir()
	for _, size := range []int64{size, 600 << 20, 5 << 30} {
		room, files, err := Capacity(t.Context(), blanks, size)
		ok(t, err)
		out, err := exec.Command("/sbin/dumpe2fs", "-h", filepath.Join(blanks, fmt.Sprintf("%d.ext4", size))).Output()
		ok(t, err)
		value := func(name string) (n int64) {
			for line := range strings.Lines(string(out)) {
				if rest, is := strings.CutPrefix(line, name+":"); is {
					n, err = strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
					ok(t, err)
				}
			}
			return n
		}
		if want := value("Free blocks") * value("Block size"); room != want || files != value("Free inodes") || room < size/2 {
			t.Errorf("%d bytes: capacity for %d bytes and %d files, want %d and %d", size, room, files, want, value("Free inodes"))
		}
	}
}
