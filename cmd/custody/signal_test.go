package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSecondSignal: a command that waits where nothing can call it back ends with the second signal.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	fifo := filepath.Join(d.dir, "since")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := d.command("verify", "r-1", "--since", fifo)
	d.start(cmd)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	time.Sleep(500 * time.Millisecond) // it waits for somebody who writes to the FIFO
	for range 2 {
		cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(500 * time.Millisecond)
	}
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("it ended otherwise: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
		cmd.Process.Kill()
		<-ended
	}
}
