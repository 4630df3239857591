package channel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/splice"
)

// heldCell is a localCell whose streams can be held.
type heldCell struct {
	*localCell
	deliver func([]Secret) error // nil: it accepts none
}

func (c heldCell) Deliver(all []Secret) error {
	if c.deliver == nil {
		return errors.New("no secrets are expected")
	}
	return c.deliver(all)
}

func (c heldCell) set(t time.Time) {
	for _, f := range []any{c.in, c.out, c.errOut} {
		f.(*os.File).SetDeadline(t)
	}
}

func (c heldCell) Hold()    { c.set(time.Unix(1, 0)) }
func (c heldCell) Release() { c.set(time.Time{}) }

// slowCell is a localCell that is not removed immediately.
type slowCell struct {
	*localCell
	remove func()
}

func (c slowCell) Close() error {
	c.remove()
	return nil
}

// freezer runs commands that can be frozen.
type freezer struct {
	localRunner
	remove  func()               // called when a command's own cell is removed; nil: nothing is
	deliver func([]Secret) error // see heldCell
	mu      sync.Mutex           // guards cells
	cells   []*localCell
}

func (f *freezer) Start(ctx context.Context, cmd Command) (Cell, error) {
	cell, err := f.localRunner.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	local := cell.(*localCell)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cells = append(f.cells, local)
	if !cmd.Session && f.remove != nil {
		return slowCell{local, f.remove}, nil
	}
	if !cmd.Session {
		return local, nil
	}
	return heldCell{local, f.deliver}, nil
}

// signal sends a signal to all commands, and waits until they have a state of proc(5).
func (f *freezer) signal(sig syscall.Signal, states string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.cells {
		c.Signal(sig)
		for {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
			if err != nil || strings.ContainsAny(strings.Fields(string(b))[2], states+"ZX") {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// newFreezable returns a guest that can be suspended.
func newFreezable(t *testing.T) (*guestEnd, *freezer) {
	f := &freezer{}
	host, guest := socketPair(t)
	g := &guestEnd{workspace: t.TempDir(), host: host, served: make(chan error, 1)}
	g.Server = NewServer(f, func() (*os.Root, error) { return os.OpenRoot(g.workspace) }, nil)
	g.Freeze = func() error { return f.signal(syscall.SIGSTOP, "T") }
	g.Thaw = func() error { return f.signal(syscall.SIGCONT, "RSD") }
	serve := func() error {
		if _, err := AwaitWake(guest); err != nil {
			return err
		}
		if err := SendAwake(guest, Awake{OK: true}); err != nil {
			return err
		}
		return g.Serve(context.Background(), guest)
	}
	go func() {
		err := SendReady(guest)
		for err == nil || errors.Is(err, ErrSuspended) {
			err = serve()
		}
		g.served <- err
	}()
	t.Cleanup(func() {
		host.Close()
		<-g.served
	})
	if err := AwaitReady(timeout(t), host); err != nil {
		t.Fatal(err)
	}
	return g, f
}

// session wakes the guest.
func (g *guestEnd) session(t *testing.T, run string, h Handler) *Client {
	t.Helper()
	c, err := Connect(timeout(t), g.host, Wake{Scratch: 1 << 30}, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Identify(timeout(t), Identity{Run: run, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSuspendSession: calls fail while the guest is suspended, events wait for the next session, and the end of a command that ended
// meanwhile is reported there.
func TestSuspendSession(t *testing.T) {
	g, _ := newFreezable(t)
	g.Dial = func(context.Context, int) (splice.Conn, error) {
		a, b := socketPair(t)
		t.Cleanup(func() { b.Close() })
		return a.(*net.UnixConn), nil
	}
	c := g.session(t, "r-1", nil)
	cmd := Command{Step: "cat", Argv: []string{"cat"}, Session: true}
	p, err := c.Start(timeout(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(p.Stdin, "one ")
	conn, err := c.Dial(timeout(t), 80)
	if err != nil {
		t.Fatal(err)
	}
	output := make(chan string, 1)
	follow := func(p *Process) {
		go io.Copy(io.Discard, p.Stderr)
		b, _ := io.ReadAll(p.Stdout)
		output <- string(b)
	}
	go follow(p)
	suspended := make(chan error, 1)
	go func() { suspended <- suspension(c).Suspend(timeout(t), func() { io.WriteString(p.Stdin, "two ") }) }()
	select {
	case <-conn.Over():
		conn.Close()
	case <-time.After(time.Minute):
		t.Fatal("a connection is not interrupted")
	}
	if err := <-suspended; err != nil {
		t.Fatal(err)
	}
	first := <-output
	if _, err := p.Wait(timeout(t)); !errors.Is(err, ErrSuspended) {
		t.Fatalf("the process: %v", err)
	}
	if _, err := c.Start(timeout(t), Command{Step: "other", Argv: []string{"true"}, Session: true}); !errors.Is(err, ErrSuspended) {
		t.Errorf("a command while the guest is suspended: %v", err)
	}
	if err := suspension(c).Suspend(timeout(t), func() {}); !errors.Is(err, ErrSuspended) {
		t.Errorf("suspended again: %v", err)
	}
	if err := suspension(c).Park(timeout(t)); err != nil {
		t.Fatal(err)
	}
	emitted := make(chan error, 1)
	go func() {
		e := audit.Event{Kind: audit.KindExit, Step: "cat", Exit: &audit.Exit{Proc: "x"}, Guest: &audit.GuestTime{Time: time.Now()}}
		emitted <- g.Emit(timeout(t), &e)
	}()
	events := make(chan string, 1)
	c = g.session(t, "r-2", func(_ context.Context, e *audit.Event) error {
		events <- e.Step
		return nil
	})
	if p, err = suspension(c).Attach(timeout(t), cmd); err != nil {
		t.Fatal(err)
	}
	go follow(p)
	if err := suspension(c).Thaw(timeout(t)); err != nil {
		t.Fatal(err)
	}
	io.WriteString(p.Stdin, "three")
	p.Stdin.Close()
	if exit, err := p.Wait(timeout(t)); err != nil || exit.Code != 0 {
		t.Errorf("%+v %v", exit, err)
	}
	if all := first + <-output; all != "one two three" {
		t.Errorf("output: %q", all)
	}
	if err := <-emitted; err != nil {
		t.Error(err)
	}
	if step := <-events; step != "cat" {
		t.Errorf("event of %q", step)
	}
	if p, err = suspension(c).Attach(timeout(t), cmd); err != nil { // it has ended
		t.Fatal(err)
	}
	go follow(p)
	if exit, err := p.Wait(timeout(t)); err != nil || exit.Code != 125 || !strings.Contains(exit.Error, "no command") {
		t.Errorf("attached to a command that has ended: %+v %v", exit, err)
	}
	<-output
	c.Close()
}

// TestSuspendWaits: a guest is suspended when the commands that start have started, and the cells of those that have ended are removed.
func TestSuspendWaits(t *testing.T) {
	const long = 200 * time.Millisecond
	t.Run("removed", func(t *testing.T) {
		g, f := newFreezable(t)
		var removed atomic.Bool
		f.remove = func() { time.Sleep(long); removed.Store(true) }
		c := g.session(t, "r-1", nil)
		defer c.Close()
		p, err := c.Start(timeout(t), Command{Step: "s", Argv: []string{"true"}})
		if err != nil {
			t.Fatal(err)
		}
		drain(p)
		if exit, err := p.Wait(timeout(t)); err != nil || exit.Code != 0 {
			t.Fatalf("%+v %v", exit, err)
		}
		if park(t, c); !removed.Load() {
			t.Error("the cell of a command that has ended was not removed")
		}
	})
	t.Run("refused before", func(t *testing.T) {
		g, _ := newFreezable(t)
		g.Dial = func(context.Context, int) (splice.Conn, error) {
			a, b := socketPair(t)
			t.Cleanup(func() { b.Close() })
			return a.(*net.UnixConn), nil
		}
		c := g.session(t, "r-1", nil)
		defer c.Close()
		conn, err := c.Dial(timeout(t), 80)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Start(timeout(t), Command{Step: "s", Argv: []string{"cat"}})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p.Stdin, "x")
		io.ReadFull(p.Stdout, make([]byte, 1)) // so that it has started
		drain(p)
		if suspension(c).Suspend(timeout(t), func() {}) == nil {
			t.Fatal("suspended with a command in a cell of its own")
		}
		p.Stdin.Close()
		if _, err := p.Wait(timeout(t)); err != nil {
			t.Fatal(err)
		}
		go func() {
			<-conn.Over()
			conn.Close()
		}()
		park(t, c)
	})
	t.Run("started", func(t *testing.T) {
		g, f := newFreezable(t)
		starting := make(chan bool)
		f.started = func(Command) { close(starting); time.Sleep(long) }
		c := g.session(t, "r-1", nil)
		cmd := Command{Step: "s", Argv: []string{"cat"}, Session: true}
		go func() {
			if p, err := c.Start(timeout(t), cmd); err != nil {
				t.Error(err)
			} else {
				drain(p)
			}
		}()
		<-starting
		park(t, c)
		c = g.session(t, "r-2", nil)
		defer c.Close()
		p, err := suspension(c).Attach(timeout(t), cmd)
		if err != nil {
			t.Fatal(err)
		}
		drain(p)
		if err := suspension(c).Thaw(timeout(t)); err != nil {
			t.Fatal(err)
		}
		p.Stdin.Close()
		if exit, err := p.Wait(timeout(t)); err != nil || exit.Code != 0 {
			t.Errorf("%+v %v", exit, err)
		}
	})
}

// park suspends a guest and ends its session.
func park(t *testing.T, c *Client) {
	t.Helper()
	if err := suspension(c).Suspend(timeout(t), func() {}); err != nil {
		t.Fatal(err)
	}
	if err := suspension(c).Park(timeout(t)); err != nil {
		t.Fatal(err)
	}
}

// TestAttachSecrets: a command that is attached with secrets has them before Attach returns, and proves with a new key that it runs. One
// that is attached without has no key.
func TestAttachSecrets(t *testing.T) {
	g, f := newFreezable(t)
	var got []string
	f.deliver = func(all []Secret) error {
		for _, s := range all {
			got = append(got, s.Env+s.File+"="+string(s.Value))
		}
		return nil
	}
	cmd := Command{Step: "s", Argv: []string{"sleep", "1000"}, Session: true, Secrets: []Secret{{File: "f", Value: []byte("first")}}}
	c := g.session(t, "r-1", nil)
	p, err := c.Start(timeout(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.Clone(p.lease.key)
	drain(p)
	attach := func(run string, cmd Command) {
		t.Helper()
		park(t, c)
		if x := g.commands.running["s"]; x.key != nil { // nothing else uses it now
			t.Error("a suspended guest has the key of a command")
		}
		c = g.session(t, run, nil)
		if p, err = suspension(c).Attach(timeout(t), cmd); err != nil {
			t.Fatal(err)
		}
		drain(p)
		if err := suspension(c).Thaw(timeout(t)); err != nil {
			t.Fatal(err)
		}
	}
	attach("r-2", Command{Step: "s"})
	if err := p.Prove(timeout(t)); !errors.Is(err, ErrNotLeased) {
		t.Errorf("attached without a lease: %v", err)
	}
	cmd.Secrets = []Secret{{File: "f", Value: []byte("second")}, {Env: "V", Value: []byte("third")}}
	attach("r-3", cmd)
	if want := []string{"f=second", "V=third"}; !slices.Equal(got, want) {
		t.Errorf("delivered: %q, want %q", got, want)
	}
	if bytes.Equal(first, p.lease.key) {
		t.Error("the key is that of the first session")
	}
	if err := p.Prove(timeout(t)); err != nil {
		t.Error(err)
	}
	if err := p.Wipe(timeout(t)); err != nil {
		t.Error(err)
	}
	cmd.Secrets, cmd.Leased = nil, true
	attach("r-4", cmd)
	if err := p.Prove(timeout(t)); err != nil {
		t.Errorf("leased without secrets: %v", err)
	}
	p.Signal(timeout(t), syscall.SIGKILL)
	if exit, err := p.Wait(timeout(t)); err != nil || exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v %v", exit, err)
	}
	c.Close()
}

// TestAttachRefused: a command that cannot get its secrets is not attached, and can be attached again.
func TestAttachRefused(t *testing.T) {
	g, f := newFreezable(t)
	f.deliver = func([]Secret) error { return errors.New("there is no room") }
	c := g.session(t, "r-1", nil)
	p, err := c.Start(timeout(t), Command{Step: "s", Argv: []string{"sleep", "1000"}, Session: true})
	if err != nil {
		t.Fatal(err)
	}
	drain(p)
	park(t, c)
	c = g.session(t, "r-2", nil)
	for step, want := range map[string]string{"s": "there is no room", "other": "no command"} {
		p, err := suspension(c).Attach(timeout(t), Command{Step: step, Secrets: []Secret{{File: "f"}}})
		if err != nil {
			t.Fatal(err)
		}
		drain(p)
		if exit, err := p.Wait(timeout(t)); err != nil || exit.Code != 125 || !strings.Contains(exit.Error, want) {
			t.Errorf("%s: %+v %v", step, exit, err)
		}
	}
	if p, err = suspension(c).Attach(timeout(t), Command{Step: "s"}); err != nil {
		t.Fatal(err)
	}
	drain(p)
	p.Signal(timeout(t), syscall.SIGKILL)
	if err := suspension(c).Thaw(timeout(t)); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(timeout(t)); err != nil || exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v %v", exit, err)
	}
	c.Close()
}

// TestAttachHostDies: of secrets that the host has not sent completely, or for another run, none is delivered.
func TestAttachHostDies(t *testing.T) {
	for name, send := range map[string]func(t *testing.T, ctl net.Conn, point []byte){
		"nothing": func(*testing.T, net.Conn, []byte) {},
		"a part": func(t *testing.T, ctl net.Conn, point []byte) {
			ctl.Write(append([]byte{0, 0, 1, 0}, make([]byte, 100)...))
		},
		"for another run": func(t *testing.T, ctl net.Conn, point []byte) {
			plain := (&bundle{secrets: []Secret{{File: "f", Value: []byte("value")}}}).encode()
			sealed, err := seal(point, plain, sealContext("r-1", "s"))
			if err != nil {
				t.Fatal(err)
			}
			ctl.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(sealed))), sealed...))
			var r report
			if err := readFrame(ctl, &r, maxReport); err != nil || r.Exit == nil || !strings.Contains(r.Exit.Error, "sealed for another step") {
				t.Errorf("%+v %v", r, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, f := newFreezable(t)
			f.deliver = func([]Secret) error { t.Error("delivered"); return nil }
			c := g.session(t, "r-1", nil)
			p, err := c.Start(timeout(t), Command{Step: "s", Argv: []string{"sleep", "1000"}, Session: true, Leased: true})
			if err != nil {
				t.Fatal(err)
			}
			drain(p)
			park(t, c)
			c = g.session(t, "r-2", nil)
			wire, err := Command{Step: "s", Argv: []string{"attach"}, Session: true, Leased: true}.encode()
			if err != nil {
				t.Fatal(err)
			}
			streams, err := c.open(timeout(t), hello{Kind: streamAttach, Command: wire}, 3)
			if err != nil {
				t.Fatal(err)
			}
			var r report
			if err := readFrame(streams[0], &r, maxReport); err != nil || len(r.Key) != pointSize {
				t.Fatalf("%+v %v", r, err)
			}
			send(t, streams[0], r.Key)
			c.Close()
			g.Thaw()
			p.client.Close()
			f.signal(syscall.SIGKILL, "ZX")
		})
	}
}

// TestSuspendRefused: the session of a guest that cannot be suspended continues.
func TestSuspendRefused(t *testing.T) {
	for name, prepare := range map[string]func(*guestEnd){
		"no freezer":       func(g *guestEnd) { g.Freeze = nil },
		"freezer fails":    func(g *guestEnd) { g.Freeze = func() error { return errors.New("a process waits for its disk") } },
		"a cell's command": func(*guestEnd) {},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := newFreezable(t)
			prepare(g)
			c := g.session(t, "r-1", nil)
			defer c.Close()
			cmd := Command{Step: "cat", Argv: []string{"cat"}, Session: name != "a cell's command"}
			p, err := c.Start(timeout(t), cmd)
			if err != nil {
				t.Fatal(err)
			}
			go io.Copy(io.Discard, p.Stderr)
			io.WriteString(p.Stdin, "first ")
			b := make([]byte, 6)
			io.ReadFull(p.Stdout, b) // so that it has started
			err = suspension(c).Suspend(timeout(t), func() { t.Error("the input was stopped") })
			if err == nil || errors.Is(err, ErrHostile) {
				t.Fatalf("suspended: %v", err)
			}
			io.WriteString(p.Stdin, "last")
			p.Stdin.Close()
			if b, err := io.ReadAll(p.Stdout); err != nil || string(b) != "last" {
				t.Errorf("%q %v", b, err)
			}
			if exit, err := p.Wait(timeout(t)); err != nil || exit.Code != 0 {
				t.Errorf("%+v %v", exit, err)
			}
		})
	}
}

// TestSuspendOverflow: a guest is not suspended with less input than the host has sent. The client ends.
func TestSuspendOverflow(t *testing.T) {
	g, _ := newFreezable(t)
	c := g.session(t, "r-1", nil)
	defer c.Close()
	p, err := c.Start(timeout(t), Command{Step: "s", Argv: []string{"sleep", "1000"}, Session: true})
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, p.Stderr)
	go io.Copy(io.Discard, p.Stdout)
	err = suspension(c).Suspend(timeout(t), func() { p.Stdin.Write(make([]byte, 3*maxHeld)) })
	if err == nil || !strings.Contains(err.Error(), "input") {
		t.Errorf("%v", err)
	}
}

// TestHostileSuspension: a guest that claims to be suspended, or answers something else than the protocol allows.
func TestHostileSuspension(t *testing.T) {
	never := frameOf(report{Suspended: true})
	for name, answers := range map[string][]report{
		"not frozen":     {{Done: true}},
		"no mark":        {{Started: true}, {Done: true}},
		"started twice":  {{Started: true}, {Started: true}},
		"an exit":        {{Exit: &Exit{}, Mark: 1}},
		"parked with it": {{Started: true, Done: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := misbehaving(t, func(s *yamux.Session) {
				s.Accept() // events
				conn, err := s.Accept()
				if err != nil {
					return
				}
				var h hello
				readFrame(conn, &h, maxHello)
				for _, a := range answers {
					conn.Write(frameOf(a))
				}
			})
			if err := suspension(c).Suspend(timeout(t), func() {}); !errors.Is(err, ErrHostile) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("unasked", func(t *testing.T) {
		c, _ := misbehaving(t, func(s *yamux.Session) {
			s.Accept()
			conn, err := s.Accept()
			if err != nil {
				return
			}
			var h hello
			readFrame(conn, &h, maxHello)
			conn.Write(never)
		})
		p, err := c.Start(timeout(t), Command{Argv: []string{"x"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(timeout(t)); !errors.Is(err, ErrHostile) {
			t.Errorf("%v", err)
		}
	})
}

func suspension(c *Client) Suspension { return Suspension{Client: c} }
