package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/workspace/transfer"
)

// remoteFiles are files that the client reads and writes.
type remoteFiles struct {
	*transfer.Relay
	size channel.Size
}

// Size implements run.Files.
func (f *remoteFiles) Size() channel.Size { return f.size }

// openFiles makes the client open the files of its run. Its process has only the rights of its user.
func (u *caller) openFiles(_ context.Context, s run.FileSpec) (run.Files, error) {
	spec, err := privsep.Memory("files", s)
	if err != nil {
		return nil, err
	}
	defer spec.Close()
	var m measured
	if err := u.call(callFiles, none{}, &m, spec); err != nil {
		return nil, err
	}
	if f := m.Failed; f != nil {
		return nil, &Failure{clip(f.Text), clip(f.Advice)}
	}
	if z := m.Size; z.Files < 0 || z.Folders < 0 || z.Bytes < 0 || z.Room < 0 {
		return nil, errors.New("the client reports a negative size")
	}
	return &remoteFiles{transfer.NewRelay(u.conn), m.Size}, nil
}

// copying reads and writes the files of a run in the client. It is safe for concurrent use.
//
//	new --files--> open --close--> closed
type copying struct {
	workdir, out string // from the user
	notice       func(string)
	calls        map[string]privsep.Handler // of transfer.Relay, which fail before the files are open

	mu    sync.Mutex // guards the fields below
	files run.Files  // nil before they are open
	ended bool
}

// handlers returns the calls of the server.
func (c *copying) handlers() map[string]privsep.Handler {
	h := map[string]privsep.Handler{callFiles: c.open}
	for name := range transfer.NewServer(nil, nil).Handlers() {
		h[name] = func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
			c.mu.Lock()
			handle, ok := c.calls[name]
			c.mu.Unlock()
			if !ok {
				closeAll(files)
				return nil, nil, errors.New("no files are open")
			}
			return handle(ctx, body, files)
		}
	}
	return h
}

// open opens the directories that the user has named. The server adds only which files are left out.
func (c *copying) open(ctx context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	var spec run.FileSpec
	if len(files) != 1 {
		closeAll(files)
		return nil, nil, fmt.Errorf("the call has %d descriptors", len(files))
	}
	if err := privsep.FromMemory(files[0], &spec); err != nil {
		return nil, nil, err
	}
	spec.Workdir, spec.Out = c.workdir, c.out
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files != nil || c.ended {
		return nil, nil, errors.New("files are opened once")
	}
	opened, err := run.OpenFiles(ctx, spec, c.notice)
	if err != nil {
		return measured{Failed: failureOf(err)}, nil, nil
	}
	c.files, c.calls = opened, opened.Handlers()
	return measured{Size: opened.Size()}, nil, nil
}

// close ends copying, and removes what was not placed.
func (c *copying) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.files == nil {
		return nil
	}
	return c.files.Close()
}
