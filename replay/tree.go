package replay

import (
	"cmp"
	"slices"

	"github.com/custody-project/custody/audit"
)

// maxTree bounds the levels of processes; deeper ones are placed below their ancestor on the last.
const maxTree = 128

// tree links the running processes. One whose parent has ended, or is not
// known, hangs below its nearest running ancestor or stands at the top. Where
// parents form a circle, the latest of it stands at the top.
func (n *scene) tree() []*Process {
	nodes := n.processes()
	at := make([]int32, len(n.procs)) // by number of process: 1 + index in nodes
	for i := range nodes {
		at[nodes[i].number] = int32(i) + 1
	}
	above := n.ancestors(nodes, at)
	breakCircles(above)
	roots := []*Process{}
	for i, up := range shallow(above) {
		if up < 0 {
			roots = append(roots, nodes[i].p)
		} else {
			nodes[up].p.Children = append(nodes[up].p.Children, nodes[i].p)
		}
	}
	return roots
}

type node struct {
	p      *Process
	number int32
}

// processes returns those that run, in order of their begin.
func (n *scene) processes() []node {
	var nodes []node
	for number, r := range n.procs {
		if r.first == 0 {
			continue
		}
		first, m := &n.r.moments[r.first-1], &n.r.moments[r.latest-1]
		e := m.what.(*audit.Exec)
		nodes = append(nodes, node{&Process{Proc: e.Proc, PID: e.PID, Argv: e.Argv, Exe: e.Exe, Cwd: e.Cwd, UID: e.UID, Step: m.step,
			Start: first.time(), Seq: m.seq, LLM: e.LLM, Observer: m.observer}, int32(number)})
	}
	slices.SortFunc(nodes, func(a, b node) int {
		return cmp.Or(a.p.Start.Compare(b.p.Start), cmp.Compare(a.p.PID, b.p.PID), cmp.Compare(n.r.procs.numbers.names[a.number], n.r.procs.numbers.names[b.number]))
	})
	return nodes
}

// ancestors returns the index of each node's nearest running ancestor, -1 for
// none. Each process that has ended is visited once.
func (n *scene) ancestors(nodes []node, at []int32) []int32 {
	const unknown, none = 0, -1
	beyond := make([]int32, len(n.procs)) // of ended processes: 1 + index of the nearest running one above, or none
	above := make([]int32, len(nodes))
	var way []int32
	for i := range nodes {
		way = way[:0]
		found := int32(none)
		for up := n.r.procs.seen[nodes[i].number].parent; up >= 0; up = n.r.procs.seen[up].parent {
			if at[up] > 0 {
				found = at[up]
				break
			}
			if beyond[up] != unknown {
				found = beyond[up]
				break
			}
			beyond[up] = none // of a circle of ended processes nothing is known
			way = append(way, up)
		}
		for _, up := range way {
			beyond[up] = found
		}
		above[i] = found - 1
		if found == none || above[i] == int32(i) {
			above[i] = -1
		}
	}
	return above
}

// breakCircles has the last of each circle stand at the top.
func breakCircles(above []int32) {
	seen := make([]int32, len(above)) // 1 + the node from which it was reached first
	for i := range above {
		at := int32(i)
		for at >= 0 && seen[at] == 0 {
			seen[at] = int32(i) + 1
			at = above[at]
		}
		if at < 0 || seen[at] != int32(i)+1 {
			continue
		}
		last := at // on a circle
		for next := above[at]; next != at; next = above[next] {
			last = max(last, next)
		}
		above[last] = -1
	}
}

// shallow hangs what is deeper than maxTree below the last level.
func shallow(above []int32) []int32 {
	depth := make([]int32, len(above)) // 1 + level
	hung := make([]int32, len(above))
	var way []int32
	for i := range above {
		way = way[:0]
		for at := int32(i); at >= 0 && depth[at] == 0; at = above[at] {
			way = append(way, at)
		}
		for _, at := range slices.Backward(way) {
			up := above[at]
			if up >= 0 && depth[up] >= maxTree {
				up = hung[up]
			}
			hung[at], depth[at] = up, 1
			if up >= 0 {
				depth[at] = depth[up] + 1
			}
		}
	}
	return hung
}
