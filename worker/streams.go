package worker

import (
	"bufio"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// streams are pipes between a worker and the console of its run. The worker has no descriptor of the user's terminal or files.
type streams struct {
	run      *run
	theirs   []*os.File // the worker's ends of stdin, stdout and stderr
	messages *os.File   // the worker's end of its own standard error

	stdin          *os.File // our ends
	stdout, stderr *os.File
	log            *os.File
	copying        sync.WaitGroup
	copied         chan struct{} // closed when copying has ended; nil before started
}

// openStreams makes the pipes.
func (r *run) openStreams() (s *streams, err error) {
	s = &streams{run: r}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	pair := func(toWorker bool) (ours, theirs *os.File) {
		read, write, failed := os.Pipe()
		if failed != nil {
			err = errors.Join(err, failed)
			return nil, nil
		}
		if toWorker {
			return write, read
		}
		return read, write
	}
	s.theirs = make([]*os.File, 3)
	s.stdin, s.theirs[0] = pair(true)
	s.stdout, s.theirs[1] = pair(false)
	s.stderr, s.theirs[2] = pair(false)
	s.log, s.messages = pair(false)
	return s, err
}

// started closes the worker's ends in this process, and begins to copy.
func (s *streams) started() {
	s.closeTheirs()
	if s.run.Stdin == nil {
		s.stdin.Close()
	} else {
		// Not waited for: a read from the caller's terminal cannot be interrupted.
		go func() {
			io.Copy(s.stdin, s.run.Stdin)
			s.stdin.Close()
		}()
	}
	stdout, stderr := s.run.Stdout, s.run.Stderr
	if stdout != nil && stdout == stderr {
		both := &shared{to: stdout}
		stdout, stderr = both, both
	}
	s.copying.Go(func() { pass(s.stdout, stdout) })
	s.copying.Go(func() { pass(s.stderr, stderr) })
	s.copying.Go(s.report)
	s.copied = make(chan struct{})
	go func() {
		s.copying.Wait()
		close(s.copied)
	}()
}

// pass copies output until the worker has ended. When it cannot be written, the pipe is closed, so that the worker notices.
func pass(from *os.File, to io.Writer) {
	defer from.Close()
	if to == nil {
		to = io.Discard
	}
	io.Copy(to, from)
}

// shared is a writer for both streams.
type shared struct {
	mu sync.Mutex // held during a write
	to io.Writer
}

// Write implements io.Writer.
func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(b)
}

// report passes on what the worker's program prints itself, such as a panic of the Go runtime.
func (s *streams) report() {
	defer s.log.Close()
	lines := bufio.NewScanner(s.log)
	for lines.Scan() {
		s.run.Events.Notice("worker: " + lines.Text())
	}
	io.Copy(io.Discard, s.log) // after a line that is too long
}

// ended reports whether the worker closes its ends, and all output was copied, before a time has passed.
func (s *streams) ended(within time.Duration) bool {
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-s.copied:
		return true
	case <-late.C:
		return false
	}
}

// wait returns when all output was copied. The worker has ended, or closed its ends.
func (s *streams) wait() { <-s.copied }

func (s *streams) closeTheirs() {
	for _, f := range append(s.theirs, s.messages) {
		if f != nil {
			f.Close()
		}
	}
}

// close closes all ends.
func (s *streams) close() {
	s.closeTheirs()
	for _, f := range []*os.File{s.stdin, s.stdout, s.stderr, s.log} {
		if f != nil {
			f.Close()
		}
	}
}
