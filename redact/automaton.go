package redact

import "slices"

// automaton is an Aho-Corasick automaton (Aho and Corasick, 1975) over folded
// text. Nodes near the root, where ordinary text stays, have a dense row with
// the next state for every class of bytes; the many deep ones are a chain of
// children and a link to where to go on when none fits. So the common step is
// one load, and a long private key in forty encodings does not cost a row of
// the table for each of its bytes. It never changes once built.
type automaton struct {
	class [256]uint8 // of a byte; bytes in no pattern share class other
	width uint32     // number of classes
	table []uint32   // dense rows, one after the other
	dense uint32     // len(table): states below are offsets of rows
	rows  uint32     // nodes that have a row
	nodes []node     // in breadth-first order, the root first
	ends  []ending

	left, right int // the largest of all patterns
}

// The classes that are not made for a byte of a pattern.
const (
	other uint8 = iota
	blank
	firstClass
)

// denseDepth is the depth down to which nodes get a row, and maxRows how many at most.
const (
	denseDepth = 2
	maxRows    = 1 << 13
)

type node struct {
	child, sibling uint32 // 0: none
	fail           uint32 // the longest proper suffix that is a node
	depth          uint32
	end            int32 // index into ends of the longest pattern that ends here, or -1
	class          uint8
	left           uint8 // the largest left of the patterns through here
}

// ending is a pattern as the scanner needs it.
type ending struct {
	symbols     int
	left, right int
	value       int
	shorter     int32 // the next shorter pattern that ends at the same place, or -1
}

// rule is a folded pattern and the value that it stands for.
type rule struct {
	pattern
	value int
}

func compile(rules []rule) *automaton {
	a := &automaton{}
	a.classes(rules)
	t := trie{class: &a.class, nodes: []node{{end: -1}}}
	for _, r := range rules {
		t.insert(r)
		a.left, a.right = max(a.left, r.left), max(a.right, r.right)
	}
	a.nodes, a.ends = t.ordered(), t.ends
	a.link()
	a.fill()
	return a
}

// classes gives each byte of a pattern a class, upper case that of lower case.
func (a *automaton) classes(rules []rule) {
	next := firstClass
	for _, r := range rules {
		for _, b := range r.text {
			if a.class[b] == other {
				a.class[b] = next
				next++
			}
		}
	}
	for b := range a.class {
		a.class[b] = a.class[lower(byte(b))]
		if isBlank(byte(b)) {
			a.class[b] = blank
		}
	}
	a.width = uint32(next)
}

// trie is the tree of patterns while it is made.
type trie struct {
	class *[256]uint8
	nodes []node
	ends  []ending
}

func (t *trie) insert(r rule) {
	at := uint32(0)
	for i, b := range r.text {
		at = t.down(at, t.class[b], uint32(i+1))
		t.nodes[at].left = max(t.nodes[at].left, uint8(r.left))
	}
	if e := t.nodes[at].end; e >= 0 { // the value that was added first keeps the pattern
		end := &t.ends[e]
		end.left, end.right = max(end.left, r.left), max(end.right, r.right)
		return
	}
	t.nodes[at].end = int32(len(t.ends))
	t.ends = append(t.ends, ending{len(r.text), r.left, r.right, r.value, -1})
}

func (t *trie) down(at uint32, c uint8, depth uint32) uint32 {
	for k := t.nodes[at].child; k != 0; k = t.nodes[k].sibling {
		if t.nodes[k].class == c {
			return k
		}
	}
	k := uint32(len(t.nodes))
	t.nodes = append(t.nodes, node{sibling: t.nodes[at].child, depth: depth, end: -1, class: c})
	t.nodes[at].child = k
	return k
}

// ordered returns the nodes in breadth-first order.
func (t *trie) ordered() []node {
	order := []uint32{0}
	place := make([]uint32, len(t.nodes))
	for i := 0; i < len(order); i++ {
		place[order[i]] = uint32(i)
		for k := t.nodes[order[i]].child; k != 0; k = t.nodes[k].sibling {
			order = append(order, k)
		}
	}
	out := make([]node, len(order))
	for i, k := range order {
		out[i] = t.nodes[k]
		out[i].child, out[i].sibling = place[out[i].child], place[out[i].sibling]
	}
	return out
}

// link sets fail and end of each node from those of shallower ones.
func (a *automaton) link() {
	for u := range a.nodes {
		for k := a.nodes[u].child; k != 0; k = a.nodes[k].sibling {
			n := &a.nodes[k]
			if u != 0 {
				n.fail = a.find(a.nodes[u].fail, n.class)
			}
			inherited := a.nodes[n.fail].end
			if n.end >= 0 {
				a.ends[n.end].shorter = inherited
			} else {
				n.end = inherited
			}
		}
	}
}

// find is the step from node u along class c through the links alone.
func (a *automaton) find(u uint32, c uint8) uint32 {
	for {
		for k := a.nodes[u].child; k != 0; k = a.nodes[k].sibling {
			if a.nodes[k].class == c {
				return k
			}
		}
		if u == 0 {
			return 0
		}
		u = a.nodes[u].fail
	}
}

// fill writes the rows: a child's state where there is one, else what the
// shallower fail node does, whose row is complete by then.
func (a *automaton) fill() {
	for int(a.rows) < min(len(a.nodes), maxRows) && a.nodes[a.rows].depth <= denseDepth {
		a.rows++
	}
	a.dense = a.rows * a.width
	a.table = make([]uint32, 0, a.dense)
	for u := range a.rows {
		n := &a.nodes[u]
		row := make([]uint32, a.width)
		if u != 0 {
			row = slices.Clone(a.table[n.fail*a.width:][:a.width])
		}
		for k := n.child; k != 0; k = a.nodes[k].sibling {
			row[a.nodes[k].class] = a.state(k)
		}
		row[blank] = u * a.width // a blank leaves the state as it is
		a.table = append(a.table, row...)
	}
}

// state returns the state that stands for node u, node does the reverse.
func (a *automaton) state(u uint32) uint32 {
	if u < a.rows {
		return u * a.width
	}
	return a.dense + u - a.rows
}

func (a *automaton) node(state uint32) uint32 {
	if state < a.dense {
		return state / a.width
	}
	return state - a.dense + a.rows
}

// climb is the step from a state without a row.
func (a *automaton) climb(state uint32, c uint8) uint32 {
	if c == blank {
		return state
	}
	u := a.node(state)
	for u >= a.rows {
		for k := a.nodes[u].child; k != 0; k = a.nodes[k].sibling {
			if a.nodes[k].class == c {
				return a.state(k)
			}
		}
		u = a.nodes[u].fail
	}
	return a.table[u*a.width+uint32(c)]
}

// span is a piece of text to be masked: a value's marker takes its place.
type span struct {
	start, end int
	value      int
}

// scan reads t[from:to] in the given state and adds what matches to spans. The
// bytes after to must suffice to decide how far a match extends to the right.
func scan[T text](a *automaton, state uint32, t T, from, to int, spans []span) (uint32, []span) {
	table, dense := a.table, a.dense
	for i := from; i < to; i++ {
		c := a.class[t[i]]
		if state < dense {
			state = table[state+uint32(c)]
		} else {
			state = a.climb(state, c)
		}
		if state >= dense && c != blank {
			if e := a.nodes[state-dense+a.rows].end; e >= 0 {
				spans = match(a, t, i+1, e, spans)
			}
		}
	}
	return state, spans
}

// match adds the patterns that end at end, the longest first, but those within
// which there are too many blanks in a row.
func match[T text](a *automaton, t T, end int, e int32, spans []span) []span {
	for ; e >= 0; e = a.ends[e].shorter {
		p := a.ends[e]
		if start, got := back(t, end, p.symbols); got == p.symbols {
			m := span{digitsBefore(t, start, p.left), digitsAfter(t, end, p.right), p.value}
			spans = push(spans, m)
		}
	}
	return spans
}

// push adds m to spans, which are disjoint and in order and remain so. What
// was there is swallowed where m covers it; where both cover a part, two spans
// of one value become one, and of two values the one that begins first keeps it.
func push(spans []span, m span) []span {
	for len(spans) > 0 {
		top := spans[len(spans)-1]
		if top.end <= m.start {
			break
		}
		if top.start < m.start && top.value != m.value {
			if top.end >= m.end {
				return spans
			}
			m.start = top.end
			break
		}
		if top.start < m.start {
			m.start = top.start
		}
		m.end = max(m.end, top.end)
		spans = spans[:len(spans)-1]
	}
	return append(spans, m)
}
