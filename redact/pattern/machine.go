package pattern

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// machine is a regular expression that is matched from a fixed position on, byte by byte, to find whether it can match
// and when it no longer can. It never changes; its automaton is in a cache.
//
// Runes beyond ASCII are not distinguished, and a byte that continues one may or may not count as a separate rune, as in
// invalid UTF-8. So a machine can accept text that the expression does not match, but not reject a match.
type machine struct {
	prog  *syntax.Prog
	lazy  bool // it has unbounded lazy repetitions
	class [256]uint8
	width int32  // number of classes, plus one for the end of the text
	bytes []byte // one byte of each class
}

func newMachine(list []*syntax.Regexp) (*machine, error) {
	prog, err := syntax.Compile(concat(list).Simplify())
	if err != nil {
		return nil, err
	}
	m := &machine{prog: prog, lazy: slices.ContainsFunc(list, isLazy)}
	m.classes()
	return m, nil
}

func isLazy(re *syntax.Regexp) bool {
	if re.Flags&syntax.NonGreedy != 0 && re.Op != syntax.OpQuest && widthOf(re) >= endless {
		return true
	}
	return slices.ContainsFunc(re.Sub, isLazy)
}

// classes splits the bytes into ranges that no instruction distinguishes.
func (m *machine) classes() {
	var cut [257]bool
	edge := func(lo, hi rune) {
		if lo < utf8.RuneSelf {
			cut[lo], cut[min(hi, utf8.RuneSelf-1)+1] = true, true
		}
	}
	for _, r := range []rune{'\n', '_'} {
		edge(r, r)
	}
	edge('0', '9')
	edge('A', 'Z')
	edge('a', 'z')
	cut[0x80], cut[0xc0] = true, true
	for i := range m.prog.Inst {
		in := &m.prog.Inst[i]
		if in.Op != syntax.InstRune && in.Op != syntax.InstRune1 {
			continue
		}
		if len(in.Rune) == 1 {
			for r, n := in.Rune[0], 0; n < 4; r, n = unicode.SimpleFold(r), n+1 {
				edge(r, r)
			}
		}
		for j := 0; j+1 < len(in.Rune); j += 2 {
			edge(in.Rune[j], in.Rune[j+1])
		}
	}
	for b := range m.class {
		if b == 0 || cut[b] {
			m.bytes = append(m.bytes, byte(b))
		}
		m.class[b] = uint8(len(m.bytes) - 1)
	}
	m.width = int32(len(m.bytes)) + 1
}

// matches reports whether in can match a rune that begins with b.
func matches(in *syntax.Inst, b byte) bool {
	switch in.Op {
	case syntax.InstRuneAny:
		return true
	case syntax.InstRuneAnyNotNL:
		return b != '\n'
	case syntax.InstRune, syntax.InstRune1:
		if b < utf8.RuneSelf {
			return in.MatchRune(rune(b))
		}
		r := in.Rune[len(in.Rune)-1]
		return r >= utf8.RuneSelf || len(in.Rune) == 1 && syntax.Flags(in.Arg)&syntax.FoldCase != 0
	}
	return false
}

// The kind of character before a machine's position, for assertions.
const (
	nothing = iota
	word
	newline
	otherwise
	kinds
)

var runeOf = [kinds]rune{-1, 'a', '\n', ' '}

func kindOf(b byte) int {
	switch {
	case isWord(b):
		return word
	case b == '\n':
		return newline
	}
	return otherwise
}

// maxStates bounds a cache; a full cache is emptied.
const maxStates = 2048

// A state of a cache is the offset of its row; from state 0 nothing matches. An edge is the next state times two, plus
// one if the expression matched before the byte. unknown edges have not been computed yet.
type state = int32

const (
	dead    state = 0
	unknown state = -1
)

// cache is the automaton of a machine, as far as it has been needed: the lazy subset construction (as in RE2). It is not
// safe for concurrent use.
//
// For an expression with lazy repetitions the threads are in order of preference, and those after one that has matched
// are dropped: the expression would not use them, and is not followed beyond its match. This applies only to ASCII,
// where a match is certain, and to one start; a blurred position has no order.
type cache struct {
	*machine
	back   bool // read backwards: the position of a match is needed, and not only its existence
	taken  *int
	edges  []int32
	nodes  []position // by state / width
	states map[string]state
	start  [kinds]state // 0: not made yet

	seen    []uint32 // by instruction: the round in which it was last reached
	round   uint32
	stack   []uint32
	out     []uint32
	scratch []uint32
	key     []byte
}

// position is a set of states of a machine: at any of these instructions, after kind.
type position struct {
	at      []uint32
	kind    int
	blurred bool
	covers  int8 // whether at contains the start of the expression: 0 unknown, 1 yes, -1 no
}

// newCache returns an empty cache that adds its growth to taken, in bytes.
func newCache(m *machine, back bool, taken *int) *cache {
	c := &cache{machine: m, back: back, taken: taken, seen: make([]uint32, len(m.prog.Inst))}
	c.reset()
	return c
}

func (c *cache) reset() {
	c.states = map[string]state{}
	c.nodes = append(c.nodes[:0], position{})
	c.edges = c.edges[:0]
	for range c.width {
		c.edges = append(c.edges, int32(dead))
	}
	c.start = [kinds]state{}
}

// begin returns the initial state.
func (c *cache) begin(kind int) state {
	if c.start[kind] == dead {
		c.start[kind] = c.intern([]uint32{uint32(c.prog.Start)}, kind, c.back || !c.lazy)
	}
	return c.start[kind]
}

// blur returns the state for the instructions of s without order.
func (c *cache) blur(s state) state {
	p := &c.nodes[s/c.width]
	if p.blurred {
		return s
	}
	return c.intern(slices.Clone(p.at), p.kind, true)
}

// intern returns the state for the instructions in at, which it may reorder.
func (c *cache) intern(at []uint32, kind int, blurred bool) state {
	if len(at) == 0 {
		return dead
	}
	if blurred {
		slices.Sort(at)
		at = slices.Compact(at)
		kind += kinds
	}
	c.key = append(c.key[:0], byte(kind))
	for _, pc := range at {
		c.key = binary.AppendUvarint(c.key, uint64(pc))
	}
	if s, ok := c.states[string(c.key)]; ok {
		return s
	}
	s := state(len(c.edges))
	c.states[string(c.key)] = s
	c.nodes = append(c.nodes, position{at: slices.Clone(at), kind: kind % kinds, blurred: blurred})
	for range c.width {
		c.edges = append(c.edges, unknown)
	}
	*c.taken += 4*int(c.width) + 8*len(at) + 128
	return s
}

// take computes an unknown edge. If the cache is full it is emptied first, which invalidates the caller's states except
// for the returned one.
func (c *cache) take(s state, class int32) (edge int32) {
	if len(c.nodes) >= maxStates {
		p := c.nodes[s/c.width]
		c.reset()
		s = c.intern(p.at, p.kind, p.blurred)
	}
	p := c.nodes[s/c.width]
	next, kind, b := rune(-1), nothing, byte(0)
	if int(class) < len(c.bytes) {
		b = c.bytes[class]
		kind = kindOf(b)
		next = runeOf[kind]
	}
	var in reached
	c.out, in = c.follow(c.out[:0], p.at, p.blurred, syntax.EmptyOpContext(runeOf[p.kind], next))
	at := c.advance(c.out, b, kind != nothing)
	blurred := p.blurred || b >= utf8.RuneSelf
	if b >= 0x80 && b < 0xc0 {
		at = append(at, p.at...)
	}
	matched := in.matched
	if !c.back {
		// A certain and complete match ends the run here.
		_, then := c.follow(nil, at, blurred, 0)
		matched = matched || then.matched
		if then.matched && !then.more && b < utf8.RuneSelf { // otherwise the rest of the rune is missing
			at = nil
		}
	}
	edge = c.intern(at, kind, blurred) << 1
	if matched {
		edge |= 1
	}
	c.edges[s+class] = edge
	return edge
}

// reached is the result of follow: a match, and before it, or anywhere if there is no order, instructions that may still
// match.
type reached struct{ matched, more bool }

// follow adds to dst the instructions that read a rune next, if flags apply.
func (c *cache) follow(dst, at []uint32, blurred bool, flags syntax.EmptyOp) ([]uint32, reached) {
	var r reached
	c.round++
	c.stack = c.stack[:0]
	for i := len(at) - 1; i >= 0; i-- {
		c.stack = append(c.stack, at[i])
	}
	for len(c.stack) > 0 {
		pc := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		if c.seen[pc] == c.round {
			continue
		}
		c.seen[pc] = c.round
		switch in := &c.prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			c.stack = append(c.stack, in.Arg, in.Out)
		case syntax.InstCapture, syntax.InstNop:
			c.stack = append(c.stack, in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^flags == 0 {
				c.stack = append(c.stack, in.Out)
			} else {
				r.more = true
			}
		case syntax.InstMatch:
			r.matched = true
			if !blurred {
				return dst, r
			}
		case syntax.InstFail:
		default:
			r.more = true
			dst = append(dst, pc)
		}
	}
	return dst, r
}

// advance returns the instructions after reading b.
func (c *cache) advance(at []uint32, b byte, read bool) []uint32 {
	c.scratch = c.scratch[:0]
	if !read {
		return c.scratch
	}
	c.round++
	for _, pc := range at {
		in := &c.prog.Inst[pc]
		if c.seen[in.Out] != c.round && matches(in, b) {
			c.seen[in.Out] = c.round
			c.scratch = append(c.scratch, in.Out)
		}
	}
	return c.scratch
}

// atEnd reports whether the expression matches in s at the end of the text.
func (c *cache) atEnd(s state) bool {
	edge := c.edges[s+c.width-1]
	if edge < 0 {
		edge = c.take(s, c.width-1)
	}
	return edge&1 != 0
}

// covered reports whether all text that matches when a match begins here also matches when the machine is in s and
// blurred.
func (c *cache) covered(s state) bool {
	p := &c.nodes[s/c.width]
	if p.covers == 0 {
		p.covers = -1
		if c.holdsStart(p) {
			p.covers = 1
		}
	}
	return p.covers > 0
}

// holdsStart compares the next instructions, for each way in which the text may continue.
func (c *cache) holdsStart(p *position) bool {
	for _, next := range runeOf {
		flags := syntax.EmptyOpContext(runeOf[p.kind], next)
		have, a := c.follow(nil, p.at, true, flags)
		slices.Sort(have)
		want, b := c.follow(nil, []uint32{uint32(c.prog.Start)}, true, flags)
		for _, pc := range want {
			if _, ok := slices.BinarySearch(have, pc); !ok {
				return false
			}
		}
		if b.matched && !a.matched {
			return false
		}
	}
	return true
}
