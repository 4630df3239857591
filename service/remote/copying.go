package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/run/caller"
	"github.com/custody-project/custody/workspace/transfer"
)

// copying reads and writes the files of a run in the client. It is safe for concurrent use.
//
//	new --files--> open --close--> closed
type copying struct {
	workdir, out string // from the user
	user         User
	calls        map[string]privsep.Handler // of transfer.Relay, which fail before the files are open

	mu    sync.Mutex   // guards the fields below
	files caller.Files // nil before they are open
	ended bool
}

// handlers returns the calls of the server.
func (c *copying) handlers() map[string]privsep.Handler {
	h := map[string]privsep.Handler{CallFiles: c.open}
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
	var spec caller.FileSpec
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
	if c.files != nil || c.ended || c.user.OpenFiles == nil {
		return nil, nil, errors.New("files are opened once, and only if the user has named a directory")
	}
	opened, err := c.user.OpenFiles(ctx, spec, c.user.Notice)
	if err != nil {
		return Measured{Failed: NewFailure(c.user.Describe(err))}, nil, nil
	}
	c.files, c.calls = opened, opened.Handlers()
	return Measured{Size: opened.Size()}, nil, nil
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
