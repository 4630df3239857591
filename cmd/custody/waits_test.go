package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHeldLock: a command that waits for a lock names its holder and gives up; a second signal ends it at any moment.
func TestHeldLock(t *testing.T) {
	t.Parallel()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	dir, home := t.TempDir(), t.TempDir()
	project := "version: 1\nsecrets:\n  key: {from: \"cmd:echo 12345678\", deliver: {env: KEY}}\n"
	if err := os.WriteFile(filepath.Join(dir, "custody.yaml"), []byte(project), 0o600); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(home, "trusted")
	if err := os.MkdirAll(held, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() }) // after the parallel tests below
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	start := func(t *testing.T) (*exec.Cmd, *bytes.Buffer, chan error) {
		c := exec.Command(filepath.Join(bin, "custody"), "trust")
		c.Dir, c.Env = dir, append(os.Environ(), "CUSTODY_HOME="+home)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		t.Cleanup(func() { c.Process.Kill() })
		return c, &out, ended
	}
	t.Run("gives up", func(t *testing.T) {
		t.Parallel()
		_, out, ended := start(t)
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
				t.Errorf("it ended with %v, want exit code %d", err, exitFailed)
			}
			want := fmt.Sprintf("%s is locked by ", held)
			if !bytes.Contains(out.Bytes(), []byte(want)) {
				t.Errorf("it says %q, want %q", out, want)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("it still waits")
		}
	})
	t.Run("second signal", func(t *testing.T) {
		t.Parallel()
		c, out, ended := start(t)
		for opened := false; !opened; time.Sleep(10 * time.Millisecond) {
			fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.Process.Pid))
			for _, fd := range fds {
				to, _ := os.Readlink(fd)
				opened = opened || to == held
			}
			select {
			case err := <-ended:
				t.Fatalf("it ended before it waited: %v: %s", err, out)
			default:
			}
		}
		c.Process.Signal(syscall.SIGTERM)
		for {
			select {
			case <-ended:
				if s := c.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGTERM {
					t.Errorf("it ended with %v, want by the second SIGTERM: %s", c.ProcessState, out)
				}
				return
			case <-time.After(time.Second):
				c.Process.Signal(syscall.SIGTERM)
			}
		}
	})
}
