package pattern

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// machine is a regular expression that is matched from a fixed place on, byte
// by byte, to learn whether it can match and when it no longer can. It never
// changes; the automaton that comes out of it is in a cache.
//
// Runes beyond ASCII are treated alike, and a byte that continues one may or may
// not count as a rune of its own, as it does in text that is no UTF-8. So a
// machine can take for a match what is none, but not the reverse.
type machine struct {
	prog  *syntax.Prog
	class [256]uint8
	width int32  // classes, and one more for the end of the text
	bytes []byte // one of each class
}

func newMachine(list []*syntax.Regexp) (*machine, error) {
	prog, err := syntax.Compile(concat(list).Simplify())
	if err != nil {
		return nil, err
	}
	m := &machine{prog: prog}
	m.classes()
	return m, nil
}

// classes cuts the bytes into ranges that no instruction tells apart.
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

// What stood before the place where a machine is, as far as assertions ask.
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

// maxStates bounds a cache, which is emptied when it has that many.
const maxStates = 4096

// A state of a cache is the offset of its row, 0 the one from which nothing
// matches. An edge is the next state times two, plus one if the expression
// matched before the byte that was read. unknown edges have not been taken yet.
type state = int32

const (
	dead    state = 0
	unknown state = -1
)

// cache is the automaton of a machine as far as it has been needed: the subset
// construction, done lazily (as in RE2). It is not safe for concurrent use.
type cache struct {
	*machine
	early  bool
	edges  []int32
	nodes  []position // by state / width
	states map[string]state
	start  [kinds]state // 0: not made yet

	seen  []uint32 // by instruction: the round in which it was last reached
	round uint32
	stack []uint32
	out   []uint32
	key   []byte
}

// position is where a machine can be: at any of these instructions, after kind.
type position struct {
	at     []uint32 // in order
	kind   int
	covers int8 // whether at holds the beginning of the expression: 0 unknown, 1 yes, -1 no
}

// newCache returns an empty cache. If early is set an edge tells of a match that
// is certain already after its byte, otherwise only before, where the match ends.
func newCache(m *machine, early bool) *cache {
	c := &cache{machine: m, early: early, seen: make([]uint32, len(m.prog.Inst))}
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

// begin returns the state before anything was read.
func (c *cache) begin(kind int) state {
	if c.start[kind] == dead {
		c.out = append(c.out[:0], uint32(c.prog.Start))
		c.start[kind] = c.intern(kind)
	}
	return c.start[kind]
}

// intern returns the state for the instructions in out.
func (c *cache) intern(kind int) state {
	if len(c.out) == 0 {
		return dead
	}
	slices.Sort(c.out)
	c.out = slices.Compact(c.out)
	c.key = append(c.key[:0], byte(kind))
	for _, pc := range c.out {
		c.key = binary.AppendUvarint(c.key, uint64(pc))
	}
	if s, ok := c.states[string(c.key)]; ok {
		return s
	}
	s := state(len(c.edges))
	c.states[string(c.key)] = s
	c.nodes = append(c.nodes, position{at: slices.Clone(c.out), kind: kind})
	for range c.width {
		c.edges = append(c.edges, unknown)
	}
	return s
}

// take fills in an edge that is unknown. When the cache is full it is emptied
// first, so states that the caller holds are no longer valid but the one returned.
func (c *cache) take(s state, class int32) (edge int32) {
	if len(c.nodes) >= maxStates {
		p := c.nodes[s/c.width]
		c.reset()
		c.out = append(c.out[:0], p.at...)
		s = c.intern(p.kind)
	}
	p := c.nodes[s/c.width]
	next, kind, b := rune(-1), nothing, byte(0)
	if int(class) < len(c.bytes) {
		b = c.bytes[class]
		kind = kindOf(b)
		next = runeOf[kind]
	}
	matched := c.follow(p.at, syntax.EmptyOpContext(runeOf[p.kind], next), b, kind != nothing)
	if b >= 0x80 && b < 0xc0 {
		c.out = append(c.out, p.at...)
	}
	if c.early {
		now, over := c.settled()
		matched = matched || now
		if over && b < utf8.RuneSelf { // else the rest of the rune is still to come
			c.out = c.out[:0]
		}
	}
	edge = c.intern(kind) << 1
	if matched {
		edge |= 1
	}
	c.edges[s+class] = edge
	return edge
}

// settled reports whether the expression has matched at the instructions in out
// whatever comes, and whether nothing more can match there.
func (c *cache) settled() (now, over bool) {
	at := slices.Clone(c.out)
	now = c.follow(at, 0, 0, false)
	c.out = at
	for pc, round := range c.seen {
		if in := &c.prog.Inst[pc]; round == c.round && (reads(in) || in.Op == syntax.InstEmptyWidth) {
			return now, false
		}
	}
	return now, true
}

func reads(in *syntax.Inst) bool {
	switch in.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	return false
}

// follow puts into out where reading b leads from the instructions in at, and
// reports whether the expression matches before b.
func (c *cache) follow(at []uint32, flags syntax.EmptyOp, b byte, read bool) (matched bool) {
	c.round++
	c.out = c.out[:0]
	c.stack = append(c.stack[:0], at...)
	for len(c.stack) > 0 {
		pc := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		if c.seen[pc] == c.round {
			continue
		}
		c.seen[pc] = c.round
		switch in := &c.prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			c.stack = append(c.stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			c.stack = append(c.stack, in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^flags == 0 {
				c.stack = append(c.stack, in.Out)
			}
		case syntax.InstMatch:
			matched = true
		default:
			if read && matches(in, b) {
				c.out = append(c.out, in.Out)
			}
		}
	}
	return matched
}

// atEnd reports whether the expression matches in s at the end of the text.
func (c *cache) atEnd(s state) bool {
	edge := c.edges[s+c.width-1]
	if edge < 0 {
		edge = c.take(s, c.width-1)
	}
	return edge&1 != 0
}

// covered reports whether all that matches from here on when a match begins
// here also matches when the machine is in s.
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

// holdsStart compares what can be read next, for each way in which the text may go on.
func (c *cache) holdsStart(p *position) bool {
	for _, next := range runeOf {
		flags := syntax.EmptyOpContext(runeOf[p.kind], next)
		if !c.subset([]uint32{uint32(c.prog.Start)}, p.at, flags) {
			return false
		}
	}
	return true
}

func (c *cache) subset(a, b []uint32, flags syntax.EmptyOp) bool {
	c.follow(b, flags, 0, false)
	have := map[uint32]bool{}
	for pc, round := range c.seen {
		have[uint32(pc)] = round == c.round
	}
	c.follow(a, flags, 0, false)
	for pc, round := range c.seen {
		in := &c.prog.Inst[pc]
		if round == c.round && (reads(in) || in.Op == syntax.InstMatch) && !have[uint32(pc)] {
			return false
		}
	}
	return true
}
