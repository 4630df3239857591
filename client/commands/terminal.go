package commands

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/custody-project/custody/client"
)

// passed are the signals that the command in the sandbox gets. SIGPIPE is taken, too, so that the end of a reader of the output is an error of a write.
var passed = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGPIPE}

// terminal takes the signals of this process, and puts its terminal into raw mode, until it is restored.
type terminal struct {
	file    *os.File
	raw     *term.State // nil: it is as it was
	signals chan os.Signal
}

// takeTerminal takes the signals, and the terminal of in, if there is one, for a command with a terminal.
func takeTerminal(in *os.File, tty bool) *terminal {
	t := &terminal{file: in, signals: make(chan os.Signal, 8)}
	if tty && term.IsTerminal(int(in.Fd())) {
		if state, err := term.MakeRaw(int(in.Fd())); err == nil {
			t.raw = state
		}
	}
	signal.Notify(t.signals, passed...)
	return t
}

func (t *terminal) restore() {
	signal.Stop(t.signals)
	if t.raw != nil {
		term.Restore(int(t.file.Fd()), t.raw)
	}
}

// window returns the size and the type of the terminal of in.
func window(in *os.File) *client.TerminalState {
	s := &client.TerminalState{Rows: 24, Cols: 80, Type: os.Getenv("TERM")}
	if cols, rows, err := term.GetSize(int(in.Fd())); err == nil {
		s.Rows, s.Cols = uint16(rows), uint16(cols)
	}
	return s
}

// signalName returns the name of a signal, such as SIGINT.
func signalName(s os.Signal) string { return unix.SignalName(s.(syscall.Signal)) }
