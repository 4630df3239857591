package console

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/custody-project/custody/guest/channel"
)

// Terminal is the caller's side of a command: its input, its signals and, with
// a terminal of its own, its screen in raw mode.
type Terminal struct {
	In      io.Reader
	Signals <-chan syscall.Signal
	Resizes <-chan channel.Winsize
	Window  *channel.Winsize // nil: the command gets no terminal

	stop chan struct{}
	done chan struct{}
	undo func()
}

// TakeTerminal takes over the process's signals until Restore, and with tty the terminal of in, in raw mode.
func TakeTerminal(in *os.File, tty bool) *Terminal {
	t := &Terminal{In: in, stop: make(chan struct{}), done: make(chan struct{}), undo: func() {}}
	if tty {
		t.Window = &channel.Winsize{Rows: 24, Cols: 80}
		if fd := int(in.Fd()); term.IsTerminal(fd) {
			if state, err := term.MakeRaw(fd); err == nil {
				t.undo = func() { term.Restore(fd, state) }
			}
			t.Window = windowOf(fd)
		}
	}
	signals, resizes := make(chan syscall.Signal, 8), make(chan channel.Winsize, 1)
	t.Signals, t.Resizes = signals, resizes
	got := make(chan os.Signal, 8)
	// SIGPIPE too: a reader of the output that goes away ends the command (sandbox), but not its record.
	signal.Notify(got, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGPIPE)
	go func() {
		defer close(t.done)
		defer signal.Stop(got)
		for {
			select {
			case s := <-got:
				forward(s.(syscall.Signal), in, tty, signals, resizes)
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

// Restore returns the terminal to its state and stops taking signals.
func (t *Terminal) Restore() {
	close(t.stop)
	<-t.done
	t.undo()
}

// Confirm asks the user a question, after explain. It returns false unless in and out are a terminal.
func Confirm(in *os.File, out io.Writer, explain func(), question string) bool {
	if !term.IsTerminal(int(in.Fd())) || !IsTerminal(out) {
		return false
	}
	explain()
	fmt.Fprint(out, question+" [y/N] ")
	line, err := bufio.NewReaderSize(in, 16).ReadString('\n')
	return err == nil && (strings.EqualFold(strings.TrimSpace(line), "y") || strings.EqualFold(strings.TrimSpace(line), "yes"))
}
