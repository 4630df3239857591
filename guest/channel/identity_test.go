package channel

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/custody-project/custody/audit"
)

// raw sends a hello that a Client would not send, with the command's data streams, and returns the guest's last report.
func raw(t *testing.T, c *Client, h hello) report {
	t.Helper()
	streams, err := c.open(timeout(t), h, h.dataStreams())
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(streams)
	for _, s := range streams[1:] {
		s.Close()
	}
	var r report
	if err := readFrame(streams[0], &r, maxReport); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAnonymous: before its identity a guest rehearses and refuses all else of a run, whichever end is asked.
func TestAnonymous(t *testing.T) {
	var applied atomic.Int32
	g := newGuest(t, localRunner{})
	g.Identify = func(context.Context, Identity) error { applied.Add(1); return nil }
	c := g.awake(t, nil)
	if _, err := c.Ping(timeout(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(timeout(t), shell("true")); !errors.Is(err, ErrAnonymous) {
		t.Errorf("start: %v", err)
	}
	if _, err := c.CopyOut(timeout(t), NewDestinationDir(t.TempDir(), Protect{Limit: 1 << 20}), Out{}); !errors.Is(err, ErrAnonymous) {
		t.Errorf("copy out: %v", err)
	}
	if _, err := c.CopyIn(timeout(t), NewSourceDir(t.TempDir(), nil), In{}); !errors.Is(err, ErrAnonymous) {
		t.Errorf("copy in: %v", err)
	}
	wire, err := shell("true").encode()
	if err != nil {
		t.Fatal(err)
	}
	r := raw(t, c, hello{Kind: streamExec, Command: wire})
	if r.Exit == nil || r.Exit.Code != 125 || r.Exit.Error != ErrAnonymous.Error() {
		t.Errorf("a command: %+v", r)
	}
	for _, kind := range []streamKind{streamCopyIn, streamCopyOut} {
		if r := raw(t, c, hello{Kind: kind}); r.Error != ErrAnonymous.Error() {
			t.Errorf("%s: %+v", kind, r)
		}
	}
	for range 3 {
		if err := c.Rehearse(timeout(t), shell("cat; echo out; echo err >&2")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Rehearse(timeout(t), shell("exit 3")); err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("a rehearsal that fails: %v", err)
	}
	if err := c.Rehearse(timeout(t), Command{Argv: []string{"no-such-program"}}); err != nil {
		t.Errorf("a rehearsal of a program that does not exist: %v", err)
	}
	if applied.Load() != 0 {
		t.Error("an identity was applied")
	}
	if err := c.Identify(timeout(t), Identity{Run: "r-1", Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if out, _, exit := result(t, c, shell("echo run"), ""); out != "run\n" || exit.Code != 0 {
		t.Errorf("%q, %+v", out, exit)
	}
}

// TestOneIdentity: neither end takes a second identity, or rehearses after the first.
func TestOneIdentity(t *testing.T) {
	var applied atomic.Int32
	g := newGuest(t, localRunner{})
	g.Identify = func(context.Context, Identity) error { applied.Add(1); return nil }
	c := g.connect(t, g.host, nil)
	if err := c.Identify(timeout(t), Identity{Run: "r-2"}); !errors.Is(err, errIdentified) {
		t.Errorf("the host: %v", err)
	}
	if r := raw(t, c, hello{Kind: streamIdentity, Identity: &Identity{Run: "r-2"}}); r.Error != errIdentified.Error() {
		t.Errorf("the guest: %+v", r)
	}
	if err := c.Rehearse(timeout(t), shell("true")); err == nil || !strings.Contains(err.Error(), errIdentified.Error()) {
		t.Errorf("a rehearsal: %v", err)
	}
	if applied.Load() != 1 || g.run != "r-1" {
		t.Errorf("applied %d times, run %s", applied.Load(), g.run)
	}
	if out, _, _ := result(t, c, shell("echo run"), ""); out != "run\n" {
		t.Errorf("%q", out)
	}
}

// TestIdentityFails: a guest that cannot apply its identity executes nothing of the run.
func TestIdentityFails(t *testing.T) {
	g := newGuest(t, localRunner{})
	g.Identify = func(context.Context, Identity) error { return errors.New("no randomness") }
	c := g.awake(t, nil)
	r := raw(t, c, hello{Kind: streamIdentity, Identity: &Identity{Run: "r-1"}})
	if r.Error != "no randomness" {
		t.Fatalf("%+v", r)
	}
	wire, err := shell("true").encode()
	if err != nil {
		t.Fatal(err)
	}
	if r := raw(t, c, hello{Kind: streamExec, Command: wire}); r.Exit == nil || r.Exit.Code != 125 {
		t.Errorf("a command: %+v", r)
	}
	if err := c.Identify(timeout(t), Identity{Run: "r-1"}); err == nil {
		t.Error("a second identity was taken")
	}
	if c.Err() == nil {
		t.Error("the session goes on")
	}
}

// TestIdentityAfterRehearsal: an identity is applied when no cell of a rehearsal is left.
func TestIdentityAfterRehearsal(t *testing.T) {
	var cells atomic.Int32
	g := newGuest(t, counted{localRunner{}, &cells})
	left := int32(-1)
	g.Identify = func(context.Context, Identity) error { left = cells.Load(); return nil }
	c := g.awake(t, nil)
	p, err := c.start(timeout(t), streamRehearse, shell("sleep 0.2"))
	if err != nil {
		t.Fatal(err)
	}
	drain(p)
	if _, err := c.Ping(timeout(t)); err != nil { // the guest has accepted the rehearsal's stream
		t.Fatal(err)
	}
	for cells.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := c.Identify(timeout(t), Identity{Run: "r-1"}); err != nil || left != 0 {
		t.Errorf("%v, %d cells were left", err, left)
	}
}

// counted counts the cells that exist.
type counted struct {
	Runner
	cells *atomic.Int32
}

func (c counted) Start(ctx context.Context, cmd Command) (Cell, error) {
	cell, err := c.Runner.Start(ctx, cmd)
	if err == nil {
		c.cells.Add(1)
		cell = countedCell{cell, c.cells}
	}
	return cell, err
}

type countedCell struct {
	Cell
	cells *atomic.Int32
}

func (c countedCell) Close() error {
	defer c.cells.Add(-1)
	time.Sleep(20 * time.Millisecond) // the rehearsal has been reported before
	return c.Cell.Close()
}

// TestEventBeforeIdentity: a guest that reports an event before it has an identity is hostile, and the event is not taken.
func TestEventBeforeIdentity(t *testing.T) {
	host, guest := socketPair(t)
	go func() {
		AwaitWake(guest)
		SendAwake(guest, Awake{OK: true})
		s, err := yamux.Server(guest, yamuxConfig())
		if err != nil {
			return
		}
		events, err := s.Accept()
		if err != nil {
			return
		}
		events.Write(frameOf(eventFrame{Event: execEvent("", 1)}))
		<-s.CloseChan()
	}()
	taken := 0
	c, err := Connect(timeout(t), host, Wake{}, func(context.Context, *audit.Event) error { taken++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-c.Done()
	if !errors.Is(c.Err(), ErrHostile) || taken != 0 {
		t.Errorf("%v, %d events taken", c.Err(), taken)
	}
}

// TestHostileIdentity: an answer to the identity without the guest's clock, or with more, ends the session.
func TestHostileIdentity(t *testing.T) {
	now := time.Now()
	for name, answer := range map[string]report{"nothing": {}, "done": {Done: true}, "more": {Clock: &now, Mark: 1}, "exit": {Exit: &Exit{}, Mark: 1}} {
		t.Run(name, func(t *testing.T) {
			host, guest := socketPair(t)
			go func() {
				AwaitWake(guest)
				SendAwake(guest, Awake{OK: true})
				s, err := yamux.Server(guest, yamuxConfig())
				if err != nil {
					return
				}
				s.Accept()
				if conn, err := s.Accept(); err == nil {
					io.CopyN(io.Discard, conn, 4)
					conn.Write(frameOf(answer))
				}
				<-s.CloseChan()
			}()
			c, err := Connect(timeout(t), host, Wake{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Identify(timeout(t), Identity{}); !errors.Is(err, ErrHostile) || c.Err() == nil {
				t.Errorf("%v, session: %v", err, c.Err())
			}
		})
	}
}
