package notify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/internal/endpoint"
)

// Bounds of a caller's wait and of memory.
const (
	buffered  = 256             // messages between a caller and a target
	closeWait = 5 * time.Second // how long Close waits for webhooks; the rest is delivered later
)

// Notifier takes the messages of one process. It is safe for concurrent use.
//
//	Send --> buffer of each target --> worker --> file, HTTP, wait, HTTP, ...   (webhook)
//	                                         '--> command                       (hook)
type Notifier struct {
	about   Message // the common fields of the process's messages
	targets []*target
	web     Web
	warn    func(string)
	wait    time.Duration
	stop    context.CancelFunc
	abort   context.CancelFunc
	working sync.WaitGroup
	mu      sync.Mutex // guards closed, and sends on buffers
	closed  bool
}

// Web carries the requests to webhooks.
type Web interface {
	To(s endpoint.Server) (http.RoundTripper, error)
	Close() error
}

// target is one webhook or hook with its buffer.
type target struct {
	name      string
	filter    Filter
	byDefault []string
	buffer    chan Message
	dropped   atomic.Uint64
	work      func(ctx, abort context.Context, t *target)
}

// Open starts the workers, which use the directory dir, and web, which Close closes. about has the host's name and the tenant. warn is called with
// warnings for the user; it must be safe for concurrent use.
func Open(ctx context.Context, dir string, c Config, web Web, about Message, warn func(string)) *Notifier {
	n := &Notifier{about: about, web: web, warn: warn, wait: closeWait}
	keep, abort := context.WithCancel(context.WithoutCancel(ctx))
	on, stop := context.WithCancel(keep)
	n.stop, n.abort = stop, abort
	for _, w := range c.Webhooks {
		d := &deliverer{webhook: w, web: web, queue: queue{filepath.Join(dir, w.Name)}, warn: warn}
		n.targets = append(n.targets, &target{name: w.Name, filter: w.Filter, byDefault: []string{Finding, Verify, Frozen}, work: d.work})
	}
	for _, h := range c.Hooks {
		q := queue{filepath.Join(dir, h.Name)}
		n.targets = append(n.targets, &target{name: h.Name, filter: h.Filter, byDefault: []string{End}, work: h.worker(q, warn)})
		n.wait = max(n.wait, hookWait(h))
	}
	for _, t := range n.targets {
		t.buffer = make(chan Message, buffered)
		n.working.Go(func() { t.work(on, keep, t) })
	}
	return n
}

// hookWait is how long Close waits for a command that was just started.
func hookWait(h Hook) time.Duration {
	d, err := h.limit()
	if err != nil {
		return 0
	}
	return d + 3*time.Second
}

// Send passes a message to the targets that select it, and does not block. If a buffer is
// full the message is dropped and counted.
func (n *Notifier) Send(m Message) {
	if n == nil {
		return
	}
	m.Host, m.Tenant, m.Project = n.about.Host, n.about.Tenant, n.about.Project
	if m.Run == "" {
		m.Run = n.about.Run
	}
	m = m.finish()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	for _, t := range n.targets {
		if !t.filter.takes(m, t.byDefault) {
			continue
		}
		select {
		case t.buffer <- m:
		default:
			t.dropped.Add(1)
		}
	}
}

// Close waits until the webhooks have all messages, for at most 5 s, and until the commands have ended, for at most the
// sum of their limit and 3 s. Messages that a webhook has not accepted stay for the next command.
func (n *Notifier) Close() {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.closed = true
	for _, t := range n.targets {
		close(t.buffer)
	}
	n.mu.Unlock()
	webhooks := time.AfterFunc(closeWait, n.stop)
	all := time.AfterFunc(n.wait, n.abort)
	n.working.Wait()
	webhooks.Stop()
	all.Stop()
	n.stop()
	n.abort()
	if err := n.web.Close(); err != nil {
		n.warn(fmt.Sprintf("notify: %v", err))
	}
}

// worker starts the command for each message in turn. Its context ends with the Notifier's last bound.
func (h Hook) worker(q queue, warn func(string)) func(context.Context, context.Context, *target) {
	return func(_, abort context.Context, t *target) {
		for m := range t.buffer {
			var err error
			if abort.Err() != nil {
				err = errors.New("not started: earlier commands used all the time")
			} else {
				err = h.run(abort, m)
			}
			if err != nil {
				warn(fmt.Sprintf("notify hook %s: %v", h.Name, err))
			}
			if noteErr := q.settle(err, t.dropped.Swap(0)); noteErr != nil {
				warn(fmt.Sprintf("notify hook %s: %v", h.Name, noteErr))
			}
		}
	}
}
