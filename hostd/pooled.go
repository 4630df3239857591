package hostd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/custody-project/custody/pool"
	"github.com/custody-project/custody/worker"
)

// Pooled takes sandboxes from a pool of warm ones, and has those made that the pool does not have. It is safe for concurrent use.
type Pooled struct {
	host *Host
	pool *pool.Pool
}

// settleTime is how long a run has the processors at most before the next sandbox is made. A short run takes less.
const settleTime = 300 * time.Millisecond

// leaseTime is the TTL of leases, and for how long a Server waits for an answer of the process that has a sandbox. The lease is renewed
// until the sandbox is closed.
const leaseTime = 30 * time.Second

// destroyTime bounds how long the end of a run waits for the removal of its sandbox.
const destroyTime = time.Minute

// PoolOptions configure a pool of warm sandboxes.
type PoolOptions struct {
	Idle      int                   // how many are kept for each project, at most
	Available func() (int64, error) // the memory that the host can give to them, in bytes; nil: that of /proc/meminfo
	Meters    Meters                // nil: none
	Log       *slog.Logger          // nil: none
}

// NewPooled returns sandboxes of h, of which idle ones are kept. The caller closes it.
func NewPooled(ctx context.Context, h *Host, o PoolOptions) (*Pooled, error) {
	p := &Pooled{host: h}
	opt := pool.Options{Maker: p, Available: o.Available, MaxIdle: func(string) int { return o.Idle }, TTL: leaseTime, Settle: settleTime, Log: o.Log}
	if opt.Available == nil {
		opt.Available = available
	}
	if o.Meters != nil {
		o.Meters.Pool(&opt, func() pool.Stats { return p.pool.Stats() })
	}
	var err error
	p.pool, err = pool.New(ctx, opt)
	return p, err
}

// Stats returns the numbers of the pool's sandboxes.
func (p *Pooled) Stats() pool.Stats { return p.pool.Stats() }

// available returns the memory that the host can give to new processes without swapping, in bytes: MemAvailable of proc(5).
func available() (int64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	info, err := fs.Meminfo()
	if err != nil {
		return 0, err
	}
	if info.MemAvailableBytes == nil {
		return 0, errors.New("/proc/meminfo has no MemAvailable")
	}
	return int64(min(*info.MemAvailableBytes, math.MaxInt64)), nil
}

// Close ends all sandboxes, those of runs after ctx is done.
func (p *Pooled) Close(ctx context.Context) error { return p.pool.Close(ctx) }

// Open implements Opener.
func (p *Pooled) Open(ctx context.Context, s Spec, e Events) (worker.Sandbox, Details, error) {
	if s.Cold || s.Resume != nil {
		return p.host.Open(ctx, s, e)
	}
	_, _, details, err := p.host.resolve(ctx, s, e)
	if err != nil {
		return nil, details, err
	}
	lease, err := p.pool.Acquire(ctx, keyOf(s, details), "run of "+s.Project)
	if empty := new(pool.EmptyError); errors.As(err, &empty) {
		return p.cold(ctx, s, e, err.Error()+": one is made for the run")
	}
	if err != nil {
		return nil, details, err
	}
	return lend(lease), details, nil
}

// cold makes a sandbox, and reports why it is not a warm one.
func (p *Pooled) cold(ctx context.Context, s Spec, e Events, why string) (worker.Sandbox, Details, error) {
	e.Progress(why)
	sandbox, details, err := p.host.Open(ctx, s, e)
	details.Cold = why
	return sandbox, details, err
}

// Reopen implements Opener.
func (p *Pooled) Reopen(ctx context.Context, run string) (worker.Sandbox, error) {
	return p.host.Reopen(ctx, run)
}

// keyOf returns the key of the sandboxes that can be used for s. It has all that Make needs.
func keyOf(s Spec, d Details) pool.Key {
	return pool.Key{
		Template: s.Template + "@" + d.TemplateDigest, Tier: d.Tier, Project: s.Project,
		Shape: pool.Shape{CPUs: s.CPUs, Memory: s.Memory, Disk: s.Disk, DiskRate: s.DiskRate, NetworkRate: s.NetworkRate, HashOver: s.HashOver},
	}
}

// Make implements pool.Maker.
func (p *Pooled) Make(ctx context.Context, k pool.Key) (pool.Sandbox, error) {
	name, digest, _ := strings.Cut(k.Template, "@") // which is not in a template's name
	s := Spec{
		Project: k.Project, Template: name, Tier: k.Tier, CPUs: k.Shape.CPUs, Memory: k.Shape.Memory, Disk: k.Shape.Disk,
		DiskRate: k.Shape.DiskRate, NetworkRate: k.Shape.NetworkRate, HashOver: k.Shape.HashOver,
	}
	silent := Events{Notice: func(string) {}, Progress: func(string) {}, Stalled: func(error) {}, Resumed: func() {}}
	sandbox, details, err := p.host.open(ctx, s, silent)
	if err != nil {
		return nil, err
	}
	if details.TemplateDigest != digest || details.Tier != k.Tier {
		return nil, errors.Join(fmt.Errorf("the template or the isolation has changed: %s, %s", details.TemplateDigest, details.Tier), sandbox.Close())
	}
	if err := sandbox.Warm(ctx); err != nil {
		return nil, errors.Join(err, sandbox.Close())
	}
	return &idle{sandbox, sandbox.Done()}, nil
}

// idle is a warm sandbox of the pool.
type idle struct {
	*Sandbox
	done <-chan struct{}
}

// Done implements pool.Sandbox.
func (i *idle) Done() <-chan struct{} { return i.done }

// Destroy implements pool.Sandbox.
func (i *idle) Destroy(context.Context) error { return i.Close() }

// leased is a sandbox of the pool that belongs to a run.
type leased struct {
	worker.Sandbox
	lease    *pool.Lease
	stop     context.CancelFunc
	renewing sync.WaitGroup
}

// lend renews a lease until its sandbox is closed.
func lend(l *pool.Lease) *leased {
	ctx, cancel := context.WithCancel(context.Background())
	s := &leased{Sandbox: l.Sandbox().(*idle), lease: l, stop: cancel}
	s.renewing.Go(func() {
		tick := time.NewTicker(leaseTime / 4)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if l.Renew() != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return s
}

// Close implements worker.Sandbox: a sandbox is used once.
func (s *leased) Close() error {
	s.stop()
	s.renewing.Wait()
	ctx, cancel := context.WithTimeoutCause(context.Background(), destroyTime, errors.New("the sandbox could not be removed yet: the pool tries again"))
	defer cancel()
	return s.lease.Release(ctx)
}
