package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

// output is the program's standard output or standard error. It keeps the first error, so that a partial answer does not pass for a whole one.
type output struct {
	file *os.File
	ctx  context.Context // of the program: after its end a write that blocks is given up

	mu  sync.Mutex // guards err
	err error
}

// lastWrites is how long a write may block after a signal: the reader of a pipe may just be slow.
const lastWrites = 2 * time.Second

var errBlocked = errors.New("interrupted by a signal, and the reader of the output takes nothing")

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	if errors.Is(o.failed(), errBlocked) {
		return 0, errBlocked
	}
	n, err := o.write(b)
	if err != nil && !errors.Is(err, syscall.EPIPE) { // a closed pipe: its reader needs no more
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// write gives up, and leaves its goroutine to the end of the program, when the file still blocks some time after ctx is done.
func (o *output) write(b []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	mine := bytes.Clone(b) // the caller may use its own again
	go func() {
		n, err := o.file.Write(mine)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-o.ctx.Done():
	}
	select {
	case r := <-done:
		return r.n, r.err
	case <-time.After(lastWrites):
		return 0, errBlocked
	}
}

// Fd returns the file's descriptor.
func (o *output) Fd() uintptr { return o.file.Fd() }

// failed returns why something could not be written.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// isTerminal reports whether w is one of the program's outputs and a terminal.
func isTerminal(w io.Writer) bool {
	o, ok := w.(*output)
	return ok && term.IsTerminal(int(o.Fd()))
}

// inherited returns what a child process writes to in place of w: the file itself, so that a terminal stays one.
func inherited(w io.Writer) io.Writer {
	if o, ok := w.(*output); ok {
		return o.file
	}
	return w
}
