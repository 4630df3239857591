package worker

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/egress"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/sandbox"
)

// fault is an error that crosses the connection. The other process gets its text, and which of the known errors it is.
type fault struct {
	Text  string
	Known []string
}

// known are the errors that a caller of a run distinguishes.
var known = map[string]error{
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded,
	"limits.time": sandbox.ErrTimeout, "step time": sandbox.ErrStepTime, "ended": sandbox.ErrEnded,
	"died": sandbox.ErrVMDied, "silent": sandbox.ErrSilent, "memory": sandbox.ErrHoldsSecret, "suspended": sandbox.ErrSuspended, "not begun": sandbox.ErrNotBegun, "not suspended": sandbox.ErrNotSuspended, "not saved": sandbox.ErrNotSaved, "not open": egress.ErrNotOpen,
	"aborted": wal.ErrAborted, "no room": wal.ErrNoRoom,
	"ENOSPC": unix.ENOSPC, "EDQUOT": unix.EDQUOT, "EROFS": unix.EROFS, "EACCES": unix.EACCES, "EPERM": unix.EPERM,
}

// maxFault bounds the text of a fault in bytes.
const maxFault = 8 << 10

// faultOf returns the fault of an error, nil for nil.
func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	text := err.Error()
	f := &fault{Text: strings.ToValidUTF8(text[:min(len(text), maxFault)], "?")}
	for name, k := range known {
		if errors.Is(err, k) {
			f.Known = append(f.Known, name)
		}
	}
	return f
}

// err returns the error of a fault, nil for nil. It wraps the causes that the fault's text quotes.
func (f *fault) err(causes []error) error {
	if f == nil {
		return nil
	}
	e := &remoteError{text: f.Text}
	for _, name := range f.Known {
		if k := known[name]; k != nil {
			e.wraps = append(e.wraps, k)
		}
	}
	for _, cause := range causes {
		if strings.Contains(f.Text, cause.Error()) {
			e.wraps = append(e.wraps, cause)
		}
	}
	return e
}

// remoteError is an error of the other process.
type remoteError struct {
	text  string
	wraps []error
}

// Error implements error.
func (e *remoteError) Error() string { return e.text }

// Unwrap returns the errors that it is, or is caused by.
func (e *remoteError) Unwrap() []error { return e.wraps }

// maxCauses bounds the errors that are remembered.
const maxCauses = 64

// Causes remembers the errors with which calls of a worker failed. If such a failure is the reason why its run fails, the run's error
// wraps the original, and so has its remedy. It is safe for concurrent use.
type Causes struct {
	mu   sync.Mutex // guards list
	list []error
}

// Watch returns the handlers, whose errors are remembered.
func (c *Causes) Watch(handlers map[string]privsep.Handler) map[string]privsep.Handler {
	all := make(map[string]privsep.Handler, len(handlers))
	for name, handle := range handlers {
		all[name] = c.handler(handle)
	}
	return all
}

// All returns the errors, the latest first.
func (c *Causes) All() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]error, 0, len(c.list))
	for i := range c.list {
		list = append(list, c.list[len(c.list)-1-i])
	}
	return list
}

func (c *Causes) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == maxCauses {
		c.list = c.list[1:]
	}
	c.list = append(c.list, err)
}

// handler remembers the errors of one handler.
func (c *Causes) handler(handle privsep.Handler) privsep.Handler {
	return func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
		result, with, err := handle(ctx, body, files)
		if err != nil {
			c.add(err)
		}
		return result, with, err
	}
}
