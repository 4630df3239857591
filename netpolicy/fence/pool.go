package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vishvananda/netns"
)

// Pool keeps unused fences ready. It belongs to one process.
type Pool struct {
	host    *space
	ready   chan *Fence // its capacity is the size of the pool
	stop    context.CancelFunc
	filling sync.WaitGroup
}

// NewPool returns a pool that keeps n fences ready. The calling thread's namespace is the host's for all of them.
func NewPool(n int) (*Pool, error) {
	if n < 1 {
		return nil, errors.New("a pool keeps at least one fence")
	}
	host, err := currentSpace()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Pool{host: host, ready: make(chan *Fence, n), stop: stop}
	p.filling.Go(func() { p.fill(ctx) })
	return p, nil
}

// fill makes fences until the pool is full. If that fails it retries after a pause; Take returns the error.
func (p *Pool) fill(ctx context.Context) {
	for ctx.Err() == nil {
		f, err := p.make(ctx)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		select {
		case p.ready <- f:
		case <-ctx.Done():
			_ = f.discard() // Close has no reader for the error
		}
	}
}

func (p *Pool) make(ctx context.Context) (*Fence, error) {
	host, err := p.host.dup()
	if err != nil {
		return nil, err
	}
	return build(ctx, host)
}

// Take returns a fence from the pool, or makes one if the pool is empty.
func (p *Pool) Take(ctx context.Context, o Options) (*Fence, error) {
	var f *Fence
	select {
	case f = <-p.ready:
	default:
		var err error
		if f, err = p.make(ctx); err != nil {
			return nil, err
		}
	}
	if err := f.begin(o); err != nil {
		return nil, errors.Join(err, f.discard())
	}
	return f, nil
}

// Close removes the unused fences. Take must not be called after it.
func (p *Pool) Close() error {
	p.stop()
	p.filling.Wait()
	var errs []error
	for {
		select {
		case f := <-p.ready:
			errs = append(errs, f.discard())
		default:
			return errors.Join(append(errs, p.host.close())...)
		}
	}
}

// discard removes a fence that was never used.
func (f *Fence) discard() error { return errors.Join(f.release(), f.namespace.Close()) }

// dup returns the same namespace with separate descriptors.
func (s *space) dup() (*space, error) {
	fd, err := unix.FcntlInt(uintptr(s.handle), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate the host's namespace: %w", err)
	}
	other := &space{handle: netns.NsHandle(fd)}
	return other, other.open()
}
