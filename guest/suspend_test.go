package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm/vmtest"
)

// paused is a command that runs over several sessions of the host.
type paused struct {
	cmd    channel.Command
	proc   *channel.Process
	mu     sync.Mutex // guards output
	output bytes.Buffer
	read   sync.WaitGroup
}

// Write implements io.Writer.
func (p *paused) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *paused) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// connected reads the outputs of a session's process.
func (p *paused) connected(proc *channel.Process) {
	p.proc = proc
	for _, r := range []io.Reader{proc.Stdout, proc.Stderr} {
		if r != nil {
			p.read.Go(func() { io.Copy(p, r) })
		}
	}
}

// await returns when the output has a text.
func (p *paused) await(t *testing.T, text string) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); !strings.Contains(p.said(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the output has no %q: %q", text, p.said())
		}
	}
}

// suspended is a VM whose guest is suspended repeatedly.
type suspended struct {
	*testing.T
	machine  *vmtest.Machine
	commands []*paused
	next     func(*channel.Command) // changes the next command before its start; nil: it is not changed
	spoken   int
}

func (s *suspended) start(script string, tty *channel.Winsize) *paused {
	s.Helper()
	p := &paused{cmd: channel.Command{
		Step: fmt.Sprint("p", len(s.commands)), Argv: []string{"bash", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Session: true, TTY: tty,
	}}
	if s.next != nil {
		s.next(&p.cmd)
		s.next = nil
	}
	proc, err := s.machine.Guest.Start(s.Context(), p.cmd)
	if err != nil {
		s.Fatal(err)
	}
	p.connected(proc)
	s.commands = append(s.commands, p)
	return p
}

func (s *suspended) suspension() channel.Suspension {
	return channel.Suspension{Client: s.machine.Guest}
}

// limited returns a context for one operation.
func (s *suspended) limited() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	s.Cleanup(cancel)
	return ctx
}

// park suspends the guest. stop is called when its commands are frozen.
func (s *suspended) park(stop func()) {
	s.Helper()
	if err := s.suspension().Suspend(s.limited(), stop); err != nil {
		s.Fatal(err)
	}
	for _, p := range s.commands {
		p.read.Wait()
		if _, err := p.proc.Wait(s.limited()); !errors.Is(err, channel.ErrSuspended) {
			s.Fatalf("%s: %v", p.cmd.Step, err)
		}
	}
	if err := s.suspension().Park(s.limited()); err != nil {
		s.Fatal(err)
	}
}

// wake connects with the guest again, and with its commands.
func (s *suspended) wake(id channel.Identity) {
	s.Helper()
	s.connect(id)
	s.attach()
}

// connect connects with the guest again.
func (s *suspended) connect(id channel.Identity) {
	s.Helper()
	var err error
	if s.machine.Guest, err = channel.Connect(s.limited(), s.machine.VM.Channel(), vmtest.Wake(), nil); err != nil {
		s.Fatal(err)
	}
	if err := s.machine.Guest.Identify(s.limited(), id); err != nil {
		s.Fatal(err)
	}
}

// attach connects with the commands, and lets them run.
func (s *suspended) attach() {
	s.Helper()
	for _, p := range s.commands {
		proc, err := s.suspension().Attach(s.limited(), p.cmd)
		if err != nil {
			s.Fatal(err)
		}
		p.connected(proc)
	}
	if err := s.suspension().Thaw(s.limited()); err != nil {
		s.Fatal(err)
	}
}

// count returns the lines of a command that counts, which must be without a gap.
func (s *suspended) count(p *paused) (n int) {
	s.Helper()
	text := p.said()
	for line := range strings.Lines(text[:strings.LastIndex(text, "\n")+1]) {
		n++
		if got, err := strconv.Atoi(strings.TrimSpace(line)); err != nil || got != n {
			s.Fatalf("line %d is %q", n, line)
		}
	}
	return n
}

// TestSuspend: commands that run while the guest is suspended lose neither input nor output, keep their process IDs, and
// see a new time.
func TestSuspend(t *testing.T) {
	s := &suspended{T: t, machine: vmtest.Restore(t, vmtest.Options{Sensor: true})}
	counter := s.start(`i=0; while :; do echo $((i+=1)); sleep 0.02; done`, nil)
	reader := s.start(`echo $$; read -r line; echo "pid $$ got ${#line}"; cat`, nil)
	terminal := s.start(`echo begin; read -r line; echo "read $line"; tty`, &channel.Winsize{Rows: 24, Cols: 80})
	reader.await(t, "\n")
	pid := strings.TrimSpace(reader.said())
	terminal.await(t, "begin")
	long := strings.Repeat("x", 200_000)
	before := 0
	for round := range 5 {
		counter.await(t, fmt.Sprintf("\n%d\n", before+10))
		s.park(func() {
			if round == 0 { // more than a pipe has room for, to a command that is frozen
				if _, err := io.WriteString(reader.proc.Stdin, long); err != nil {
					t.Error(err)
				}
			}
		})
		before = s.count(counter)
		frozen := counter.said()
		time.Sleep(50 * time.Millisecond)
		if counter.said() != frozen {
			t.Fatal("the command runs while the guest is suspended")
		}
		id := vmtest.Identity(vmtest.Options{})
		id.Run, id.Time = fmt.Sprintf("r-%d", round), time.Date(2030+round, 1, 1, 0, 0, 0, 0, time.UTC)
		s.wake(id)
	}
	if counter.await(t, fmt.Sprintf("\n%d\n", before+10)); s.count(counter) < before+10 {
		t.Error("the command does not continue")
	}
	io.WriteString(reader.proc.Stdin, "\nrest")
	reader.proc.Stdin.Close()
	io.WriteString(terminal.proc.Stdin, "word\n")
	for p, want := range map[*paused]string{reader: fmt.Sprintf("pid %s got %d\nrest", pid, len(long)), terminal: "read word"} {
		exit, err := p.proc.Wait(s.limited())
		p.read.Wait()
		if err != nil || exit.Code != 0 || !strings.Contains(p.said(), want) {
			t.Errorf("%+v %v: %q, want %q", exit, err, p.said(), want)
		}
	}
	s.commands = s.commands[:1]
	if got := s.start("date +%Y", nil); true {
		got.await(t, "2034")
	}
}

// TestSuspendAlone: a guest can be suspended as soon as a command in a cell of its own has ended.
func TestSuspendAlone(t *testing.T) {
	s := &suspended{T: t, machine: vmtest.Restore(t, vmtest.Options{Sensor: true})}
	p := s.start(obey, nil)
	for round := range 10 {
		if got := s.machine.Bash("sleep 100 & echo alone"); got != "alone\n" { // the cell has to be killed
			t.Errorf("%q", got)
		}
		s.park(func() {})
		s.wake(vmtest.Identity(vmtest.Options{}))
		if got := s.say(p, "echo here"); got != "here\n" {
			t.Errorf("round %d: %q", round, got)
		}
	}
}
