package sensor

import (
	"github.com/cilium/ebpf"

	"github.com/custody-project/custody/audit"
)

// lossEvery is the minimum interval of reported gaps, in nanoseconds, except at a Flush.
const lossEvery = uint64(1e9)

// What the loss counters in record.h count, in their order.
var lossKinds = [...]audit.Kind{audit.KindExec, audit.KindExit, audit.KindFile, audit.KindFlow}

// Causes of gaps.
const (
	causeRing    = "the kernel's ring was full"
	causeMissed  = "a program was preempted by itself"
	causeWatched = "the queue of closed files overflowed: some carry no hash"
)

// losses converts counters that only increase to gap events.
type losses struct {
	counters *ebpf.Map
	programs map[audit.Kind][]*ebpf.Program

	last      uint64
	ring      map[audit.Kind]uint64 // reported so far
	missed    map[audit.Kind]uint64
	overflows uint64
}

func newLosses(k *kernel) *losses {
	l := &losses{
		counters: k.coll.Maps["losses"],
		programs: make(map[audit.Kind][]*ebpf.Program),
		ring:     make(map[audit.Kind]uint64),
		missed:   make(map[audit.Kind]uint64),
	}
	for name, p := range k.coll.Programs {
		kind := lossOf(name)
		l.programs[kind] = append(l.programs[kind], p)
	}
	return l
}

// lossOf is the kind of event that a program's miss loses.
func lossOf(program string) audit.Kind {
	switch program {
	case "exec", "forked":
		return audit.KindExec
	case "exited":
		return audit.KindExit
	case "connected", "sent_inet", "sent_inet6":
		return audit.KindFlow
	}
	return audit.KindFile
}

// take returns the gaps since the last call, at most once a second unless flush.
func (l *losses) take(now uint64, overflow, flush bool) []audit.Gap {
	if overflow {
		l.overflows++
	}
	if !flush && now-l.last < lossEvery {
		return nil
	}
	l.last = now
	var gaps []audit.Gap
	for i, kind := range lossKinds {
		gaps = since(gaps, l.ring, kind, l.dropped(uint32(i)), audit.StageKernelRing, causeRing)
		gaps = since(gaps, l.missed, kind, l.misses(kind), audit.StageKernelRing, causeMissed)
	}
	if l.overflows > 0 {
		gaps = append(gaps, audit.Gap{Stage: audit.StageGuestQueue, What: string(audit.KindFile), Count: l.overflows, Cause: causeWatched})
		l.overflows = 0
	}
	return gaps
}

// since appends a gap for the increase of total.
func since(gaps []audit.Gap, reported map[audit.Kind]uint64, kind audit.Kind, total uint64, stage audit.Stage, cause string) []audit.Gap {
	if total <= reported[kind] {
		return gaps
	}
	n := total - reported[kind]
	reported[kind] = total
	return append(gaps, audit.Gap{Stage: stage, What: string(kind), Count: n, Cause: cause})
}

func (l *losses) dropped(index uint32) (total uint64) {
	var perCPU []uint64
	if err := l.counters.Lookup(index, &perCPU); err != nil {
		return 0
	}
	for _, n := range perCPU {
		total += n
	}
	return total
}

func (l *losses) misses(kind audit.Kind) (total uint64) {
	for _, p := range l.programs[kind] {
		if stats, err := p.Stats(); err == nil {
			total += stats.RecursionMisses
		}
	}
	return total
}
