package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHeldLock: a command that waits for a lock reports that after a while, names the holder, gives up, and ends with a signal before that.
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
	start := func(t *testing.T) (*exec.Cmd, *screen, chan error) {
		c := exec.Command(filepath.Join(bin, "custody"), "trust")
		c.Dir, c.Env = dir, append(os.Environ(), "CUSTODY_HOME="+home)
		var out screen
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
			if !strings.Contains(out.String(), want) {
				t.Errorf("it says %q, want %q", out.String(), want)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("it still waits")
		}
	})
	t.Run("signal", func(t *testing.T) {
		t.Parallel()
		c, out, ended := start(t)
		eventually(t, "reported: the wait", func() bool { return strings.Contains(out.String(), "waiting for "+held+", held by ") })
		c.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
			if code := c.ProcessState.ExitCode(); code != exitFailed || strings.Count(out.String(), "waiting for") != 1 {
				t.Errorf("it ended with %v: %s", c.ProcessState, out.String())
			}
		case <-time.After(time.Minute):
			t.Error("it still waits")
		}
	})
}
