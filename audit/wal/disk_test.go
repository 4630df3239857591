package wal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/wal"
)

// ext4 is a real file system of 16 MiB on a loop device.
type ext4 struct{ image, at string }

func newExt4(t *testing.T) ext4 {
	t.Helper()
	d := ext4{filepath.Join(t.TempDir(), "image"), t.TempDir()}
	check(t, os.WriteFile(d.image, nil, 0o600))
	check(t, os.Truncate(d.image, 16<<20))
	command(t, "mkfs.ext4", "-q", d.image)
	d.mount(t)
	t.Cleanup(func() { d.unmount(t) })
	return d
}

func (d ext4) mount(t *testing.T) {
	t.Helper()
	command(t, "mount", "-o", "loop,errors=remount-ro", d.image, d.at)
}

func (d ext4) unmount(t *testing.T) {
	t.Helper()
	command(t, "umount", d.at)
}

// device is the kernel's name for the loop device.
func (d ext4) device(t *testing.T) string {
	t.Helper()
	var st unix.Stat_t
	check(t, unix.Stat(d.at, &st))
	name, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	check(t, err)
	return filepath.Base(name)
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// TestReadOnlyDisk: ext4 detects an error and becomes read-only
// during a run. In strict mode the log waits, and everything acknowledged before exists after
// the file system is repaired.
func TestReadOnlyDisk(t *testing.T) {
	k, disk := newKey(t), newExt4(t)
	dir := filepath.Join(disk.at, testRun)
	stalled := make(chan error, 1)
	o := k.options()
	o.SegmentBytes = segmentBytes
	o.OnStall = func(err error) { stalled <- err }
	l, err := wal.Create(dir, o)
	check(t, err)
	acked := map[int]uint64{}
	for id := range 9 {
		seq, err := l.Append(t.Context(), event(t, id))
		check(t, err)
		check(t, l.Sync(t.Context(), seq))
		acked[id] = seq
	}
	check(t, os.WriteFile("/sys/fs/ext4/"+disk.device(t)+"/trigger_fs_error", []byte("1"), 0))
	seq, err := l.Append(t.Context(), event(t, 9))
	check(t, err)
	if err := <-stalled; !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EIO) {
		t.Errorf("stalled with %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := l.Sync(short, seq); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("sync on a disk that is read-only: %v", err)
	}
	if err := l.Close(short, wal.Sealed); !errors.Is(err, wal.ErrAborted) {
		t.Errorf("close: %v", err)
	}
	disk.unmount(t)
	exec.Command("/sbin/e2fsck", "-fy", disk.image).Run() // exit status 1: errors were corrected
	disk.mount(t)
	records, _ := recovered(t, dir, k)
	holds(t, records, acked)
}

// TestSlowDisk freezes the file system, so that every write blocks: nothing is
// acknowledged until it is thawed, and then everything is durable.
func TestSlowDisk(t *testing.T) {
	for _, mode := range []wal.Mode{wal.Strict, wal.Degrade} {
		t.Run(string(mode), func(t *testing.T) { slowDisk(t, mode) })
	}
}

func slowDisk(t *testing.T, mode wal.Mode) {
	k, disk := newKey(t), newExt4(t)
	dir := filepath.Join(disk.at, testRun)
	o := k.options()
	o.Mode, o.SegmentBytes = mode, segmentBytes
	l, err := wal.Create(dir, o)
	check(t, err)
	want := map[int]uint64{}
	for id := range 60 {
		var thaw func()
		if id%20 == 10 {
			thaw = freeze(t, disk.at)
		}
		seq, err := l.Append(t.Context(), event(t, id))
		check(t, err)
		want[id] = seq
		if thaw != nil {
			short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			if err := l.Sync(short, seq); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("seq %d is acknowledged by a disk that hangs: %v", seq, err)
			}
			cancel()
			thaw()
		}
		check(t, l.Sync(t.Context(), seq))
	}
	check(t, l.Close(t.Context(), wal.Sealed))
	holds(t, read(t, dir), want)
	verify(t, dir, k)
}

// freeze blocks writes to a file system until thaw is called.
func freeze(t *testing.T, at string) (thaw func()) {
	t.Helper()
	const fifreeze, fithaw = 0xc0045877, 0xc0045878 // linux/fs.h
	d, err := os.Open(at)
	check(t, err)
	check(t, unix.IoctlSetInt(int(d.Fd()), fifreeze, 0))
	return func() {
		defer d.Close()
		check(t, unix.IoctlSetInt(int(d.Fd()), fithaw, 0))
	}
}
