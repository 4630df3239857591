package fence

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// How long an idle flow is kept.
const (
	idleUDP      = 60 * time.Second
	idleTCP      = 3 * time.Hour // longer than keepalive's default of 2 h
	idleOpening  = 30 * time.Second
	idleQuestion = 15 * time.Second // to the resolver
	idleAnswer   = 2 * time.Second  // from it
	lingerOver   = 3 * time.Second  // after FIN from both or RST: for packets in transit
	lingerRevoke = 5 * time.Second  // for the gateway's own resets
)

// maxHistory bounds the ended flows that are kept.
const maxHistory = 8192

// ledger accounts for the flows in the programs' table: it removes those that have ended, and keeps their last counters.
// It is guarded by its fence's mu, except for epoch.
type ledger struct {
	maps    *programs
	permits *permitTable
	epoch   time.Time // the wall clock time at which CLOCK_MONOTONIC was 0, measured by newLedger
	ended   *simplelru.LRU[Key, Flow]
	dying   map[programsFlowKey]dying
	pending []Event // for the watcher to report
	swept   instant // when permits were last swept
}

func newLedger(maps *programs, b *permitTable) *ledger {
	l := &ledger{maps: maps, permits: b, dying: map[programsFlowKey]dying{}, epoch: time.Now().Add(-time.Duration(now())).UTC().Round(0)}
	l.ended, _ = simplelru.NewLRU[Key, Flow](maxHistory, nil) // fails only for sizes below 1
	return l
}

// takePending removes the events to report from pending, and returns them.
func (l *ledger) takePending() []Event {
	pending := l.pending
	l.pending = nil
	return pending
}

// hasEnded reports whether exactly this flow has ended, not an earlier one with the same key.
func (l *ledger) hasEnded(flow Flow) bool {
	old, ok := l.ended.Peek(flow.Key)
	return ok && old.began == flow.began
}

func (l *ledger) flow(k programsFlowKey, v *programsFlow) Flow {
	flow := Flow{
		Key: keyOf(k), Generation: v.Generation, began: v.Began,
		Began: l.time(v.Began), Last: l.time(max(v.Last, v.Began)),
		BytesOut: v.BytesOut, BytesIn: v.BytesIn, PacketsOut: v.PacketsOut, PacketsIn: v.PacketsIn,
	}
	if p := l.permits.byID[v.Permit]; p != nil {
		flow.Permit = p.Permit
	}
	flow.Port = flow.Key.port()
	return flow
}

// time converts an instant to wall clock time, by the clock when the fence was made.
func (l *ledger) time(t uint64) time.Time { return l.epoch.Add(time.Duration(t)) }

// each calls do for every flow in the programs' table.
func (l *ledger) each(do func(programsFlowKey, *programsFlow)) error {
	const size = 1024
	keys, values := make([]programsFlowKey, size), make([]programsFlow, size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := l.maps.Flows.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			do(keys[i], &values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the flows: %w", err)
		}
	}
}

// ending is a flow that must be removed.
type ending struct {
	key   programsFlowKey
	value programsFlow
	how   audit.FlowState
}

// dying is a revoked flow of the gateway, which is kept until its resets are sent.
type dying struct {
	began uint64
	until instant
}

// review checks every flow. It removes flows that the policy does not allow, that have ended or are idle, adds their
// events to pending, and returns those that the policy ended and those that are open. The caller holds the fence's mu.
func (l *ledger) review(t instant) (ended []ending, live []Flow, err error) {
	inUse := map[uint32]bool{}
	var ends []ending
	err = l.each(func(k programsFlowKey, v *programsFlow) {
		inUse[v.Permit] = true
		switch {
		case !l.permits.holds(keyOf(k), v):
			ends = append(ends, ending{k, *v, audit.FlowRevoke})
		case t > instant(v.Last)+patience(k, v, v.Permit == resolverID):
			ends = append(ends, ending{k, *v, audit.FlowClose})
		case v.Permit != resolverID:
			live = append(live, l.flow(k, v))
		}
	})
	for _, e := range ends {
		if e.how == audit.FlowRevoke && l.dies(e, t) {
			continue
		}
		if err := l.end(&e, t); err != nil {
			return ended, live, err
		}
		if e.how == audit.FlowRevoke {
			ended = append(ended, e)
		}
	}
	if t > l.swept+instant(10*time.Second) {
		l.swept = t
		err = errors.Join(err, l.permits.sweep(inUse))
	}
	return ended, live, err
}

// patience returns how long a flow may be idle.
func patience(k programsFlowKey, v *programsFlow, question bool) instant {
	answered := v.State&stateAnswered != 0
	over := v.State&stateReset != 0 || v.State&(stateFinIn|stateFinOut) == stateFinIn|stateFinOut
	switch {
	case over:
		return instant(lingerOver)
	case k.Proto == protoUDP && question && answered:
		return instant(idleAnswer)
	case k.Proto == protoUDP && question:
		return instant(idleQuestion)
	case k.Proto == protoUDP:
		return instant(idleUDP)
	case !answered:
		return instant(idleOpening)
	}
	return instant(idleTCP)
}

// dies reports whether the end of a revoked flow was reported, and removes it after lingerRevoke.
func (l *ledger) dies(e ending, t instant) bool {
	d, ok := l.dying[e.key]
	if !ok || d.began != e.value.Began {
		return false
	}
	if t > d.until {
		delete(l.dying, e.key)
		_ = l.maps.Flows.Delete(e.key) // the guest may have begun another flow with this key
	}
	return true
}

// end removes a flow from the table, with its last counters. A revoked flow of the gateway stays for the gateway's
// resets: the programs drop all its other packets.
func (l *ledger) end(e *ending, t instant) error {
	if e.how == audit.FlowRevoke && l.viaGateway(e.value.Permit) {
		l.dying[e.key] = dying{e.value.Began, t + instant(lingerRevoke)}
		err := l.maps.Flows.Lookup(e.key, &e.value)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read an ending flow: %w", err)
		}
	} else if err := l.maps.Flows.LookupAndDelete(e.key, &e.value); errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil // the guest has begun another flow with this key: the ring buffer has the event
	} else if err != nil {
		return fmt.Errorf("end a flow: %w", err)
	}
	if e.value.Permit == resolverID {
		l.ended.Add(keyOf(e.key), l.flow(e.key, &e.value))
		return nil
	}
	l.conclude(e.how, l.flow(e.key, &e.value))
	return nil
}

func (l *ledger) viaGateway(id uint32) bool {
	p := l.permits.byID[id]
	return p != nil && p.Via == netpolicy.Gateway
}

// conclude adds a flow's end to pending and to the history.
func (l *ledger) conclude(how audit.FlowState, flow Flow) {
	ev := Event{State: how, Flow: flow, Time: time.Now().UTC()}
	if how == audit.FlowRevoke {
		ev.Reason = reasonText[revoked]
	}
	l.ended.Add(flow.Key, flow)
	l.pending = append(l.pending, ev)
}

// lives reports whether the programs' table still has exactly this flow.
func (l *ledger) lives(k Key, began uint64) bool {
	var v programsFlow
	return l.maps.Flows.Lookup(k.raw(), &v) == nil && v.Began == began
}
