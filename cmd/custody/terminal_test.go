package main

import (
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// screen collects a program's output. It is safe for concurrent use.
type screen struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// patience bounds the wait for expected output: a loaded machine is slow.
const patience = 2 * time.Minute

// await returns when the text is on the screen.
func (s *screen) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, "on the screen: "+text, func() bool { return strings.Contains(s.String(), text) })
}

// eventually returns when what is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not %s after %v", what, patience)
		}
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.env = []string{"TERM=vt100"}
	cmd := d.command("run", "--tty", "--", "bash", "-c", `
		test -t 0 && test -t 1 && test -t 2 && echo "a terminal: $TERM, $(tty)"
		echo "size: $(stty size)"
		trap 'echo "resized: $(stty size)"' WINCH
		trap 'echo interrupted; exit 9' INT
		read -r line; echo "line: <$line>"
		echo ready; while :; do sleep 0.1; done`)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 101})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	var shown screen
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(&shown, terminal) })

	shown.await(t, "a terminal: vt100, /dev/pts/0\r\n")
	shown.await(t, "size: 33 101\r\n")
	io.WriteString(terminal, "typed\r")
	shown.await(t, "line: <typed>")
	shown.await(t, "ready")
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 50, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	shown.await(t, "resized: 50 132\r\n")
	io.WriteString(terminal, "\x03")
	shown.await(t, "interrupted\r\n")
	cmd.Wait()
	after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit code %d, want 9:\n%s", code, shown.String())
	}
	if before.Lflag != after.Lflag || before.Iflag != after.Iflag || before.Oflag != after.Oflag {
		t.Errorf("the terminal was not given back as it was: %+v, was %+v", after, before)
	}
	var recorded strings.Builder
	for _, r := range d.records("last", "output") {
		if r.Output.Stream != "tty" {
			t.Errorf("output on stream %s", r.Output.Stream)
		}
		recorded.WriteString(string(r.Output.Text))
	}
	d.contains(recorded.String(), "a terminal: vt100", "line: <typed>", "interrupted")
	d.verified("last")
}

// Signals that custody gets without a terminal.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		code   int
		status string
	}{
		{"the command's own business", syscall.SIGINT, 3, "done"},
		{"the user's wish that it ends", syscall.SIGTERM, exitFailed, "cancelled"},
		{"a terminal that was closed", syscall.SIGHUP, exitFailed, "cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDoor(t)
			cmd := d.command("run", "--", "sh", "-c", "trap 'echo got it; exit 3' INT TERM; echo ready; while :; do sleep 0.1; done")
			var out, errs screen
			cmd.Stdout, cmd.Stderr = &out, &errs
			d.start(cmd)
			out.await(t, "ready")
			cmd.Process.Signal(c.signal)
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, errs.String())
			}
			d.contains(out.String(), "got it")
			run := d.runs()[0]
			if string(run.Result) != c.status || string(run.Status) != "sealed" {
				t.Errorf("run is %s, %s; want sealed, %s", run.Status, run.Result, c.status)
			}
			d.verified(run.ID)
		})
	}
}

// TestOutputGoesAway: where no one reads its output any more, a command ends as at the end of a pipe, unless it
// ignores that; the record is whole either way.
func TestOutputGoesAway(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	for _, tt := range []struct {
		script string
		code   int
		last   bool // is in the record
	}{
		{"echo first; exec yes", 128 + int(syscall.SIGPIPE), false},
		{"trap '' PIPE; echo first; for i in $(seq 20); do echo $i; sleep 0.05; done; echo last", 0, true},
	} {
		cmd := d.command("run", "-q", "--", "sh", "-c", tt.script)
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = write
		d.start(cmd)
		write.Close()
		if b := make([]byte, 6); true {
			if _, err := io.ReadFull(read, b); err != nil || string(b) != "first\n" {
				t.Errorf("%s: read %q, %v", tt.script, b, err)
			}
		}
		read.Close()
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != tt.code {
			t.Errorf("%s: exit code %d, want %d", tt.script, code, tt.code)
		}
		out := d.must(0, "timeline", "last", "--json", "--kind", "output").stdout
		if strings.Contains(out, "last") != tt.last {
			t.Errorf("%s: output %q, want its last line: %v", tt.script, out, tt.last)
		}
		d.verified("last")
	}
}
