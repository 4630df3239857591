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

// Pool keeps fences ready that no one has used before. It belongs to one process.
type Pool struct {
	site    *space
	ready   chan *Fence // as many as are kept
	stop    context.CancelFunc
	filling sync.WaitGroup
}

// NewPool keeps n fences ready from now on. The namespace of the calling thread is
// the site of them all.
func NewPool(n int) (*Pool, error) {
	if n < 1 {
		return nil, errors.New("a pool keeps at least one fence")
	}
	site, err := currentSpace()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Pool{site: site, ready: make(chan *Fence, n), stop: stop}
	p.filling.Go(func() { p.fill(ctx) })
	return p, nil
}

// fill makes fences until the pool is full. If one cannot be made it tries again after a while; Take returns the error.
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
			_ = f.discard() // Close has nothing to say of a fence that no one saw
		}
	}
}

func (p *Pool) make(ctx context.Context) (*Fence, error) {
	site, err := p.site.again()
	if err != nil {
		return nil, err
	}
	f, err := build(ctx, site)
	if err != nil {
		return nil, errors.Join(err, site.close())
	}
	return f, nil
}

// Take returns a fence that is ready; if there is none it makes one.
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

// Close removes the fences that no one took. Take must not be called any more.
func (p *Pool) Close() error {
	p.stop()
	p.filling.Wait()
	var errs []error
	for {
		select {
		case f := <-p.ready:
			errs = append(errs, f.discard())
		default:
			return errors.Join(append(errs, p.site.close())...)
		}
	}
}

// discard removes a fence that never began.
func (f *Fence) discard() error { return errors.Join(f.release(), f.site.close()) }

// again is the same namespace, held by descriptors of its own.
func (s *space) again() (*space, error) {
	fd, err := unix.FcntlInt(uintptr(s.handle), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hold the site's namespace: %w", err)
	}
	other := &space{handle: netns.NsHandle(fd)}
	return other, other.open()
}
