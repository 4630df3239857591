package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

// Output is the program's standard output or standard error. It keeps the first error, so that an incomplete output is not
// taken for a complete one. It is safe for concurrent use.
type Output struct {
	file *os.File
	ctx  context.Context // of the program: after its end a write that blocks is given up

	mu  sync.Mutex // guards err
	err error
}

// NewOutput returns the output to file. When ctx is done, writes that block fail after two seconds.
func NewOutput(ctx context.Context, file *os.File) *Output { return &Output{file: file, ctx: ctx} }

// lastWrites is how long a write may block after a signal: the reader of a pipe may just be slow.
const lastWrites = 2 * time.Second

var errBlocked = errors.New("interrupted by a signal, and the reader of the output takes nothing")

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	if errors.Is(o.Err(), errBlocked) {
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
func (o *Output) write(b []byte) (int, error) {
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
func (o *Output) Fd() uintptr { return o.file.Fd() }

// Err returns the first error of a write. A closed pipe is none: its reader needs no more.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// IsTerminal reports whether w is one of the program's outputs and a terminal.
func IsTerminal(w io.Writer) bool {
	o, ok := w.(*Output)
	return ok && term.IsTerminal(int(o.Fd()))
}

// Inherited returns what a child process writes to in place of w: the file itself, so that a terminal stays one.
func Inherited(w io.Writer) io.Writer {
	if o, ok := w.(*Output); ok {
		return o.file
	}
	return w
}

// TerminalWidth returns the width of the terminal that w is, in characters, 0 if it is unknown. ok reports whether w is one.
func TerminalWidth(w io.Writer) (width int, ok bool) {
	if !IsTerminal(w) {
		return 0, false
	}
	width, _, err := term.GetSize(int(w.(*Output).Fd()))
	if err != nil {
		width = 0
	}
	return width, true
}

// WriteJSONLines writes each element of list as one line of JSON.
func WriteJSONLines[T any](w io.Writer, list []T) error {
	enc := json.NewEncoder(w)
	for _, v := range list {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}
