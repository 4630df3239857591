package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/internal/story"
)

// TestSecondSignal: a command that waits where nothing can call it back, such as for the reader of a pipe, ends with the second signal.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(t.TempDir(), "home")
	run := story.Record(t, home, story.Large(2000))
	r, w, err := os.Pipe() // which nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(filepath.Join(bin, "custody"), "export", run, "--format", "json")
	cmd.Env, cmd.Stdout = append(os.Environ(), "CUSTODY_HOME="+home), w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	time.Sleep(time.Second) // the pipe is full
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
