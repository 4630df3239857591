package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/sandbox"
)

// maxFiles bounds the operations on files that a session carries out at the same time.
const maxFiles = 128

// The calls about files of a session. The worker's report of an operation's end is callFiled.
const (
	callFile         = "file"
	callFileComplete = "file complete"
	callEndFile      = "end file"
	callFiled        = "filed"
)

type (
	fileCall struct {
		ID   uint64
		Call sandbox.FileCall
	}
	fileID struct{ ID uint64 }
	filed  struct {
		ID     uint64
		Result channel.FileResult
		File   *channel.FileError
		Err    *fault
	}
)

// files are the operations on files that are being carried out in a session, in its worker. Each has a pipe for its content, or for the
// entries or changes of a directory in JSON.
type files struct {
	processes *processes

	mu   sync.Mutex // guards live
	live map[uint64]*fileWork
}

// fileWork is one of them.
type fileWork struct {
	cancel   context.CancelFunc
	complete atomic.Bool // the owner has written all content to the pipe
}

func newFiles(p *processes) *files { return &files{processes: p, live: map[uint64]*fileWork{}} }

// handlers returns the calls with which the owner starts and ends operations.
func (f *files) handlers() map[string]privsep.Handler {
	about := func(do func(*fileWork)) privsep.Handler {
		return privsep.Handle(func(_ context.Context, c fileID) (any, []*os.File, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if w := f.live[c.ID]; w != nil { // else it has just ended
				do(w)
			}
			return none{}, nil, nil
		})
	}
	return map[string]privsep.Handler{
		callFile:         f.start,
		callFileComplete: about(func(w *fileWork) { w.complete.Store(true) }),
		callEndFile:      about(func(w *fileWork) { w.cancel() }),
	}
}

// start starts an operation, and returns before it has ended.
func (f *files) start(_ context.Context, body []byte, with []*os.File) (any, []*os.File, error) {
	pipe, err := oneFile(with)
	if err != nil {
		return nil, nil, err
	}
	var c fileCall
	if err = privsep.Decode(body, &c); err == nil {
		err = f.launch(c, pipe)
	}
	if err != nil {
		pipe.Close()
	}
	return none{}, nil, err
}

func (f *files) launch(c fileCall, pipe *os.File) error {
	p := f.processes
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil {
		return errors.New("the session does not run")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.live[c.ID] != nil:
		return fmt.Errorf("there is an operation %d already", c.ID)
	case len(f.live) >= maxFiles:
		return fmt.Errorf("%d operations on files are being carried out, which is the limit of a session", maxFiles)
	}
	ctx, cancel := context.WithCancel(p.ctx)
	w := &fileWork{cancel: cancel}
	f.live[c.ID] = w
	s := p.sandbox
	p.steps.Go(func() {
		defer cancel()
		res, err := w.carryOut(ctx, s, c.Call, pipe)
		pipe.Close()
		f.mu.Lock()
		delete(f.live, c.ID)
		f.mu.Unlock()
		report := filed{ID: c.ID, Result: res}
		if !errors.As(err, &report.File) {
			report.Err = faultOf(err)
		}
		p.worker.reports.call(callFiled, report, nil)
	})
	return nil
}

// carryOut carries out an operation.
func (w *fileWork) carryOut(ctx context.Context, s *sandbox.Sandbox, c sandbox.FileCall, pipe *os.File) (channel.FileResult, error) {
	defer context.AfterFunc(ctx, func() { pipe.SetDeadline(time.Unix(1, 0)) })()
	var t channel.FileTransfer
	switch c.Op {
	case channel.FileWrite, channel.FileUnpack:
		t.In = wholly{pipe, w}
	case channel.FileRead, channel.FilePack:
		t.Out = pipe
	case channel.FileList:
		out := json.NewEncoder(pipe)
		t.Entry = func(i channel.FileInfo) error { return out.Encode(i) }
	case channel.FileWatch:
		out := json.NewEncoder(pipe)
		t.Change = func(c channel.FileChange) error { return out.Encode(c) }
	}
	return s.File(ctx, c, t)
}

// wholly reads content from a pipe. Its end is the end of the content only if the owner has said so: it may have died.
type wholly struct {
	io.Reader
	work *fileWork
}

// Read implements io.Reader.
func (w wholly) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if errors.Is(err, io.EOF) && !w.work.complete.Load() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
