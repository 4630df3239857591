package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/sampleruns"
)

// TestOneSignal: a command that waits for the reader of a full pipe ends with one signal, and reports why.
func TestOneSignal(t *testing.T) {
	t.Parallel()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(t.TempDir(), "home")
	run := sampleruns.Record(t, home, sampleruns.Large(2000))
	r, w, err := os.Pipe() // which no one reads
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
		if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(said.String(), "the reader of the output takes nothing") {
			t.Errorf("it ended otherwise: %v: %s", err, said.String())
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
		cmd.Process.Kill()
		<-ended
	}
}

// TestStopped: Custody is stopped (SIGSTOP) in the middle of a step and continued later. Nothing of what the step did meanwhile is lost.
func TestStopped(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	cmd, out := d.begun("run", "-q", "--", "sh", "-c", "echo begun; for i in 1 2 3 4 5 6; do sleep 0.5; echo $i > f$i; done; echo over")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second) // the step ends meanwhile
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if err := errors.Join(err, cmd.Wait()); err != nil || !strings.Contains(string(rest), "over") {
		t.Errorf("%v, %q", err, rest)
	}
	written := map[string]bool{}
	for _, r := range d.records("last", "file") {
		written[string(r.File.Path)] = true
	}
	for i := 1; i <= 6; i++ {
		if path := fmt.Sprintf("/workspace/f%d", i); !written[path] {
			t.Errorf("no record of %s", path)
		}
	}
	d.verified("last")
}

// TestOneSignalStderr: so does one whose standard error is a full pipe.
func TestOneSignalStderr(t *testing.T) {
	t.Parallel()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err == nil {
		_, err = w.Write(make([]byte, size))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "custody"), "verify", "r-none")
	cmd.Env, cmd.Stderr = append(os.Environ(), "CUSTODY_HOME="+t.TempDir()), w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("it did not wait for the reader: %v", err)
	case <-time.After(time.Second):
	}
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() < 1 {
			t.Errorf("it ended otherwise: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
		cmd.Process.Kill()
	}
}
