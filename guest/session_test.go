package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/vmtest"
)

// inSession runs a test in a session of a VM and of a gVisor sandbox.
func inSession(t *testing.T, o vmtest.Options, test func(s *session)) {
	for name, driver := range map[string]func(testing.TB) template.Driver{
		"vm": vmtest.Driver, "gvisor": func(t testing.TB) template.Driver { return vmtest.GVisor(t) },
	} {
		t.Run(name, func(t *testing.T) {
			o := o
			o.Driver = driver(t)
			test(&session{T: t, guest: vmtest.Restore(t, o).Guest})
		})
	}
}

// session is a guest in which commands run concurrently.
type session struct {
	*testing.T
	guest *channel.Client

	mu    sync.Mutex // guards count
	count int
}

// said is how a command ended.
type said struct {
	channel.Exit
	out string
}

// start starts a script. The returned function waits for its end.
func (s *session) start(cmd channel.Command) (*channel.Process, func() said) {
	s.Helper()
	s.mu.Lock()
	s.count++
	cmd.Step = fmt.Sprint("p", s.count)
	s.mu.Unlock()
	cmd.Session, cmd.Env = true, append(cmd.Env, "PATH=/usr/bin:/bin")
	p, err := s.guest.Start(s.Context(), cmd)
	if err != nil {
		s.Fatal(err)
	}
	out := make(chan string, 1)
	go func() {
		var stderr bytes.Buffer
		var all sync.WaitGroup
		if p.Stderr != nil {
			all.Go(func() { io.Copy(&stderr, p.Stderr) })
		}
		stdout, _ := io.ReadAll(p.Stdout)
		all.Wait()
		out <- string(stdout) + stderr.String()
	}()
	return p, func() said {
		s.Helper()
		ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
		defer cancel()
		exit, err := p.Wait(ctx)
		if err != nil {
			s.Fatalf("%q: %v", cmd.Argv, err)
		}
		return said{exit, <-out}
	}
}

func (s *session) script(text string) said {
	s.Helper()
	p, wait := s.start(channel.Command{Argv: []string{"bash", "-c", text}})
	p.Stdin.Close()
	return wait()
}

// TestSession: the commands of a session run concurrently in one cell.
func TestSession(t *testing.T) {
	inSession(t, vmtest.Options{Sensor: true}, func(s *session) {
		server, ended := s.start(channel.Command{Argv: []string{"bash", "-c", `echo $$ >/tmp/pid; while read -r line; do echo "got $line"; done; exit 5`}})
		got := s.script(`until [ -s /tmp/pid ]; do sleep 0.05; done; kill -0 $(cat /tmp/pid) && tr '\0' ' ' </proc/$(cat /tmp/pid)/cmdline; echo shared >/dev/shm/file; echo shared >/run/file`)
		if got.Code != 0 || !strings.HasPrefix(got.out, "bash -c echo $$") {
			s.Errorf("the other process: %+v", got)
		}
		if got := s.script(`cat /dev/shm/file /run/file; exit 3`); got.Code != 3 || got.out != "shared\nshared\n" {
			s.Errorf("a second command: %+v", got)
		}
		io.WriteString(server.Stdin, "one\n")
		server.Stdin.Close()
		if got := ended(); got.Code != 5 || got.out != "got one\n" {
			s.Errorf("the first command: %+v", got)
		}
	})
}

// TestLeftBehind: what a command leaves behind runs on, and neither delays its end nor is killed for writing; all that the command itself
// wrote is read.
func TestLeftBehind(t *testing.T) {
	inSession(t, vmtest.Options{}, func(s *session) {
		got := s.script(`(while sleep 0.1; do echo alive; date +%s%N >/tmp/tick; done) & echo $! >/tmp/left; head -c 60000 /dev/zero | tr '\0' x`)
		if got.Code != 0 || strings.Count(got.out, "x") != 60000 {
			s.Errorf("the command exited with %d and wrote %d bytes", got.Code, strings.Count(got.out, "x"))
		}
		if got := s.script(`a=$(cat /tmp/tick); for i in $(seq 600); do [ "$a" = "$(cat /tmp/tick)" ] || break; sleep 0.1; done; [ $i != 600 ] && kill $(cat /tmp/left)`); got.Code != 0 {
			s.Errorf("it does not run on: %+v", got)
		}
		size := channel.Winsize{Rows: 24, Cols: 80}
		p, wait := s.start(channel.Command{Argv: []string{"bash", "-c", "nohup sleep 1000 & tty; echo done"}, TTY: &size})
		if got := wait(); got.Code != 0 || !strings.Contains(got.out, "/dev/pts/") || !strings.Contains(got.out, "done") {
			s.Errorf("with a terminal: %+v", got)
		}
		p.Stdin.Close()
	})
}

// TestSessionSignals: a signal reaches the process group of one command.
func TestSessionSignals(t *testing.T) {
	inSession(t, vmtest.Options{}, func(s *session) {
		p, wait := s.start(channel.Command{Argv: []string{"sleep", "1000"}})
		_, other := s.start(channel.Command{Argv: []string{"sleep", "3"}})
		if err := p.Signal(s.Context(), syscall.SIGTERM); err != nil {
			s.Fatal(err)
		}
		if got := wait(); got.Signal != int(syscall.SIGTERM) {
			s.Errorf("%+v", got)
		}
		if got := other(); got.Code != 0 {
			s.Errorf("the other command: %+v", got)
		}
	})
}

// TestSignalToAll: a command that signals all processes it may neither ends nor stops a later one.
func TestSignalToAll(t *testing.T) {
	inSession(t, vmtest.Options{}, func(s *session) {
		for _, sig := range []string{"TERM", "HUP", "STOP", "KILL"} {
			if got := s.script("kill -" + sig + " -1; sleep 0.3; kill -" + sig + " -1; exit 0"); got.Code != 0 {
				s.Errorf("kill -%s: %+v", sig, got)
			}
			if got := s.script("echo lives"); got.Code != 0 || got.out != "lives\n" {
				s.Errorf("after kill -%s: %+v", sig, got)
			}
		}
	})
}

// TestSessionSecrets: a command's secrets are not in the files of another one, and end with all that the command has started.
func TestSessionSecrets(t *testing.T) {
	inSession(t, vmtest.Options{}, func(s *session) {
		value := canary()
		p, wait := s.start(channel.Command{
			Argv: []string{"bash", "-c", `(sleep 1000 & echo $! >/tmp/child); cat /run/secrets/file; read -r; exit 0`}, Secrets: []channel.Secret{{File: "file", Env: "TOKEN", Value: []byte(value)}},
		})
		got := s.script(`until [ -s /tmp/child ]; do sleep 0.05; done; ls -A /run/secrets; echo end`)
		if got.out != "end\n" {
			s.Errorf("another command finds %q", got.out)
		}
		io.WriteString(p.Stdin, "\n")
		if got := wait(); got.Code != 0 || got.out != value {
			s.Errorf("the command: %+v", got)
		}
		if got := s.script(`kill -0 $(cat /tmp/child)`); got.Code == 0 {
			s.Error("a process with the secrets outlives its command")
		}
	})
}

// TestSessionUser: a command runs as a user of the guest.
func TestSessionUser(t *testing.T) {
	inSession(t, vmtest.Options{}, func(s *session) {
		if got := s.script(`echo tester:x:1000:1000::/home/tester:/bin/sh >>/etc/passwd && echo tester:x:1000: >>/etc/group && sed -i 's/^audio:.*/&tester/' /etc/group`); got.Code != 0 {
			s.Fatalf("%+v", got)
		}
		const who = `id -un; id -Gn; echo $HOME $USER; [ -O /proc/self/fd/0 ] && echo owner; cat /etc/shadow >/dev/null 2>&1 || echo refused; grep CapPrm /proc/self/status`
		size := channel.Winsize{Rows: 24, Cols: 80}
		for user, want := range map[string]string{
			"tester": "tester|tester audio|/home/tester tester|owner|refused|CapPrm:\t0000000000000000|",
			"0":      "root|root|/root 0|owner|CapPrm:\t",
		} {
			_, wait := s.start(channel.Command{Argv: []string{"bash", "-c", who}, User: user, TTY: &size})
			if got := strings.NewReplacer("\r\n", "|").Replace(wait().out); !strings.HasPrefix(got, want) {
				s.Errorf("user %s: %q", user, got)
			}
		}
		handed := []channel.Secret{{File: "deep/file", Env: "TOKEN", Value: []byte("the secret")}}
		_, wait := s.start(channel.Command{Argv: []string{"bash", "-c", "cat /run/secrets/deep/file; . /run/secrets/env"}, User: "tester", Secrets: handed})
		if got := wait(); got.Code != 0 || got.out != "the secret" {
			s.Errorf("a user's secret: %+v", got)
		}
		_, wait = s.start(channel.Command{Argv: []string{"true"}, User: "nobody-of-this-name"})
		if got := wait(); got.Code != 126 || !strings.Contains(got.Error, "nobody-of-this-name") {
			s.Errorf("an unknown user: %+v", got)
		}
		s.script(`rm /etc/passwd; mkfifo /etc/passwd`)
		_, wait = s.start(channel.Command{Argv: []string{"true"}, User: "tester"})
		if got := wait(); got.Code == 0 || !strings.Contains(got.Error, "passwd") {
			s.Errorf("without users: %+v", got)
		}
	})
}

// TestEndSession: the end of a session is the end of all its processes, and of those that its commands have left behind.
func TestEndSession(t *testing.T) {
	inSession(t, vmtest.Options{Sensor: true}, func(s *session) {
		s.script("nohup sleep 1000 >/dev/null 2>&1 &")
		_, wait := s.start(channel.Command{Argv: []string{"sleep", "1000"}})
		if err := s.guest.EndSession(s.Context()); err != nil {
			s.Fatal(err)
		}
		if got := wait(); got.Signal != int(syscall.SIGKILL) {
			s.Errorf("%+v", got)
		}
		_, wait = s.start(channel.Command{Argv: []string{"true"}})
		if got := wait(); got.Code != 125 || !strings.Contains(got.Error, "the session has ended") {
			s.Errorf("a command after the end: %+v", got)
		}
		p, err := s.guest.Start(s.Context(), channel.Command{Step: "step", Argv: []string{"sh", "-c", "pgrep sleep"}, Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			s.Fatal(err)
		}
		io.Copy(io.Discard, p.Stdout)
		if exit, err := p.Wait(s.Context()); err != nil || exit.Code != 1 {
			s.Errorf("a process is left: %+v, %v", exit, err)
		}
		if err := s.guest.EndSession(s.Context()); err != nil {
			s.Error(err)
		}
	})
}

// TestManyCommands: 200 commands run concurrently, and the events of each are its own.
func TestManyCommands(t *testing.T) {
	seen := make(chan audit.Event, 10000)
	o := vmtest.Options{Sensor: true, Handler: func(_ context.Context, e *audit.Event) error {
		seen <- *e
		return nil
	}}
	inSession(t, o, func(s *session) {
		const all = 200
		var waits [all]func() said
		for i := range all {
			_, waits[i] = s.start(channel.Command{Argv: []string{"bash", "-c", fmt.Sprintf("read -r; cat /dev/null; exit %d", i)}})
		}
		got := s.script(`until [ "$(pgrep -c bash)" -ge 200 ]; do sleep 0.2; done; pkill -f 'read -r'`)
		if got.Code > 1 {
			s.Errorf("%+v", got)
		}
		for i, wait := range waits {
			if got := wait(); got.Signal != int(syscall.SIGTERM) {
				s.Errorf("command %d: %+v", i, got)
			}
		}
	})
	close(seen)
	for e := range seen {
		if e.Exec != nil && len(e.Exec.Argv) > 2 && e.Exec.Argv[0] == "bash" && strings.HasPrefix(string(e.Exec.Argv[2]), "read") {
			n := strings.TrimPrefix(string(e.Exec.Argv[2]), "read -r; cat /dev/null; exit ")
			var i int
			fmt.Sscan(n, &i)
			if e.Step != fmt.Sprint("p", i+1) {
				t.Errorf("the process of command %d has the step %s", i, e.Step)
			}
		}
	}
}
