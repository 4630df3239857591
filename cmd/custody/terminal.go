package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/run"
)

// terminal is the caller's side of a command: its input, its signals and, with
// --tty, its screen in raw mode.
type terminal struct {
	in      io.Reader
	signals <-chan syscall.Signal
	resizes <-chan channel.Winsize

	window *channel.Winsize
	stop   chan struct{}
	done   chan struct{}
	undo   func()
}

// console returns what takes the caller's terminal over for the steps of a run.
func (c runCmd) console(a *app) func() (run.Console, func()) {
	return func() (run.Console, func()) {
		t := c.takeTerminal(a.stdin)
		out := run.Console{
			Stdin: t.in, Stdout: a.stdout, Stderr: a.stderr, Live: term.IsTerminal(int(os.Stdout.Fd())),
			Window: t.window, Term: os.Getenv("TERM"), Signals: t.signals, Resizes: t.resizes,
		}
		if c.JSON {
			out.Stdout, out.Stderr = nil, nil
		}
		return out, t.restore
	}
}

// takeTerminal takes the terminal of in over until restore.
func (c runCmd) takeTerminal(in *os.File) *terminal {
	t := &terminal{in: in, stop: make(chan struct{}), done: make(chan struct{}), undo: func() {}}
	if c.TTY {
		t.window = &channel.Winsize{Rows: 24, Cols: 80}
		if fd := int(in.Fd()); term.IsTerminal(fd) {
			if state, err := term.MakeRaw(fd); err == nil {
				t.undo = func() { term.Restore(fd, state) }
			}
			t.window = windowOf(fd)
		}
	}
	signals, resizes := make(chan syscall.Signal, 8), make(chan channel.Winsize, 1)
	t.signals, t.resizes = signals, resizes
	got := make(chan os.Signal, 8)
	// SIGPIPE too: a reader of the output that goes away ends the command (sandbox), but not its record.
	signal.Notify(got, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGPIPE)
	go func() {
		defer close(t.done)
		defer signal.Stop(got)
		for {
			select {
			case s := <-got:
				forward(s.(syscall.Signal), in, c.TTY, signals, resizes)
			case <-t.stop:
				return
			}
		}
	}()
	return t
}

// forward hands a signal on; what no one takes in time is dropped, as the kernel does.
func forward(s syscall.Signal, in *os.File, tty bool, signals chan<- syscall.Signal, resizes chan<- channel.Winsize) {
	if s == syscall.SIGPIPE {
		return
	}
	if s != syscall.SIGWINCH {
		select {
		case signals <- s:
		default:
		}
		return
	}
	if !tty {
		return
	}
	select {
	case resizes <- *windowOf(int(in.Fd())):
	default:
	}
}

func windowOf(fd int) *channel.Winsize {
	cols, rows, err := term.GetSize(fd)
	if err != nil {
		return &channel.Winsize{Rows: 24, Cols: 80}
	}
	return &channel.Winsize{Rows: uint16(rows), Cols: uint16(cols)}
}

// restore gives the terminal back.
func (t *terminal) restore() {
	close(t.stop)
	<-t.done
	t.undo()
}
