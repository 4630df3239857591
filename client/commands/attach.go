package commands

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/custody-project/custody/client"
)

// attachment connects a process in a sandbox with the standard streams of this one.
type attachment struct {
	*Env
	process *client.Process
	tty     bool // it has a terminal
	input   bool // it gets this process's input
	ctx     context.Context
}

// grace is how long a process has between SIGTERM and SIGKILL when the user ends this program.
const grace = 10 * time.Second

var errCancelled = errors.New("cancelled by a signal: the command was ended")

// attach copies input and output, and passes signals on, until the process has ended and all of its output is written. It returns how
// the process ended. If e.Context ends before, it ends the process.
func (e *Env) attach(p *client.Process, tty, input bool) (client.StartedProcess, error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(e.Context))
	a := &attachment{e, p, tty, input, ctx}
	t := takeTerminal(e.Stdin, tty)
	defer t.restore()
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel(nil)
	helpers.Go(func() { a.pass(t) })
	helpers.Go(a.endWhenCancelled)
	if input {
		go a.send() // not waited for: a read from a terminal cannot be interrupted
	}
	outputs := map[string]io.Writer{client.Stdout: e.Stdout, client.Stderr: e.Stderr}
	if tty {
		outputs = map[string]io.Writer{client.TTY: e.Stdout}
	}
	errs := make(chan error, len(outputs))
	for stream, w := range outputs {
		go func() { errs <- a.copy(w, stream) }()
	}
	var failed error
	for range outputs {
		if err := <-errs; err != nil && failed == nil {
			failed = err
			cancel(err) // which ends the other output
		}
	}
	if failed != nil {
		return client.StartedProcess{}, failed
	}
	exit, err := p.Wait(ctx)
	if err == nil && e.Context.Err() != nil {
		err = errCancelled
	}
	return exit, err
}

// copy copies an output. When it cannot be written any more, the process gets SIGPIPE, and the rest is discarded.
func (a *attachment) copy(w io.Writer, stream string) error {
	from := a.process.Output(a.ctx, stream)
	to := &noted{Writer: w}
	_, err := io.Copy(to, from)
	if to.err == nil {
		return err
	}
	if errors.Is(to.err, syscall.EPIPE) {
		_ = a.process.Signal(a.ctx, "SIGPIPE") // it may have ended
		_, err = io.Copy(io.Discard, from)
		return err
	}
	return to.err
}

// noted is a writer that keeps its error.
type noted struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (n *noted) Write(b []byte) (int, error) {
	w, err := n.Writer.Write(b)
	n.err = err
	return w, err
}

// pieceOfInput bounds the input of one request, in bytes.
const pieceOfInput = 256 << 10

// send copies this process's input until it or the process's ends.
func (a *attachment) send() {
	b := make([]byte, pieceOfInput)
	for {
		n, err := a.Stdin.Read(b)
		if n > 0 {
			if err := a.process.Write(a.ctx, b[:n]); err != nil {
				a.unsent(err)
				return
			}
		}
		if err != nil {
			a.unsent(a.process.CloseInput(a.ctx))
			return
		}
	}
}

// unsent reports that input was lost, unless the process has closed its input or ended.
func (a *attachment) unsent(err error) {
	if err != nil && a.ctx.Err() == nil && !client.IsStatus(err, http.StatusConflict) && !client.IsStatus(err, http.StatusGone) {
		a.Say("the command's input is not complete: " + err.Error())
	}
}

// pass passes signals and sizes of the terminal on. What cannot be delivered is dropped, as by the kernel.
func (a *attachment) pass(t *terminal) {
	for {
		select {
		case s := <-t.signals:
			switch {
			case s == syscall.SIGPIPE:
			case s != syscall.SIGWINCH:
				_ = a.process.Signal(a.ctx, signalName(s))
			case a.tty:
				size := window(a.Stdin)
				_ = a.process.Resize(a.ctx, size.Rows, size.Cols)
			}
		case <-a.ctx.Done():
			return
		}
	}
}

// endWhenCancelled ends the process when the user ends this program.
func (a *attachment) endWhenCancelled() {
	select {
	case <-a.Context.Done():
	case <-a.ctx.Done():
		return
	}
	_ = a.process.Signal(a.ctx, "SIGTERM")
	select {
	case <-time.After(grace):
		_ = a.process.Signal(a.ctx, "SIGKILL")
	case <-a.ctx.Done():
	}
}

// finish reports how a process ended, and returns its exit code as an error.
func (e *Env) finish(p client.StartedProcess, err error) error {
	switch {
	case err != nil:
		return explain(err)
	case p.ExitCode == nil:
		return failure("its record has more: that of the run with the sandbox's ID", "the command was ended: %s", p.Error)
	case p.OOM:
		e.Say("the command was killed: the sandbox has no more memory")
	case p.Error != "":
		e.Say(p.Error)
	}
	return Exit(*p.ExitCode)
}
