package replay

import (
	"fmt"

	"github.com/custody-project/custody/audit"
)

// numbers gives out one number to each different name.
type numbers[T comparable] struct {
	of    map[T]int32
	names []T
}

func newNumbers[T comparable]() numbers[T] { return numbers[T]{of: map[T]int32{}} }

func (n *numbers[T]) number(name T) (int32, bool) {
	if i, known := n.of[name]; known {
		return i, false
	}
	i := int32(len(n.names))
	n.of[name] = i
	n.names = append(n.names, name)
	return i, true
}

// processTable numbers a run's processes and keeps what is known of each, as far as the records were read.
type processTable struct {
	numbers numbers[string] // by proc id
	seen    []procSeen      // by number
}

func newProcessTable() processTable { return processTable{numbers: newNumbers[string]()} }

// procSeen is what is known of a process, as far as the records were read.
type procSeen struct {
	parent int32 // number, -1: none
	exec   int32 // place of its latest exec, -1: none
}

// exec takes in an exec: its process is a number of the table from then on.
func (t *processTable) exec(m *moment, place int32, e *audit.Exec) {
	uid := e.Proc
	if uid == "" { // cannot be distinguished from others, nor be ended; shown all the same
		uid = fmt.Sprintf("seq %d", m.seq)
	}
	m.x = t.number(uid)
	p := &t.seen[m.x]
	first := p.exec < 0
	p.exec = place
	if first && e.Parent != "" && e.Parent != uid {
		parent := t.number(e.Parent) // may move seen
		t.seen[m.x].parent = parent
	}
	m.by = t.above(m.x)
}

// above returns the place of the exec of the nearest ancestor that has one.
// Parents are claims and may form a circle.
func (t *processTable) above(proc int32) int32 {
	up := t.seen[proc].parent
	for range maxAbove {
		if up < 0 || up == proc {
			return -1
		}
		if at := t.seen[up].exec; at >= 0 {
			return at
		}
		up = t.seen[up].parent
	}
	return -1
}

// maxAbove bounds how far up an ancestor is looked for.
const maxAbove = 64

// number returns the number of a process by its proc id, a new one the first time.
func (t *processTable) number(uid string) int32 {
	n, fresh := t.numbers.number(uid)
	if fresh {
		t.seen = append(t.seen, procSeen{-1, -1})
	}
	return n
}

// actor returns the place of the exec of a process that a record names, or of the parent that it names.
func (t *processTable) actor(proc, parent string) (place int32, child bool) {
	if n, known := t.numbers.of[proc]; known && proc != "" && t.seen[n].exec >= 0 {
		return t.seen[n].exec, false
	}
	if n, known := t.numbers.of[parent]; known && parent != "" && t.seen[n].exec >= 0 {
		return t.seen[n].exec, true
	}
	return -1, false
}

// flowTable numbers the flows that the host saw.
type flowTable struct {
	numbers numbers[string] // by the flow's id
	opened  []int32         // by number: the place of its first record
}

func newFlowTable() flowTable { return flowTable{numbers: newNumbers[string]()} }

// number returns the number of a flow by its id, a new one for the first record of it, which is at place.
func (t *flowTable) number(id string, place int32) int32 {
	n, fresh := t.numbers.number(id)
	if fresh {
		t.opened = append(t.opened, place)
	}
	return n
}

// opening returns the place of a flow's first record.
func (t *flowTable) opening(id string) (place int32, known bool) {
	n, known := t.numbers.of[id]
	if !known || id == "" {
		return 0, false
	}
	return t.opened[n], true
}
