package pool_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/pool"
)

// TestChaos: with random callers and faults of all parts, each caller gets an answer, no sandbox has two holders, and none is left.
func TestChaos(t *testing.T) {
	const callers = 200
	total := map[string]int{}
	for seed := range uint64(20) {
		change := func(w *world, opt *pool.Options) {
			opt.MaxIdle = func(string) int { return 10 }
			opt.Concurrent = 4
			opt.MaxWaiting = 50
			w.frail = func(b *box) { b.slow = time.Duration(rand.IntN(20)) * time.Millisecond }
		}
		run(t, change, func(t *testing.T, w *world, p *pool.Pool) {
			r := rand.New(rand.NewPCG(seed, 0))
			ctx, cancel := context.WithCancel(t.Context())
			var faults, all sync.WaitGroup
			faults.Go(func() { torment(ctx, w) })
			var answers atomic.Int64
			for range callers {
				key := shop()
				key.Project = fmt.Sprint(r.IntN(3))
				at, wait, patience := time.Duration(r.IntN(60_000))*time.Millisecond, time.Duration(r.IntN(8)-3)*time.Second, time.Duration(1+r.IntN(10))*time.Second
				crash := r.IntN(3) == 0
				all.Go(func() {
					time.Sleep(at)
					call(t, p, key, wait, patience, crash)
					answers.Add(1)
				})
			}
			all.Wait()
			cancel()
			faults.Wait()
			if n := answers.Load(); n != callers {
				t.Errorf("%d answers", n)
			}
			w.set(func() {
				w.broken = nil
				for _, b := range w.boxes {
					b.undying = nil
				}
				for what, n := range w.counts {
					total[what] += n
				}
			})
			pass(time.Minute) // the leases of crashed callers end
			if s := p.Stats(); s.Leased+s.Ending+s.Waiting != 0 {
				t.Errorf("seed %d: %+v", seed, s)
			}
		})
	}
	for _, what := range []string{"hit", "wait", "fail", "miss none_warm", "miss failing", "destroy used", "destroy expired", "destroy died", "destroy unhealthy"} {
		if total[what] == 0 {
			t.Errorf("no %s in %v", what, total)
		}
	}
}

// call acquires a sandbox, uses it, and releases it or forgets it.
func call(t *testing.T, p *pool.Pool, key pool.Key, wait, patience time.Duration, crash bool) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := p.Acquire(ctx, key, "test", pool.Wait(wait))
	var empty *pool.EmptyError
	switch {
	case err == nil:
		b := l.Sandbox().(*box)
		b.world.set(func() {
			if b.holders++; b.holders > 1 || b.key != key {
				t.Errorf("%d holders, key %+v", b.holders, b.key)
			}
		})
		time.Sleep(patience)
		if crash {
			return
		}
		if err := l.Release(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	case errors.As(err, &empty) || errors.Is(err, context.DeadlineExceeded):
	default:
		t.Error(err)
	}
}

// torment breaks parts of the world at random until ctx is done.
func torment(ctx context.Context, w *world) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond)
		if alive := w.alive(); len(alive) > 0 && rand.IntN(2) == 0 {
			alive[rand.IntN(len(alive))].die()
		}
		w.set(func() {
			w.broken = nil
			if rand.IntN(4) == 0 {
				w.broken = errors.New("no template")
			}
			for _, b := range w.boxes {
				b.undying = nil
				if rand.IntN(20) == 0 {
					b.undying = errors.New("busy")
				}
				if rand.IntN(20) == 0 {
					b.sick = errors.New("no answer")
				}
			}
		})
	}
	synctest.Wait()
}

// processes makes sandboxes that are processes.
type processes struct {
	mu  sync.Mutex // guards the field below
	all []*process
}

// process is a sandbox that is a process of cat.
type process struct {
	cmd     *exec.Cmd
	in      *os.File
	out     *os.File
	lines   *bufio.Reader
	done    chan struct{}
	holders atomic.Int32
}

func (m *processes) Make(ctx context.Context, _ pool.Key) (pool.Sandbox, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), in.Close())
	}
	cmd := exec.Command("cat")
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	err = errors.Join(cmd.Start(), theirIn.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	s := &process{cmd: cmd, in: in, out: out, lines: bufio.NewReader(out), done: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(s.done)
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, s)
	return s, nil
}

func (s *process) Done() <-chan struct{} { return s.done }

func (s *process) Memory() int64 { return mib }

func (s *process) Check(ctx context.Context) error {
	limit, _ := ctx.Deadline()
	if err := s.out.SetReadDeadline(limit); err != nil {
		return err
	}
	if _, err := s.in.WriteString("healthy\n"); err != nil {
		return err
	}
	line, err := s.lines.ReadString('\n')
	if err == nil && line != "healthy\n" {
		err = fmt.Errorf("it answers %q", line)
	}
	return err
}

func (s *process) Destroy(context.Context) error {
	s.cmd.Process.Kill() // fails if it is dead
	<-s.done
	s.in.Close()
	s.out.Close()
	return nil
}

// TestKilled: 200 callers acquire concurrently while processes are killed at random. Each caller gets an answer, no process has two
// holders, and none is left.
func TestKilled(t *testing.T) {
	const callers, rounds = 200, 4
	maker := &processes{}
	p, err := pool.New(t.Context(), pool.Options{Maker: maker, Available: func() (int64, error) { return 64 << 30, nil },
		MaxIdle: func(string) int { return 40 }, Concurrent: 4, TTL: 200 * time.Millisecond, CheckTime: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var killer, all sync.WaitGroup
	var killed int
	killer.Go(func() { killed = maker.kill(ctx) })
	var hits, misses atomic.Int64
	for round := range rounds {
		for i := range callers {
			all.Go(func() {
				l, err := p.Acquire(t.Context(), shop(), fmt.Sprint(i), pool.Wait(time.Duration(i%4)*5*time.Second))
				var empty *pool.EmptyError
				if err != nil {
					if misses.Add(1); !errors.As(err, &empty) {
						t.Error(err)
					}
					return
				}
				hits.Add(1)
				if l.Sandbox().(*process).holders.Add(1) > 1 {
					t.Error("a process has two holders")
				}
				if i%3 > 0 { // the others crash
					if err := errors.Join(ignore(l.Renew()), l.Release(t.Context())); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		t.Logf("round %d: %d hits, %d misses", round, hits.Load(), misses.Load())
	}
	cancel()
	killer.Wait()
	if err := p.Close(t.Context()); err != nil { // waits until the leases of crashed callers have ended
		t.Error(err)
	}
	for _, s := range maker.all {
		select {
		case <-s.done:
		default:
			t.Errorf("process %d is left", s.cmd.Process.Pid)
		}
	}
	if s := p.Stats(); s.Leased+s.Idle+s.Making+s.Ending+s.Waiting != 0 || hits.Load() == 0 || killed == 0 || hits.Load()+misses.Load() != callers*rounds {
		t.Errorf("%d hits, %d misses, %d were killed; left: %+v", hits.Load(), misses.Load(), killed, s)
	}
}

// ignore returns err, except that a lease can have expired on a busy host.
func ignore(err error) error {
	if errors.Is(err, pool.ErrEnded) {
		return nil
	}
	return err
}

// kill kills a random process that lives, again and again until ctx is done, and returns how many.
func (m *processes) kill(ctx context.Context) (n int) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
		m.mu.Lock()
		if len(m.all) > 0 {
			s := m.all[max(0, len(m.all)-1-rand.IntN(60))]
			if s.cmd.Process.Signal(syscall.SIGKILL) == nil {
				n++
			}
		}
		m.mu.Unlock()
	}
	return n
}
