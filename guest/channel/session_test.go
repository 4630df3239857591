package channel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

// localRunner runs commands as plain processes of this machine: these tests
// cover the channel, cells need a VM.
type localRunner struct {
	started func(Command)
}

type localCell struct {
	cmd         *exec.Cmd
	in          io.WriteCloser
	out, errOut io.ReadCloser
}

func (r localRunner) Start(_ context.Context, c Command) (Cell, error) {
	if r.started != nil {
		r.started(c)
	}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cmd.Err != nil {
		return nil, &ExecError{Code: 127, Err: cmd.Err}
	}
	l := &localCell{cmd: cmd}
	var ours, theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		ours[i], theirs[i] = r, w
	}
	ours[0], theirs[0] = theirs[0], ours[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	err := cmd.Start()
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		return nil, &ExecError{Code: 126, Err: err}
	}
	l.in, l.out, l.errOut = ours[0], ours[1], ours[2]
	return l, nil
}

func (l *localCell) Pipes() (io.WriteCloser, io.ReadCloser, io.ReadCloser) {
	return l.in, l.out, l.errOut
}
func (l *localCell) Signal(s syscall.Signal) error { return syscall.Kill(-l.cmd.Process.Pid, s) }
func (l *localCell) Resize(Winsize) error          { return nil }
func (l *localCell) Close() error                  { return nil }
func (l *localCell) Alive() bool {
	var info unix.Siginfo
	return unix.Waitid(unix.P_PID, l.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil) == nil && info.Signo == 0
}
func (l *localCell) Wipe() error { return nil }
func (l *localCell) Wait() Exit {
	l.cmd.Wait()
	l.Signal(syscall.SIGKILL)
	ws := l.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return Exit{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	}
	return Exit{Code: ws.ExitStatus()}
}

// guestEnd is a real Server behind one end of a socket pair.
type guestEnd struct {
	*Server
	workspace string
	host      net.Conn
	served    chan error
}

func socketPair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		conns[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conns[i].Close() })
	}
	return conns[0], conns[1]
}

func newGuest(t testing.TB, r Runner) *guestEnd {
	t.Helper()
	host, guest := socketPair(t)
	g := &guestEnd{workspace: t.TempDir(), host: host, served: make(chan error, 1)}
	g.Server = NewServer(r, func() (*os.Root, error) { return os.OpenRoot(g.workspace) }, nil)
	go func() {
		g.served <- func() error {
			if err := SendReady(guest); err != nil {
				return err
			}
			if _, err := AwaitWake(guest); err != nil {
				return err
			}
			if err := SendAwake(guest, Awake{OK: true}); err != nil {
				return err
			}
			return g.Serve(context.Background(), guest)
		}()
	}()
	t.Cleanup(func() {
		host.Close()
		<-g.served
	})
	return g
}

// connect returns the client of a guest with an identity.
func (g *guestEnd) connect(t testing.TB, conn io.ReadWriteCloser, h Handler) *Client {
	t.Helper()
	c := g.connectTo(t, conn, h)
	if err := c.Identify(timeout(t), Identity{Run: "r-1", Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	return c
}

// awake returns the client of a guest without an identity.
func (g *guestEnd) awake(t testing.TB, h Handler) *Client {
	t.Helper()
	return g.connectTo(t, g.host, h)
}

func (g *guestEnd) connectTo(t testing.TB, conn io.ReadWriteCloser, h Handler) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := AwaitReady(ctx, conn); err != nil {
		t.Fatal(err)
	}
	c, err := Connect(ctx, conn, Wake{Scratch: 64 << 20}, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// result runs a command to its end with the given input.
func result(t testing.TB, c *Client, cmd Command, input string) (stdout, stderr string, exit Exit) {
	t.Helper()
	ctx := timeout(t)
	p, err := c.Start(ctx, cmd)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		io.WriteString(p.Stdin, input)
		p.Stdin.Close()
	}()
	var out, errOut []byte
	var wg sync.WaitGroup
	wg.Go(func() { out, _ = io.ReadAll(p.Stdout) })
	wg.Go(func() { errOut, _ = io.ReadAll(p.Stderr) })
	wg.Wait()
	exit, err = p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), string(errOut), exit
}

func shell(script string, args ...string) Command {
	return Command{Step: "s", Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Env: []string{"PATH=/usr/bin:/bin", "K=\xff v"}, Dir: "/"}
}

func TestCommands(t *testing.T) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	for _, tt := range []struct {
		name, script, in, out, err string
		exit                       Exit
	}{
		{"streams", "echo a; echo b >&2; exit 7", "", "a\n", "b\n", Exit{Code: 7}},
		{"input", "cat", "some\x00bytes\xff", "some\x00bytes\xff", "", Exit{}},
		{"arguments and environment are bytes", `printf %s "$1$K"`, "", "\xfe\xff v", "", Exit{}},
		{"signal", "kill -9 $$", "", "", "", Exit{Code: 137, Signal: 9}},
		{"input that nobody reads", "exec <&-; echo x", strings.Repeat("y", 1<<20), "x\n", "", Exit{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errOut, exit := result(t, c, shell(tt.script, "\xfe"), tt.in)
			if out != tt.out || errOut != tt.err || exit != tt.exit {
				t.Errorf("got %q, %q, %+v", out, errOut, exit)
			}
		})
	}
	_, _, exit := result(t, c, Command{Argv: []string{"no-such-command"}}, "")
	if exit.Code != 127 || exit.Error == "" {
		t.Errorf("unknown command: %+v", exit)
	}
	for _, bad := range []Command{{}, {Argv: []string{""}}, {Argv: []string{"a\x00b"}}, {Argv: []string{"a"}, Step: strings.Repeat("s", 300)}} {
		if _, err := c.Start(timeout(t), bad); err == nil {
			t.Errorf("%+v was started", bad)
		}
	}
}

func TestLargeOutputUnread(t *testing.T) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	ctx := timeout(t)
	p, err := c.Start(ctx, shell("head -c 3000000 /dev/zero; echo done >&2"))
	if err != nil {
		t.Fatal(err)
	}
	// Stdout is not read; that must block nothing else.
	if _, err := c.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if out, _, _ := result(t, c, shell("echo other"), ""); out != "other\n" {
		t.Fatalf("other command printed %q", out)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := p.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("wait returned %v while output was unread", err)
	}
	n, _ := io.Copy(io.Discard, p.Stdout)
	io.Copy(io.Discard, p.Stderr)
	if exit, err := p.Wait(ctx); err != nil || exit.Code != 0 || n != 3000000 {
		t.Fatalf("%d bytes, %+v, %v", n, exit, err)
	}
}

func TestSignals(t *testing.T) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	ctx := timeout(t)
	p, err := c.Start(ctx, shell("trap 'echo got; exit 3' TERM; echo ready; while :; do sleep 0.01; done"))
	if err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, 6)
	if _, err := io.ReadFull(p.Stdout, ready); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(ctx, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(p.Stdout)
	exit, err := p.Wait(ctx)
	if err != nil || exit.Code != 3 || string(out) != "got\n" {
		t.Fatalf("%q %+v %v", out, exit, err)
	}
	if err := p.Signal(ctx, syscall.SIGTERM); err != nil {
		t.Errorf("signal after the end: %v", err)
	}
	if _, err := p.Stdin.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write after the end: %v", err)
	}
}

func execEvent(step string, i int) *audit.Event {
	return &audit.Event{Kind: audit.KindExec, Observer: audit.Host, Step: step, Guest: &audit.GuestTime{Time: time.Now()},
		Exec: &audit.Exec{Proc: fmt.Sprint("p", i), PID: i, Argv: []audit.Text{"x", "\xff"}}}
}

// Wait must not return before every event that was emitted before the exit has been handled, however slow the handler.
func TestEventsBeforeExit(t *testing.T) {
	const events = 2000
	g := newGuest(t, nil)
	g.Runner = localRunner{}
	pending := make(chan struct{})
	g.Flush = func(ctx context.Context) error {
		<-pending
		for i := range events {
			if err := g.Emit(ctx, execEvent("s", i)); err != nil {
				return err
			}
		}
		return nil
	}
	var handled atomic.Int64
	c := g.connect(t, g.host, func(_ context.Context, e *audit.Event) error {
		if e.Observer != audit.Guest || time.Since(e.Time) > time.Minute || e.Exec.Argv[1] != "\xff" {
			return fmt.Errorf("event is not the host's: %+v", e)
		}
		if n := handled.Add(1); int(n) != e.Exec.PID+1 {
			return fmt.Errorf("event %d at place %d", e.Exec.PID, n)
		}
		time.Sleep(10 * time.Microsecond)
		return nil
	})
	time.AfterFunc(20*time.Millisecond, func() { close(pending) })
	if _, _, exit := result(t, c, shell("exit 4"), ""); exit.Code != 4 {
		t.Fatalf("%+v", exit)
	}
	if handled.Load() != events {
		t.Fatalf("%d of %d events were handled when Wait returned", handled.Load(), events)
	}
}

func TestHandlerErrorEndsSession(t *testing.T) {
	g := newGuest(t, localRunner{})
	full := errors.New("log is full")
	c := g.connect(t, g.host, func(context.Context, *audit.Event) error { return full })
	p, err := c.Start(timeout(t), shell("sleep 100"))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Emit(timeout(t), execEvent("s", 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(timeout(t)); !errors.Is(err, full) {
		t.Fatalf("wait: %v", err)
	}
	if _, err := c.Ping(timeout(t)); !errors.Is(err, full) || !errors.Is(c.Err(), full) {
		t.Fatalf("ping: %v, err: %v", err, c.Err())
	}
	if err := <-g.served; err == nil {
		t.Fatal("the guest's end did not see the session end")
	}
	g.served <- nil
}

// frozen is a connection that blocks while its lock is held, as if the VM were paused.
type frozen struct {
	io.ReadWriteCloser
	ice sync.RWMutex
}

func (f *frozen) Read(p []byte) (int, error) {
	n, err := f.ReadWriteCloser.Read(p)
	f.ice.RLock()
	defer f.ice.RUnlock()
	return n, err
}

func (f *frozen) Write(p []byte) (int, error) {
	f.ice.RLock()
	defer f.ice.RUnlock()
	return f.ReadWriteCloser.Write(p)
}

func TestFreeze(t *testing.T) {
	cfg := yamuxConfig()
	if cfg.EnableKeepAlive || cfg.ConnectionWriteTimeout < 24*365*time.Hour || cfg.StreamOpenTimeout != 0 || cfg.StreamCloseTimeout != 0 {
		t.Fatal("a frozen VM would run into a timeout")
	}
	g := newGuest(t, localRunner{})
	conn := &frozen{ReadWriteCloser: g.host}
	c := g.connect(t, conn, nil)
	p, err := c.Start(timeout(t), shell("head -c 5000000 /dev/zero | tr '\\0' x"))
	if err != nil {
		t.Fatal(err)
	}
	sum, stop := sha256.New(), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn.ice.Lock()
			time.Sleep(20 * time.Millisecond)
			conn.ice.Unlock()
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	io.Copy(sum, p.Stdout)
	exit, err := p.Wait(timeout(t))
	close(stop)
	wg.Wait()
	if want := sha256.Sum256(bytes.Repeat([]byte("x"), 5000000)); err != nil || exit.Code != 0 || [32]byte(sum.Sum(nil)) != want {
		t.Fatalf("%+v %v, or bytes differ", exit, err)
	}
}

// TestDrain: Drain returns the guest's error, and the session continues.
func TestDrain(t *testing.T) {
	g := newGuest(t, localRunner{})
	drained, failed := 0, error(nil)
	g.Drain = func() error { drained++; return failed }
	c := g.connect(t, g.host, nil)
	if err := c.Drain(timeout(t)); err != nil || drained != 1 {
		t.Errorf("%v, drained %d times", err, drained)
	}
	failed = errors.New("no such CPU")
	if err := c.Drain(timeout(t)); err == nil || !strings.Contains(err.Error(), "no such CPU") {
		t.Errorf("the error is %v", err)
	}
	if _, err := c.Ping(timeout(t)); err != nil {
		t.Errorf("the session ended with it: %v", err)
	}
}

func TestGuestDies(t *testing.T) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	p, err := c.Start(timeout(t), shell("sleep 100"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Ping(timeout(t)); err != nil {
		t.Fatal(err)
	}
	g.host.(*net.UnixConn).CloseRead()
	if _, err := p.Wait(timeout(t)); err == nil {
		t.Fatal("wait returned no error though the guest is gone")
	}
	<-c.Done()
	if c.Err() == nil {
		t.Fatal("no reason for the end")
	}
}

func TestCloseAndCancel(t *testing.T) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	p, err := c.Start(timeout(t), shell("sleep 100"))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := p.Wait(timeout(t)); err == nil {
		t.Fatal("wait after close returned no error")
	}
	host, guest := socketPair(t)
	go io.Copy(io.Discard, guest)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, host, Wake{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("connect to a mute guest: %v", err)
	}
}

// TestWritten: written bytes stay in none of our buffers, and the caller's bytes are unchanged.
func TestWritten(t *testing.T) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	p, err := c.Start(timeout(t), shell("cat"))
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("canary"), 10000)
	given := bytes.Clone(want)
	go func() {
		p.Stdin.Write(given)
		p.Stdin.Close()
	}()
	go io.Copy(io.Discard, p.Stderr)
	if got, _ := io.ReadAll(p.Stdout); !bytes.Equal(got, want) || !bytes.Equal(given, want) {
		t.Errorf("%d bytes came back, or what was given has been changed", len(got))
	}
	if _, err := p.Wait(timeout(t)); err != nil {
		t.Fatal(err)
	}
	host, guest := net.Pipe()
	defer guest.Close()
	w := combine(host)
	for i := range 100 {
		head := []byte{0, typeData, 0, 0, 0, 0, 0, 1, 0, 0, 0, 12}
		body := []byte("twelve bytes")
		for _, b := range [][]byte{head, body, head[:0], {0, typeWindow, 0, 0, 0, 0, 0, 1, 0, 0, 0, 12}, []byte("left alone..")} {
			if i < 3 { // and then without an echo, so that the buffer grows
				go io.ReadFull(guest, make([]byte, len(b)))
			}
			before := bytes.Clone(b)
			if w.Write(b); !bytes.Equal(b, before) && string(before) != "twelve bytes" {
				t.Fatalf("%q became %q", before, b)
			}
		}
		if !bytes.Equal(body, make([]byte, 12)) {
			t.Fatalf("yamux keeps %q", body)
		}
	}
	go io.Copy(io.Discard, guest)
	for range 1000 {
		w.mu.Lock()
		idle := !w.busy && len(w.buf) == 0
		left := bytes.Trim(append(w.buf[:cap(w.buf)], w.spare[:cap(w.spare)]...), "\x00")
		w.mu.Unlock()
		if idle {
			if len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("never idle")
}

func BenchmarkCommand(b *testing.B) {
	g := newGuest(b, localRunner{})
	c := g.connect(b, g.host, nil)
	for b.Loop() {
		result(b, c, Command{Step: "s", Argv: []string{"/bin/true"}}, "")
	}
}
