package pattern

import (
	"cmp"
	"slices"
)

// words finds all occurrences of many strings in one pass, ignoring case: an Aho-Corasick automaton (Aho and Corasick,
// 1975) with a row for every state. Bytes that are in no string share a class. The states in which a string ends are
// last, so that one comparison identifies them. It never changes.
type words struct {
	class   [256]uint8
	width   uint32
	table   []uint32       // rows; a state is the offset of its row
	accept  uint32         // the first state in which strings end
	ends    [][]occurrence // by (state - accept) / width, the longest string first
	depth   []uint8        // by state / width: bytes of a string that have been read
	longest int            // bytes of the longest string
}

// occurrence is the meaning of a string's end.
type occurrence struct {
	factor int
	literal
}

type trieNode struct {
	next  map[byte]int
	fail  int
	depth int
	ends  []occurrence
}

func newWords(list []occurrence) *words {
	w := &words{width: 1}
	nodes := []trieNode{{next: map[byte]int{}}}
	for _, o := range list {
		at := 0
		for _, b := range []byte(o.text) {
			w.classify(b)
			k, ok := nodes[at].next[b]
			if !ok {
				k = len(nodes)
				nodes = append(nodes, trieNode{next: map[byte]int{}, depth: nodes[at].depth + 1})
				nodes[at].next[b] = k
			}
			at = k
		}
		nodes[at].ends = append(nodes[at].ends, o)
		w.longest = max(w.longest, len(o.text))
	}
	order := link(nodes)
	w.fill(nodes, order)
	return w
}

// classify gives a byte of a string a class, upper case that of lower case.
func (w *words) classify(b byte) {
	if w.class[b] != 0 {
		return
	}
	w.class[b] = uint8(w.width)
	if isLetter(b) {
		w.class[b-'a'+'A'] = uint8(w.width)
	}
	w.width++
}

// link sets fail of each node, adds the ends of its suffixes to its ends, and returns the nodes in breadth-first order.
func link(nodes []trieNode) []int {
	order := []int{0}
	for i := 0; i < len(order); i++ {
		u := order[i]
		for _, b := range sorted(nodes[u].next) {
			k := nodes[u].next[b]
			f := nodes[u].fail
			for u != 0 && f != 0 && !has(nodes[f].next, b) {
				f = nodes[f].fail
			}
			if t, ok := nodes[f].next[b]; ok && u != 0 {
				nodes[k].fail = t
			}
			nodes[k].ends = append(nodes[k].ends, nodes[nodes[k].fail].ends...)
			order = append(order, k)
		}
	}
	return order
}

func has(m map[byte]int, b byte) bool { _, ok := m[b]; return ok }

func sorted(m map[byte]int) []byte {
	keys := make([]byte, 0, len(m))
	for b := range m {
		keys = append(keys, b)
	}
	slices.Sort(keys)
	return keys
}

// fill writes the rows, states without ends first.
func (w *words) fill(nodes []trieNode, order []int) {
	place := make([]uint32, len(nodes))
	byEnds := slices.Clone(order)
	slices.SortStableFunc(byEnds, func(a, b int) int {
		return cmp.Compare(min(1, len(nodes[a].ends)), min(1, len(nodes[b].ends)))
	})
	w.depth = make([]uint8, len(nodes))
	for i, u := range byEnds {
		place[u] = uint32(i) * w.width
		w.depth[i] = uint8(min(255, nodes[u].depth))
		if len(nodes[u].ends) == 0 {
			w.accept = uint32(i+1) * w.width
		} else {
			w.ends = append(w.ends, nodes[u].ends)
		}
	}
	w.table = make([]uint32, uint32(len(nodes))*w.width)
	for _, u := range order {
		row := w.table[place[u]:][:w.width]
		if u != 0 {
			copy(row, w.table[place[nodes[u].fail]:][:w.width])
		}
		for b, k := range nodes[u].next {
			row[w.class[b]] = place[k]
		}
	}
}
