package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/sampleruns"
)

// TestRotationCutOff: a rotation that is killed after its statement, and before the new key signs, is finished by the next
// command. What was recorded before and after it verifies.
func TestRotationCutOff(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.home = t.TempDir()
	before := sampleruns.Record(t, d.home, sampleruns.Review())
	killed := t.TempDir() // the host as it is when the rotation is killed
	if err := os.CopyFS(killed, os.DirFS(d.home)); err != nil {
		t.Fatal(err)
	}
	d.must(0, "key", "rotate")
	key := d.must(0, "key", "show").stdout
	err := errors.Join(
		os.CopyFS(filepath.Join(killed, "keys", "rotations"), os.DirFS(filepath.Join(d.home, "keys", "rotations"))),
		os.Rename(filepath.Join(d.home, "keys", "host.key"), filepath.Join(killed, "keys", "next.key")),
		os.Chmod(filepath.Join(killed, "keys", "host.key"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	d.home = killed
	after := sampleruns.Record(t, d.home, sampleruns.Review())
	for _, run := range []string{before, after} {
		d.must(0, "verify", run)
	}
	d.must(0, "fsck")
	if now := d.must(0, "key", "show").stdout; now != key {
		t.Errorf("the host signs with %s, want %s", now, key)
	}
	if _, err := os.Stat(filepath.Join(killed, "keys", "next.key")); err == nil {
		t.Error("next.key is still there")
	}
}

// TestRotationKeyLost: the new key of a rotation that was killed is not there. The retired one does not sign.
func TestRotationKeyLost(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.home = t.TempDir()
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	old, err := os.ReadFile(filepath.Join(d.home, "keys", "host.key"))
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(filepath.Join(d.home, "keys", "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	d.must(0, "key", "rotate")
	err = errors.Join(
		os.WriteFile(filepath.Join(d.home, "keys", "host.key"), old, 0o600),
		os.WriteFile(filepath.Join(d.home, "keys", "host.pub"), public, 0o644),
	)
	if err != nil {
		t.Fatal(err)
	}
	s := d.custody("verify", run)
	if s.code == 0 || !strings.Contains(s.stderr, "restore "+filepath.Join(d.home, "keys", "next.key")) {
		t.Errorf("verify exited %d: %s", s.code, s.stderr)
	}
	if _, err := os.Stat(filepath.Join(d.home, "keys", "next.key")); err == nil {
		t.Error("another next.key was made")
	}
}

// TestFsckUnborn: the directory of a run whose process was killed before it recorded anything is not a problem.
func TestFsckUnborn(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.home = t.TempDir()
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	unborn := filepath.Join(d.home, "runs", run[:len(run)-2]+"zz")
	if err := os.Mkdir(unborn, 0o700); err != nil {
		t.Fatal(err)
	}
	shareLock(t, filepath.Join(d.home, "runs")) // as a run that begins does: no command removes the directory
	d.must(0, "fsck")
}

// TestErasureRefused: an erasure whose statement could never be verified is refused, and the run does not change.
func TestErasureRefused(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.home = t.TempDir()
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	d.must(exitFailed, "erase", run, "5", "--reason", strings.Repeat("x", 64<<10), "--by", "test")
	d.must(0, "verify", run)
	d.must(0, "erase", run, "5", "--reason", "request 4711", "--by", "test")
	d.must(0, "verify", run)
}

// TestErasureCutOff: an erasure that is killed between log and store is completed by a verification, after other readers
// of the record have ended.
func TestErasureCutOff(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.home = t.TempDir()
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	erased, killed := d.home, t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(d.home)); err != nil {
		t.Fatal(err)
	}
	d.must(0, "erase", run, "5", "--reason", "a test", "--by", "test")
	for _, dir := range []string{"runs", "log"} {
		err := errors.Join(os.RemoveAll(filepath.Join(killed, dir)), os.CopyFS(filepath.Join(killed, dir), os.DirFS(filepath.Join(erased, dir))))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"log.checkpoints", "log.entries"} {
		data, err := os.ReadFile(filepath.Join(erased, file))
		if err := errors.Join(err, os.WriteFile(filepath.Join(killed, file), data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.MkdirAll(filepath.Join(killed, "erasing"), 0o700),
		os.WriteFile(filepath.Join(killed, "erasing", run+".5"), nil, 0o600),
		os.Chmod(filepath.Join(killed, "keys", "host.key"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	d.home = killed
	reading := shareLock(t, killed)
	released := time.AfterFunc(2*time.Second, func() { reading.Close() })
	defer released.Stop()
	d.must(0, "verify", run)
}

// TestDeletionCutOff: a deletion that is killed after its statement is finished by fsck.
func TestDeletionCutOff(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.home = t.TempDir()
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(d.home)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // the run is due
	d.retaining("delete_after: 1s")
	d.must(0, "prune")
	err := errors.Join(
		os.CopyFS(filepath.Join(killed, "deleted"), os.DirFS(filepath.Join(d.home, "deleted"))),
		os.Chmod(filepath.Join(killed, "keys", "host.key"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	d.home = killed
	reading := shareLock(t, killed)
	released := time.AfterFunc(2*time.Second, func() { reading.Close() })
	defer released.Stop()
	d.must(0, "fsck")
	d.contains(d.must(2, "verify", run).stderr, "was deleted by retention")
}

// shareLock shares the lock of a directory, as a verification shares that of $CUSTODY_HOME, until the file is closed.
func shareLock(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
