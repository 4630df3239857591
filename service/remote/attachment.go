package remote

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/run/caller"
)

// attachment connects the client's console to the run's pipes. Its handlers are called by the server.
//
//	idle --attach--> attached --detach, end--> ended
type attachment struct {
	user User
	conn *privsep.Conn

	copying sync.WaitGroup // output
	passing sync.WaitGroup // signals

	mu      sync.Mutex // guards the fields below
	begun   bool
	ended   bool
	restore func()
	stop    context.CancelFunc // of passing
	stdin   *os.File
}

func (a *attachment) handlers(c *privsep.Conn) map[string]privsep.Handler {
	a.conn = c
	text := func(do func(string)) privsep.Handler {
		return privsep.Handle(func(_ context.Context, t string) (any, []*os.File, error) {
			if do != nil {
				do(t)
			}
			return None{}, nil, nil
		})
	}
	return map[string]privsep.Handler{
		CallNotice: text(a.user.Notice), CallProgress: text(a.user.Progress),
		CallProblem: privsep.Handle(func(_ context.Context, f Failure) (any, []*os.File, error) {
			a.user.Problem(&f)
			return None{}, nil, nil
		}),
		CallAttach: a.attach,
		CallDetach: privsep.Handle(func(context.Context, None) (any, []*os.File, error) {
			a.end()
			return None{}, nil, nil
		}),
		CallRecords: a.records,
	}
}

// attach takes over the user's console.
func (a *attachment) attach(_ context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(files) != 3 || a.begun || a.ended {
		closeAll(files)
		return nil, nil, errors.New("a run is attached once, with three descriptors")
	}
	var console caller.Console
	console, a.restore = a.user.Attach()
	a.begun, a.stdin = true, files[0]
	if console.Stdin == nil {
		a.stdin.Close()
	} else {
		// Not waited for: a read from the user's terminal cannot be interrupted.
		go func() {
			_, _ = io.Copy(files[0], console.Stdin)
			files[0].Close()
		}()
	}
	a.copying.Go(func() { pass(files[1], console.Stdout) })
	a.copying.Go(func() { pass(files[2], console.Stderr) })
	var ctx context.Context
	ctx, a.stop = context.WithCancel(context.Background())
	a.passing.Go(func() { a.forward(ctx, console) })
	return Attached{console.Window, console.Term, console.Live}, nil, nil
}

// pass copies output. When it cannot be written, the pipe is closed, so that the command notices.
func pass(from *os.File, to io.Writer) {
	defer from.Close()
	if to == nil {
		to = io.Discard
	}
	_, _ = io.Copy(to, from)
}

// forward passes signals and sizes of the terminal on. What the server does not take is lost, as in the kernel.
func (a *attachment) forward(ctx context.Context, c caller.Console) {
	for {
		select {
		case sig := <-c.Signals:
			_, _ = a.conn.Call(ctx, CallSignal, SignalCall{sig}, nil)
		case size := <-c.Resizes:
			_, _ = a.conn.Call(ctx, CallResize, size, nil)
		case <-ctx.Done():
			return
		}
	}
}

// end waits until all output is written and gives the console back. It reports whether the run was attached.
func (a *attachment) end() (begun bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.begun || a.ended {
		a.ended = true
		return a.begun
	}
	a.ended = true
	a.copying.Wait()
	a.stop()
	a.passing.Wait()
	a.stdin.Close()
	a.restore()
	return true
}

// records writes the run's records.
func (a *attachment) records(_ context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	defer closeAll(files)
	if len(files) != 1 || a.user.Records == nil {
		return nil, nil, errors.New("no records were asked for")
	}
	_, err := io.Copy(a.user.Records, files[0])
	return None{}, nil, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
