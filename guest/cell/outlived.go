package cell

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// outlived is the output of a command in a session. Other processes may keep it open when the command has ended: its
// reader then gets what is in the pipe, and the end of file. What is written later is discarded.
//
//	Read ... --end--> reads the rest --> end of file --> read by the session, until the last process has closed it
type outlived struct {
	file    *os.File
	session *session
	rest    int  // the maximum number of bytes that are in the pipe at the command's end
	kept    bool // the session reads it

	mu          sync.Mutex // guards the fields below, and is held while the deadline is set
	ended, held bool
}

// set ends the output, or holds it or releases it.
func (o *outlived) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
	deadline := time.Time{}
	if o.ended || o.held {
		deadline = time.Unix(1, 0)
	}
	if !o.kept {
		o.file.SetReadDeadline(deadline)
	}
}

// hasEnded reports whether the output ends, and is not only held.
func (o *outlived) hasEnded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

// maxPipe is the largest capacity of a pipe that a process can set without privileges, in bytes.
const maxPipe = 1 << 20

// outlive makes the outputs end with the command.
func (p *pipes) outlive(s *session) {
	p.session = s
	wrap := func(r io.ReadCloser) io.ReadCloser {
		switch f := r.(type) {
		case terminal:
			o := &outlived{file: f.ReadCloser.(*os.File), session: s, rest: maxPipe}
			p.outlived = append(p.outlived, o)
			return terminal{o}
		case *os.File:
			o := &outlived{file: f, session: s, rest: maxPipe}
			p.outlived = append(p.outlived, o)
			return o
		}
		return r
	}
	p.stdout, p.stderr = wrap(p.stdout), wrap(p.stderr)
}

// end is called when the command has ended.
func (p *pipes) end() {
	for _, o := range p.outlived {
		o.set(func() { o.ended = true })
	}
}

// hold makes reads and writes that would wait return os.ErrDeadlineExceeded.
func (p *pipes) hold() {
	for _, o := range p.outlived {
		o.set(func() { o.held = true })
	}
	p.setWriteDeadline(time.Unix(1, 0))
}

// release ends hold.
func (p *pipes) release() {
	for _, o := range p.outlived {
		o.set(func() { o.held = false })
	}
	p.setWriteDeadline(time.Time{})
}

func (p *pipes) setWriteDeadline(t time.Time) {
	if p.tty != nil {
		p.tty.SetWriteDeadline(t)
	} else if f, ok := p.stdin.(*os.File); ok {
		f.SetWriteDeadline(t)
	}
}

// Read implements io.Reader.
func (o *outlived) Read(b []byte) (int, error) {
	if o.kept {
		return 0, io.EOF
	}
	n, err := o.file.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	ended := o.hasEnded()
	if !ended || o.rest > 0 {
		if n, err = o.now(b); n > 0 {
			if ended {
				o.rest -= n
			}
			return n, nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return 0, io.EOF
		}
	}
	if !ended {
		return 0, os.ErrDeadlineExceeded
	}
	o.keep()
	return 0, io.EOF
}

// now reads without waiting.
func (o *outlived) now(b []byte) (n int, err error) {
	raw, err := o.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { n, failed = unix.Read(int(fd), b) })
	return max(n, 0), errors.Join(err, failed)
}

// keep has the session read the output, so that the processes that write it neither block nor are killed.
func (o *outlived) keep() {
	o.mu.Lock()
	o.kept = true
	o.mu.Unlock()
	o.file.SetReadDeadline(time.Time{})
	o.session.reading.Go(func() {
		io.Copy(io.Discard, o.file)
		o.file.Close()
	})
}

// Close implements io.Closer.
func (o *outlived) Close() error {
	if o.kept {
		return nil
	}
	return o.file.Close()
}
