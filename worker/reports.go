package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/privsep"
)

// reports sends what a run reports to the privileged process. Commits, seals and counts are sent by a goroutine, so that the log does not
// wait for that process. Its methods are safe for concurrent use.
type reports struct {
	conn    *privsep.Conn
	account *account
	durable func() uint64 // the seq of the last durable record
	sends   sync.WaitGroup
	wake    chan struct{} // capacity 1: there is something to send, or closed is set

	mu      sync.Mutex // guards the fields below
	commits []committed
	values  int   // that were masked
	tokens  int64 // that were not charged yet
	seals   bool  // a segment was sealed
	notices []notify.Message
	closed  bool

	asking sync.Mutex // guards asked and full
	asked  time.Time
	full   error
}

func newReports(c *privsep.Conn, durable func() uint64) *reports {
	r := &reports{conn: c, durable: durable, wake: make(chan struct{}, 1)}
	r.account = &account{reports: r}
	r.sends.Go(r.send)
	return r
}

// maxPending bounds the commits that wait to be sent; later ones are added to the last one. maxMessages bounds messages; later ones are lost.
const (
	maxPending  = 256
	maxMessages = 1024
)

// add changes what is to be sent.
func (r *reports) add(change func()) {
	r.mu.Lock()
	change()
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// committed is wal.Options.OnCommit.
func (r *reports) committed(records, bytes int, took time.Duration) {
	r.add(func() {
		if n := len(r.commits); n >= maxPending {
			last := &r.commits[n-1]
			last.Records, last.Bytes, last.Took = last.Records+records, last.Bytes+bytes, max(last.Took, took)
			return
		}
		r.commits = append(r.commits, committed{Records: records, Bytes: bytes, Took: took})
	})
}

func (r *reports) sealed()      { r.add(func() { r.seals = true }) }
func (r *reports) masked(n int) { r.add(func() { r.values += n }) }

func (r *reports) charged(tokens int64) { r.add(func() { r.tokens += tokens }) }

// uncharged returns the tokens that were not charged yet, which the caller charges.
func (r *reports) uncharged() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	tokens := r.tokens
	r.tokens = 0
	return tokens
}

func (r *reports) message(m notify.Message) {
	r.add(func() {
		if len(r.notices) < maxMessages {
			r.notices = append(r.notices, m)
		}
	})
}

// send sends until close.
func (r *reports) send() {
	for range r.wake {
		r.mu.Lock()
		commits, values, seals, notices, closed := r.commits, r.values, r.seals, r.notices, r.closed
		r.commits, r.values, r.seals, r.notices = nil, 0, false, nil
		r.mu.Unlock()
		for _, c := range commits {
			c.Durable = r.durable()
			r.call(callCommitted, c, nil)
		}
		if values > 0 {
			r.call(callMasked, values, nil)
		}
		if seals {
			r.call(callSealed, none{}, nil)
		}
		if tokens := r.uncharged(); tokens > 0 {
			_ = r.account.settle(context.Background(), tokens) // fails only when the connection has ended, and with it this process
		}
		for _, m := range notices {
			r.call(callNotify, m, nil)
		}
		if closed {
			return
		}
	}
}

// close sends what is left.
func (r *reports) close() {
	r.add(func() { r.closed = true })
	r.sends.Wait()
}

// call makes a call. It fails only when the connection has ended, and with it this process.
func (r *reports) call(name string, args, result any) {
	_, _ = r.conn.Call(context.Background(), name, args, result)
}

// maxText bounds a text for the user in bytes.
const maxText = 8 << 10

func (r *reports) text(name, text string) { r.call(name, text[:min(len(text), maxText)], nil) }

func (r *reports) fault(name string, err error) { r.call(name, faultOf(err), nil) }

// problem reports an error that does not end the run.
func (r *reports) problem(err error) { r.fault(callProblem, err) }

// roomAge is how long an answer about room is used. The log asks before every commit.
const roomAge = 100 * time.Millisecond

// room is wal.Options.Room.
func (r *reports) room() error {
	r.asking.Lock()
	defer r.asking.Unlock()
	if time.Since(r.asked) < roomAge {
		return r.full
	}
	_, err := r.conn.Call(context.Background(), callRoom, none{}, nil)
	if e := new(privsep.RemoteError); errors.As(err, &e) {
		err = errors.New(e.Text)
	}
	r.asked, r.full = time.Now(), err
	return err
}

// posted sends the notification of an event, if it has one.
func (w *worker) posted(ev audit.Event, seq uint64) {
	if ev.VM != nil && ev.VM.Reason == stallReason {
		return // sent at the beginning of the stall, which is recorded at its end
	}
	if m, ok := notify.Of(ev, w.order.Settings.Run, seq); ok {
		w.reports.message(m)
	}
}
