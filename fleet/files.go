package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/run"
)

// maxFiles bounds the operations on files of a sandbox that are carried out at the same time.
const maxFiles = 64

// maxWatches bounds the directories of a sandbox that are watched at the same time: each has a thread in the guest.
const maxWatches = 16

// ErrBusy is the kind of an error that means that too much is being done in a sandbox.
var ErrBusy = errors.New("busy")

// Files are the files of a sandbox. It is safe for concurrent use.
type Files struct{ sandbox *Sandbox }

// Files returns the files of the sandbox. An operation starts the sandbox if it is only promised.
func (s *Sandbox) Files() Files { return Files{s} }

// filing is an operation on a file that is being carried out.
type filing struct {
	*run.Filed
	files Files
	done  func()
}

// start starts an operation. The caller ends it with end.
func (f Files) start(ctx context.Context, c run.FileCall, pipe *os.File) (*filing, error) {
	if err := c.Check(); err != nil {
		return nil, invalid("%v", err)
	}
	rest := f.sandbox.Call()
	unlock, err := pausing{f.sandbox}.use(ctx)
	if err != nil {
		rest()
		return nil, err
	}
	defer unlock()
	leave, err := f.enter(c.Op)
	if err != nil {
		rest()
		return nil, err
	}
	op := &filing{files: f, done: func() { leave(); rest() }}
	if op.Filed, err = f.sandbox.session.File(ctx, c, pipe); err != nil {
		op.done()
		return nil, f.explain(err)
	}
	return op, nil
}

// enter counts one more operation.
func (f Files) enter(o channel.FileOp) (leave func(), err error) {
	s := f.sandbox
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state != Live:
		return nil, &Error{ErrEnded, fmt.Sprintf("the sandbox %s has ended", s.ID)}
	case o == channel.FileWatch && s.watches >= maxWatches:
		return nil, &Error{ErrBusy, fmt.Sprintf("%d directories of the sandbox are watched, as many as can be: end one", maxWatches)}
	case o != channel.FileWatch && s.files >= maxFiles:
		return nil, &Error{ErrBusy, fmt.Sprintf("%d operations on files of the sandbox are being carried out, as many as can be: wait until one ends", maxFiles)}
	}
	count := &s.files
	if o == channel.FileWatch {
		count = &s.watches
	}
	*count++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		*count--
	}, nil
}

// end returns the result. When ctx ends, so does the operation.
func (f *filing) end(ctx context.Context) (channel.FileResult, error) {
	defer f.done()
	stop := context.AfterFunc(ctx, f.End)
	res, err := f.Result()
	if !stop() && err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return res, f.files.explain(err)
}

// explain returns the error of an operation; the end of the sandbox has its own.
func (f Files) explain(err error) error {
	if errors.As(err, new(*channel.FileError)) {
		return err
	}
	return lost(f.sandbox, err)
}

// Do carries out an operation that has no content and lists nothing. An error can be a channel.FileError.
func (f Files) Do(ctx context.Context, c run.FileCall) (channel.FileInfo, error) {
	res, err := f.take(ctx, c, func(io.Reader) error { return nil })
	return res.Info, err
}

// List returns entries of a directory after a name, at most c.Max, in the order of their names, and whether there are more.
func (f Files) List(ctx context.Context, c run.FileCall) (entries []channel.FileInfo, more bool, err error) {
	c.Op = channel.FileList
	res, err := f.take(ctx, c, func(r io.Reader) error {
		return eachLine(r, func(e channel.FileInfo) error {
			if len(entries) >= c.Max {
				return errors.New("the worker listed more than it was asked for")
			}
			entries = append(entries, e)
			return nil
		})
	})
	return entries, res.More, err
}

// Watch calls each with the changes of a directory until ctx ends, each returns an error, or the directory is gone. The first one is
// channel.ChangeReady. An error can be a channel.FileError.
func (f Files) Watch(ctx context.Context, c run.FileCall, each func(channel.FileChange) error) error {
	c.Op = channel.FileWatch
	_, err := f.take(ctx, c, func(r io.Reader) error { return eachLine(r, each) })
	return err
}

// maxLine bounds a line of a worker, in bytes: it has at most two paths, each of which JSON makes six times longer.
const maxLine = 64 << 10

// eachLine calls each with the values in JSON that a worker writes, each in a line.
func eachLine[T any](r io.Reader, each func(T) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		var v T
		if err := json.Unmarshal(in.Bytes(), &v); err != nil {
			return fmt.Errorf("a line of the worker: %w", err)
		}
		if err := each(v); err != nil {
			return err
		}
	}
	return in.Err()
}

// Read writes the content of a file to w. An error can be a channel.FileError, or that of w.
func (f Files) Read(ctx context.Context, c run.FileCall, w io.Writer) (channel.FileInfo, error) {
	res, err := f.take(ctx, c, func(r io.Reader) error {
		_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, pieceOfFile))
		return err
	})
	return res.Info, err
}

// pieceOfFile is how much content is copied at a time, in bytes.
const pieceOfFile = 256 << 10

// take carries out an operation that sends something, which read reads.
func (f Files) take(ctx context.Context, c run.FileCall, read func(io.Reader) error) (channel.FileResult, error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return channel.FileResult{}, err
	}
	defer ours.Close()
	op, err := f.start(ctx, c, theirs)
	theirs.Close()
	if err != nil {
		return channel.FileResult{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var taking sync.WaitGroup
	var taken error
	taking.Go(func() {
		if taken = read(ours); taken != nil {
			cancel(taken)
			ours.Close() // the worker notices
		}
	})
	res, err := op.end(ctx)
	taking.Wait()                                  // the worker has closed its end of the pipe
	if taken != nil && !errors.Is(err, ErrEnded) { // a worker that ends can leave half a line
		err = taken
	}
	return res, err
}

// Write makes a regular file of a content, or replaces a file, when the content has ended without an error.
func (f Files) Write(ctx context.Context, c run.FileCall, content io.Reader) (channel.FileInfo, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return channel.FileInfo{}, err
	}
	defer ours.Close()
	op, err := f.start(ctx, c, theirs)
	theirs.Close()
	if err != nil {
		return channel.FileInfo{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var giving sync.WaitGroup
	from := &source{Reader: content}
	giving.Go(func() {
		defer ours.Close()
		if _, err := io.CopyBuffer(struct{ io.Writer }{ours}, from, make([]byte, pieceOfFile)); err == nil {
			_ = op.Complete(ctx) // it fails only if the operation does
		}
		if from.err != nil {
			cancel(from.err)
		}
	})
	res, err := op.end(ctx)
	ours.SetWriteDeadline(time.Unix(1, 0))
	giving.Wait()
	if from.err != nil && err != nil && !errors.As(err, new(*channel.FileError)) {
		err = from.err
	}
	return res.Info, err
}

// source remembers the error of a reader.
type source struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
