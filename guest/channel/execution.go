package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Holder is a Cell whose streams can be held while the guest is suspended.
type Holder interface {
	// Hold makes reads of the outputs return what the pipes contain, and then os.ErrDeadlineExceeded, as a write to the input that
	// would wait does.
	Hold()
	// Release ends Hold.
	Release()
	// Deliver gives the command new secrets in place of those that it has had since its start. It gets their files, in which it
	// finds all new values or none; its variables stay as they are. Deliver does nothing for a command that has ended, and does not
	// keep the values.
	Deliver([]Secret) error
}

// execution is a command in the guest. It outlives the session of the host that started it, if that session is suspended.
//
//	exec --> connected --its end is reported--> gone
//	           |   ^
//	   suspend v   | attach
//	         suspended
type execution struct {
	cell   Cell
	cmd    Command
	key    []byte // of the step's proofs; nil: it is not leased, or is suspended
	exited chan struct{}
	exit   Exit          // set when exited is closed
	gone   chan struct{} // closed when its cell has been removed
	parked bool          // it is suspended; guarded by commands.mu

	in       io.WriteCloser
	out      [2]io.ReadCloser // stdout and stderr; nil: there is none, or it has ended
	input    []byte           // what the host has sent while the guest was being suspended
	overflow bool             // it was more than maxHeld
	finished bool             // the input has ended
}

// maxHeld bounds the input that a command has not read when the guest is suspended: what is on the way.
const maxHeld = 1 << 20

func newExecution(cell Cell, cmd Command, key []byte) *execution {
	x := &execution{cell: cell, cmd: cmd, key: key, exited: make(chan struct{}), gone: make(chan struct{})}
	x.in, x.out[0], x.out[1] = cell.Pipes()
	go func() {
		x.exit = cell.Wait()
		close(x.exited)
	}()
	return x
}

// exec runs one command to its end: every byte of output sent, every event
// before the mark, then the report. If refused is set, it does not start.
func (s *Server) exec(ctx context.Context, w *wireCommand, refused error, ctl net.Conn, data []net.Conn) {
	cmd := w.decode()
	err := refused
	var started func()
	if err == nil {
		started, err = s.commands.begin(cmd.Step)
	}
	if err != nil {
		s.finish(ctx, refusal(err), ctl, data)
		return
	}
	defer s.commands.left()
	cell, key, err := s.start(ctx, cmd, w.Sealed, ctl)
	if err != nil {
		started()
		s.finish(ctx, refusal(err), ctl, data)
		return
	}
	x := s.commands.add(newExecution(cell, cmd, key))
	started()
	if cmd.Session {
		writeFrame(ctl, report{Started: true}, maxReport)
	}
	s.conduct(ctx, x, ctl, data)
}

// conduct connects a command with the host until its end, which it reports, or until the guest is suspended.
func (s *Server) conduct(ctx context.Context, x *execution, ctl net.Conn, data []net.Conn) {
	if !x.connect(controls{ctl: ctl, step: x.cmd.Step, key: x.key}, data, s.commands.held()) {
		closeAll(data)
		clear(x.key)
		x.key = nil // the host that attaches brings another one
		s.commands.leave(x)
		writeFrame(ctl, report{Suspended: true}, maxReport)
		return
	}
	clear(x.key)
	s.finish(ctx, x.exit, ctl, data)
	x.cell.Close()
	s.commands.remove(x)
}

// finish reports the end of a command.
func (s *Server) finish(ctx context.Context, exit Exit, ctl net.Conn, data []net.Conn) {
	closeAll(data)
	if s.Flush != nil {
		if err := s.Flush(ctx); err != nil && exit.Error == "" {
			exit.Error = fmt.Sprintf("flush the sensors: %v", err)
		}
	}
	mark, err := s.events.mark(ctx)
	if err != nil {
		return // the session has ended
	}
	writeFrame(ctl, report{Exit: &exit, Mark: mark, Done: true}, maxReport)
}

// refusal is the exit of a command that did not start.
func refusal(err error) Exit {
	if e := (*ExecError)(nil); errors.As(err, &e) {
		return Exit{Code: e.Code, Error: e.Error()}
	}
	return Exit{Code: 125, Error: err.Error()}
}

// connect carries the command's streams until it has ended, or held is closed. It reports whether the command has ended.
func (x *execution) connect(h controls, data []net.Conn, held <-chan struct{}) (ended bool) {
	holder, _ := x.cell.(Holder)
	done := make(chan struct{})
	var input, output, hold sync.WaitGroup
	hold.Go(func() {
		select {
		case <-held:
			if holder != nil {
				holder.Hold()
			}
		case <-done:
		}
	})
	input.Go(func() { x.feed(data[0], held) })
	input.Go(func() { h.steer(x.cell) })
	for i := range x.out {
		if x.out[i] != nil {
			output.Go(func() { x.pour(i, data[1+i]) })
		} else if 1+i < len(data) {
			data[1+i].Close()
		}
	}
	output.Wait()
	ended = x.await(held)
	close(done)
	hold.Wait()
	if ended {
		unblock(data[0])
		if in, ok := x.in.(interface{ SetWriteDeadline(time.Time) error }); ok {
			in.SetWriteDeadline(past()) // another process may have the command's input
		}
	}
	h.ctl.SetReadDeadline(past())
	input.Wait()
	return ended
}

// await waits for the end of a command whose outputs have ended or are held.
func (x *execution) await(held <-chan struct{}) (ended bool) {
	select {
	case <-x.exited:
		return x.out[0] == nil && x.out[1] == nil // else they are held
	case <-held:
		return false
	}
}

// feed copies the host's input to the command. If the command no longer reads,
// feed discards the input, so that the host is not blocked.
func (x *execution) feed(from net.Conn, held <-chan struct{}) {
	buf := make([]byte, 32<<10)
	defer clear(buf)
	for !x.finished {
		if err := x.deliver(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			x.finish()
			io.Copy(io.Discard, from)
			return
		}
		n, err := from.Read(buf)
		if len(x.input)+n > maxHeld {
			x.overflow = true
			n = 0
		}
		x.input = append(x.input, buf[:n]...)
		if err != nil {
			if !isClosed(held) {
				x.finish()
			}
			return
		}
	}
	io.Copy(io.Discard, from)
}

// deliver writes what the host has sent.
func (x *execution) deliver() error {
	for len(x.input) > 0 {
		n, err := x.in.Write(x.input)
		clear(x.input[:n])
		x.input = x.input[n:]
		if err != nil {
			return err
		}
	}
	x.input = nil
	return nil
}

// finish ends the input.
func (x *execution) finish() {
	clear(x.input)
	x.input, x.finished = nil, true
	x.in.Close()
}

// The buffer of an output has leastPour bytes, and grows up to mostPour while reads fill it.
const (
	leastPour = 32 << 10
	mostPour  = 128 << 10
)

// pour copies an output to the host until it ends or is held. If the connection has ended it discards the rest, so
// that the command can end. It zeroes its buffers.
func (x *execution) pour(i int, to io.Writer) {
	buf := make([]byte, leastPour)
	defer func() { clear(buf) }()
	for full := false; ; {
		if full && len(buf) < mostPour {
			clear(buf)
			buf = make([]byte, 2*len(buf))
		}
		n, err := x.out[i].Read(buf)
		full = n == len(buf)
		if n > 0 {
			if _, gone := to.Write(buf[:n]); gone != nil {
				to = io.Discard
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			x.out[i].Close()
			x.out[i] = nil
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
