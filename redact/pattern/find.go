package pattern

import (
	"unicode/utf8"

	"github.com/custody-project/custody/redact"
)

const (
	slack      = utf8.UTFMax // bytes before a match, for assertions
	maxToken   = 64          // bytes of a word at the end that may precede a literal
	lineBefore = 64          // bytes of a line before a match for allowlists
	lineAfter  = 256         // and after it
	maxCached  = 16 << 20    // bytes of automata that an idle scanner keeps
)

// scanner searches one text at a time. It is not safe for concurrent use.
type scanner struct {
	*Rules
	fore, back []*cache // by factor; nil: not used yet
	cached     int      // approximate size of the caches, in bytes
	runs       []run    // by factor
	used       []int    // factors with a run in this text
	open       []run    // runs that reached the end of the text
	text       []byte
	from       int
	end        bool // no more text follows
	window     []byte

	zones   []zone
	matches []match
	endings [lanes][]ending // of one block
}

// run matches the expression after a literal. If another literal of the same factor occurs before it has ended, the run
// continues for both if it covers the second; otherwise it is finished first. So each byte is read only a few times.
type run struct {
	factor  int
	state   state
	pos     int // end of the text that was read
	limit   int // maximum of pos
	zone    zone
	matched bool
	live    bool
	used    bool
}

// zone is a piece of text in which a rule matches, or may match.
type zone struct {
	rule, factor int
	start, end   int
	literal      int  // position of the literal that caused the zone
	several      bool // other literals caused it too
}

// match is a match of a rule, with or without a secret.
type match struct {
	start, end int
	hit        redact.Hit
	generic    bool
}

func newScanner(rs *Rules) *scanner {
	n := len(rs.factors)
	return &scanner{Rules: rs, fore: make([]*cache, n), back: make([]*cache, n), runs: make([]run, n)}
}

// Find adds the secrets in text to dst, sorted and not overlapping.
func (rs *Rules) Find(dst []redact.Hit, text []byte) []redact.Hit {
	hits, _ := rs.Follow(dst, text, 0, true)
	return hits
}

// Before returns the number of bytes before from that Follow needs.
func (rs *Rules) Before() int { return maxBefore + slack }

// Follow is Find for a text that arrives in pieces: see redact.Follower. It leaves open:
//
//   - an incomplete literal, and text before a literal at which a secret may end: at most the last 64 bytes, if they are of one word
//   - text from a literal on, as long as its rule can still match: usually to the end of its line, for a private key up to its last line, at most Reach bytes
func (rs *Rules) Follow(dst []redact.Hit, text []byte, from int, end bool) (hits []redact.Hit, open int) {
	s := rs.scanner()
	s.begin(text, from, end)
	open = s.scan()
	open = min(open, s.finish())
	open = min(open, s.judge())
	if end {
		open = len(text)
	}
	open = max(s.settle(open), from, len(text)-rs.reach)
	hits = s.hits(dst, open)
	rs.release(s)
	return hits, open
}

func (s *scanner) begin(text []byte, from int, end bool) {
	s.text, s.from, s.end = text, from, end
	s.used, s.open, s.zones, s.matches = s.used[:0], s.open[:0], s.zones[:0], s.matches[:0]
}

// clear removes the text, and the automata if they have become large.
func (s *scanner) clear() {
	clear(s.window)
	s.text = nil
	for _, factor := range s.used {
		s.runs[factor] = run{}
	}
	if s.cached > maxCached {
		s.cached = 0
		clear(s.fore)
		clear(s.back)
	}
}

// scan searches for literals and returns the position from which on one may have begun.
func (s *scanner) scan() (open int) {
	text, from := s.text, s.from
	w := s.words
	table, class, accept := w.table, &w.class, w.accept
	at, i := uint32(0), from
	for ; len(text)-i >= lanes*lane; i += lanes * lane {
		at = s.block(at, i)
	}
	for ; i < len(text); i++ {
		at = table[at+uint32(class[text[i]])]
		if at >= accept {
			s.occur(w.ends[(at-accept)/w.width], i+1)
		}
	}
	open = len(text) - int(w.depth[at/w.width])
	token := len(text)
	for token > from && len(text)-token < maxToken && isToken(text[token-1]) {
		token--
	}
	return min(open, token)
}

// A block of text is searched in lanes together: the processor follows several chains of states in the time of one.
const (
	lanes = 4
	lane  = 2 << 10 // bytes; more than any literal has
)

// ending is where a state was reached in which literals end.
type ending struct {
	end   int32 // position in the lane
	state uint32
}

// block is scan for the block of text from a position on, where the automaton is in a state. It returns the state at the end of the block.
//
// The state depends on no more bytes than the longest literal has. So the lanes but the first begin that many bytes before their
// part of the text, where the literals that end belong to the lane before.
func (s *scanner) block(at uint32, from int) uint32 {
	w := s.words
	table, class, accept := w.table, &w.class, w.accept
	states := [lanes]uint32{at}
	for k := 1; k < lanes; k++ {
		start := from + k*lane
		for _, b := range s.text[max(from, start-w.longest):start] {
			states[k] = table[states[k]+uint32(class[b])]
		}
	}
	t0, t1 := s.text[from:][:lane], s.text[from+lane:][:lane]
	t2, t3 := s.text[from+2*lane:][:lane], s.text[from+3*lane:][:lane]
	a, b, c, d := states[0], states[1], states[2], states[3]
	for i := range lane {
		a = table[a+uint32(class[t0[i]])]
		b = table[b+uint32(class[t1[i]])]
		c = table[c+uint32(class[t2[i]])]
		d = table[d+uint32(class[t3[i]])]
		if max(a, b, c, d) < accept {
			continue
		}
		for k, state := range [lanes]uint32{a, b, c, d} {
			if state >= accept {
				s.endings[k] = append(s.endings[k], ending{int32(i + 1), state})
			}
		}
	}
	for k := range s.endings {
		for _, e := range s.endings[k] {
			s.occur(w.ends[(e.state-accept)/w.width], from+k*lane+int(e.end))
		}
		s.endings[k] = s.endings[k][:0]
	}
	return d
}

func isToken(b byte) bool { return isWord(b) || b == '-' || b == '.' || b == '~' }

func (s *scanner) occur(list []occurrence, end int) {
	for i := range list {
		o := &list[i]
		start := end - len(o.text)
		if !o.matches(s.text[start:end]) {
			continue
		}
		if p := s.factors[o.factor]; p.free || s.preceded(o.factor, start) {
			s.start(o.factor, start, end)
		}
	}
}

// preceded reports whether the text before a literal can match.
func (s *scanner) preceded(factor, literal int) bool {
	_, ok := s.leftmost(factor, literal, 0, false)
	return ok
}

// leftmost matches the expression before a literal, as if text began at least, and returns the start of the longest
// match, or of any.
func (s *scanner) leftmost(factor, literal, least int, longest bool) (start int, ok bool) {
	c := s.back[factor]
	if c == nil {
		_, back := s.factors[factor].machines()
		c = newCache(back, true, &s.cached)
		s.back[factor] = c
	}
	at := c.begin(kindOf(s.text[literal]))
	for i := literal - 1; i >= least; i-- {
		class := int32(c.class[s.text[i]])
		edge := c.edges[at+class]
		if edge < 0 {
			edge = c.take(at, class)
		}
		if edge&1 != 0 && !within(s.text, i+1) {
			start, ok = i+1, true
		}
		if at = edge >> 1; at == dead || ok && !longest {
			return start, ok
		}
	}
	if c.atEnd(at) {
		start, ok = least, true
	}
	return start, ok
}

// within reports whether a rune of more than one byte began before i and continues there.
func within(text []byte, i int) bool {
	if i == len(text) || utf8.RuneStart(text[i]) {
		return false
	}
	for n := 1; n < utf8.UTFMax && n <= i; n++ {
		if _, size := utf8.DecodeRune(text[i-n:]); size > n {
			return true
		}
	}
	return false
}

// start starts a run after a literal, unless the current run covers it.
func (s *scanner) start(factor, start, end int) {
	p, r := s.factors[factor], &s.runs[factor]
	if r.live {
		s.advance(factor, end)
	}
	if r.live && end-r.zone.start <= 2*p.span && (p.plain || s.fore[factor].covered(r.state)) {
		r.limit, r.zone.several = end+p.span+1, true
		if !p.plain {
			r.state = s.fore[factor].blur(r.state)
		}
		return
	}
	if r.live {
		s.advance(factor, r.limit)
	}
	if !r.used {
		s.used = append(s.used, factor)
	}
	*r = run{factor: factor, pos: end, limit: end + p.span + 1, live: true, used: true}
	r.zone = zone{rule: p.rule, factor: factor, start: max(0, start-p.before-slack), literal: start}
	r.zone.several = p.plain
	if p.plain {
		r.matched = true
		return
	}
	if s.fore[factor] == nil {
		fore, _ := p.machines()
		s.fore[factor] = newCache(fore, false, &s.cached)
	}
	r.state = s.fore[factor].begin(kindOf(s.text[end-1]))
}

// advance reads up to to, and closes the run when nothing more can match.
func (s *scanner) advance(factor, to int) {
	r := &s.runs[factor]
	to = min(to, r.limit, len(s.text))
	if s.factors[factor].plain {
		r.pos = max(r.pos, to)
	} else {
		s.read(s.fore[factor], r, to)
	}
	switch {
	case !r.live:
	case r.pos == r.limit && r.pos < len(s.text):
		s.close(r)
	case r.pos < len(s.text):
	case s.end:
		r.matched = r.matched || s.fore[factor].atEnd(r.state)
		s.close(r)
	default:
		s.open = append(s.open, *r)
		r.live = false
	}
}

func (s *scanner) read(c *cache, r *run, to int) {
	edges, class, at, matched := c.edges, &c.class, r.state, int32(0)
	i := r.pos
	for i < to {
		k := int32(class[s.text[i]])
		edge := edges[at+k]
		if edge < 0 {
			edge = c.take(at, k)
			edges = c.edges
		}
		i++
		matched |= edge
		if at = edge >> 1; at == dead {
			break
		}
	}
	r.pos, r.state = i, at
	r.matched = r.matched || matched&1 != 0
	if at == dead {
		s.close(r)
	}
}

// close ends a run. Its zone has one byte more than was read, so that its end is not mistaken for that of the text.
func (s *scanner) close(r *run) {
	r.live = false
	if r.matched {
		r.zone.end = min(len(s.text), r.pos+1)
		s.zones = append(s.zones, r.zone)
	}
}

// finish advances all runs to the end of the text, and returns the position from which on more text may complete a
// match.
func (s *scanner) finish() (open int) {
	for _, factor := range s.used {
		if s.runs[factor].live {
			s.advance(factor, len(s.text))
		}
	}
	open = len(s.text)
	for i := range s.open {
		r := &s.open[i]
		start, _ := s.leftmost(r.factor, r.zone.literal, s.from, true)
		open = min(open, start)
	}
	return open
}
