package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/internal/story"
)

// TestOneSignal: a command that waits for the reader of a full pipe ends with one signal, and says why.
func TestOneSignal(t *testing.T) {
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
	var said bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "CUSTODY_HOME="+home), w, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	time.Sleep(time.Second) // the pipe is full
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(said.String(), "the reader of standard output takes nothing") {
			t.Errorf("it ended otherwise: %v: %s", err, said.String())
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
		cmd.Process.Kill()
		<-ended
	}
}
