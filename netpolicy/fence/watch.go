package fence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/custody-project/custody/audit"
)

const (
	eventOpen = 1 + iota
	eventClose
	eventDeny
)

const sweepEvery = time.Second

// watcher reports events in order. Only one goroutine uses it.
//
//	ring ------------ open, close (replaced), deny --+
//	table, each 1 s - open (ring was full), close ---+--> Observed
//	Enforce --------- revoke ------------------------+
type watcher struct {
	f        *Fence
	ring     *ringbuf.Reader
	open     map[Key]Flow    // reported as open
	reported [reasons]uint64 // reported denials
	lost     uint64          // records of the ring buffer that were found missing
	gap      uint64          // of those, the number to report with the next event
}

// watch runs until ctx ends, and then reports the end of all flows.
func (w *watcher) watch(ctx context.Context) {
	defer w.ring.Close()
	next := time.Now().Add(sweepEvery)
	var rec ringbuf.Record
	for ctx.Err() == nil {
		if !time.Now().Before(next) {
			next = time.Now().Add(sweepEvery)
			w.tick(true)
			continue
		}
		w.ring.SetDeadline(next)
		switch err := w.ring.ReadInto(&rec); {
		case err == nil:
			w.take(rec.RawSample)
		case errors.Is(err, ringbuf.ErrFlushed):
			w.tick(false)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			w.f.mu.Lock()
			w.f.failed(fmt.Errorf("read the programs' events, nothing passes now: %w", err))
			w.f.seal() // traffic could not be observed
			w.f.mu.Unlock()
			return
		}
	}
	w.tick(true)
	w.closeAll()
}

// tick reports pending events. It reads totals and ends before it empties the ring buffer, so that the ring buffer's
// events on them are reported first.
func (w *watcher) tick(sweep bool) {
	f := w.f
	var live []Flow
	f.mu.Lock()
	if sweep {
		var err, err2 error
		if f.direct.connected {
			err = f.direct.keep(f.direct.named) // the host's addresses may have changed
		}
		if _, live, err2 = f.ledger.review(now()); err != nil || err2 != nil {
			f.failed(errors.Join(err, err2))
		}
	}
	pending := f.ledger.takePending()
	totals, err := f.filters.maps.totals()
	lost, err2 := f.filters.maps.lostRecords()
	f.mu.Unlock()
	if err = errors.Join(err, err2); err != nil {
		f.failed(err)
	}
	w.drain()
	w.gap += lost - w.lost
	w.lost = lost
	for _, ev := range pending {
		w.end(ev)
	}
	for _, flow := range live {
		w.begin(flow)
	}
	if sweep {
		w.missing(live)
	}
	for why, total := range totals {
		if n := w.account(why, total); n > 0 {
			w.report(Event{State: audit.FlowDeny, Reason: reasonText[why], Count: n})
		}
	}
}

func (w *watcher) drain() {
	if w.ring.Flush() != nil {
		return
	}
	var rec ringbuf.Record
	for w.ring.ReadInto(&rec) == nil {
		w.take(rec.RawSample)
	}
}

// missing reports the end of flows that were replaced while the ring buffer was full.
func (w *watcher) missing(live []Flow) {
	if len(w.open) == len(live) {
		return
	}
	there := make(map[Key]uint64, len(live))
	for _, l := range live {
		there[l.Key] = l.began
	}
	for k, flow := range w.open {
		if there[k] != flow.began && !w.f.ledger.lives(k, flow.began) {
			w.end(Event{State: audit.FlowClose, Flow: flow, Reason: "the record of its end was lost"})
		}
	}
}

func (w *watcher) report(ev Event) {
	ev.Lost, w.gap = w.gap, 0
	if ev.Time.IsZero() {
		ev.Time = time.Now().UTC()
	}
	w.f.observed(ev)
}

// begin reports once that a flow is open.
func (w *watcher) begin(flow Flow) {
	if old, ok := w.open[flow.Key]; ok && old.began == flow.began {
		return
	}
	w.open[flow.Key] = flow
	w.report(Event{State: audit.FlowOpen, Flow: flow, Time: flow.Began})
}

// end reports a flow's end, and first its beginning if that record was lost.
func (w *watcher) end(ev Event) {
	w.begin(ev.Flow)
	delete(w.open, ev.Flow.Key)
	w.report(ev)
}

// account returns how many of the denials up to a total have not been reported.
func (w *watcher) account(why int, total uint64) uint64 {
	if total <= w.reported[why] {
		return 0
	}
	n := total - w.reported[why]
	w.reported[why] = total
	return n
}

func (w *watcher) take(sample []byte) {
	if len(sample) < int(unsafe.Sizeof(programsEvent{})) {
		return
	}
	e := *(*programsEvent)(unsafe.Pointer(&sample[0])) // written by the programs, 8-byte aligned
	if e.Kind == eventDeny {
		w.deny(&e)
		return
	}
	w.f.mu.Lock()
	flow := w.f.ledger.flow(e.Key, &e.Flow)
	over := w.f.ledger.hasEnded(flow)
	if !over && e.Kind == eventClose {
		w.f.ledger.ended.Add(flow.Key, flow)
	}
	w.f.mu.Unlock()
	switch {
	case over: // its end has been reported or is pending
	case e.Kind == eventOpen:
		w.begin(flow)
	case e.Flow.State&stateRevoked != 0: // before the review reported it
		w.end(Event{State: audit.FlowRevoke, Flow: flow, Reason: reasonText[revoked], Time: w.f.ledger.time(e.Time)})
	default:
		w.end(Event{State: audit.FlowClose, Flow: flow, Time: w.f.ledger.time(e.Time)})
	}
}

// deny reports a denied packet, and answers the guest so that its program fails immediately instead of waiting.
func (w *watcher) deny(e *programsEvent) {
	why := int(e.Reason)
	if why >= reasons {
		return
	}
	ev := Event{
		State: audit.FlowDeny, Reason: reasonText[why], Inbound: e.Inbound != 0, Time: w.f.ledger.time(e.Time), Count: w.account(why, e.Total),
	}
	w.f.mu.Lock()
	ev.Flow = Flow{Key: keyOf(e.Key), Generation: w.f.generation}
	w.f.permits.explain(&ev, why)
	w.f.mu.Unlock()
	quote := e.Quote[:min(int(e.Size), len(e.Quote))]
	if !ev.Inbound {
		w.f.inject.answer(why, quote)
	}
	w.report(ev)
}

// closeAll reports the end of the remaining flows.
func (w *watcher) closeAll() {
	f := w.f
	f.mu.Lock()
	var left []ending
	err := f.ledger.each(func(k programsFlowKey, v *programsFlow) {
		if d, ok := f.ledger.dying[k]; !ok || d.began != v.Began {
			left = append(left, ending{k, *v, audit.FlowClose})
		}
	})
	for _, e := range left {
		err = errors.Join(err, f.ledger.end(&e, now()))
	}
	pending := f.ledger.takePending()
	if err != nil {
		f.failed(err)
	}
	f.mu.Unlock()
	for _, ev := range pending {
		w.end(ev)
	}
}
