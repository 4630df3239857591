package pattern

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/custody-project/custody/redact"
)

const (
	slack      = utf8.UTFMax // what stands before a match, for assertions
	maxToken   = 64          // bytes of a word at the end that a literal may still follow
	lineBefore = 64          // bytes of a line that an allowlist sees before a match
	lineAfter  = 256         // and after it
)

// scanner searches one text at a time. It is not safe for concurrent use.
type scanner struct {
	*Rules
	fore, back []*cache // by factor; nil: not used yet
	runs       []run    // by factor
	live       []int    // factors whose run has begun
	open       []run    // runs that came to the end of the text
	text       []byte
	from       int
	end        bool // no more text comes
	window     []byte

	zones   []zone
	matches []match
}

// run is the reading of what comes after a literal. When another literal of the
// same factor comes before it has ended it goes on for that one too if it covers
// it; else it is brought to its end first. So each byte is read a few times at most.
type run struct {
	factor  int
	state   state
	pos     int // what was read ends here
	limit   int // where reading ends
	zone    zone
	matched bool
	live    bool
}

// zone is a piece of text in which a rule matches, or may match.
type zone struct {
	rule, factor int
	start, end   int
	literal      int  // where the literal stands that led here
	several      bool // other literals led here as well
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

// Before is how many bytes before from Follow looks at.
func (rs *Rules) Before() int { return maxBefore + slack }

// Follow is Find for a text that comes in pieces: see redact.Follower. What it
// leaves open until more is there:
//
//   - a literal that has only begun, and what may come before one that ends a
//     secret: at most the last 64 bytes, if they are of one word
//   - from a literal on, as long as its rule can still match: mostly to the end of
//     its line, for a private key up to its last line, at most Reach bytes
func (rs *Rules) Follow(dst []redact.Hit, text []byte, from int, end bool) (hits []redact.Hit, open int) {
	s := rs.scanner()
	defer rs.release(s)
	s.begin(text, from, end)
	open = s.scan()
	open = min(open, s.finish())
	open = min(open, s.judge())
	if end {
		open = len(text)
	}
	open = max(s.settle(open), from, len(text)-rs.reach)
	return s.hits(dst, open), open
}

func (s *scanner) begin(text []byte, from int, end bool) {
	s.text, s.from, s.end = text, from, end
	s.live, s.open, s.zones, s.matches = s.live[:0], s.open[:0], s.zones[:0], s.matches[:0]
}

// scan looks for literals and returns from where on one may have begun.
func (s *scanner) scan() (open int) {
	text, from := s.text, s.from
	w := s.words
	table, class, accept := w.table, &w.class, w.accept
	at := uint32(0)
	for i := from; i < len(text); i++ {
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

// preceded reports whether what must come before a literal can be there.
func (s *scanner) preceded(factor, literal int) bool {
	_, ok := s.reach(factor, literal, 0, false)
	return ok
}

// reach reads what comes before a literal, as if text began at least, and
// returns where the longest match of it begins, or just any.
func (s *scanner) reach(factor, literal, least int, longest bool) (start int, ok bool) {
	c := s.back[factor]
	if c == nil {
		_, back := s.factors[factor].machines()
		c = newCache(back, true)
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

// within reports whether a rune of more than one byte has begun before i and
// goes on there.
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

// start starts a run after a literal, unless the run that is on covers it.
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
	*r = run{factor: factor, pos: end, limit: end + p.span + 1, live: true}
	r.zone = zone{rule: p.rule, factor: factor, start: max(0, start-p.before-slack), literal: start}
	r.zone.several = p.plain
	s.live = append(s.live, factor)
	if p.plain {
		r.matched = true
		return
	}
	if s.fore[factor] == nil {
		fore, _ := p.machines()
		s.fore[factor] = newCache(fore, false)
	}
	r.state = s.fore[factor].begin(kindOf(s.text[end-1]))
}

// advance reads on to to, and closes the run when nothing more can match.
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

// close ends a run. Its zone holds one byte more than what was read, so that
// its end is not taken for that of the text.
func (s *scanner) close(r *run) {
	r.live = false
	if r.matched {
		r.zone.end = min(len(s.text), r.pos+1)
		s.zones = append(s.zones, r.zone)
	}
}

// finish brings all runs to the end of the text, and returns from where on
// there may be a match if more comes.
func (s *scanner) finish() (open int) {
	for _, factor := range s.live {
		if s.runs[factor].live {
			s.advance(factor, len(s.text))
		}
	}
	open = len(s.text)
	for i := range s.open {
		r := &s.open[i]
		start, _ := s.reach(r.factor, r.zone.literal, s.from, true)
		open = min(open, start)
	}
	return open
}

// judge applies the rules to their zones. It returns from where on a match
// waits for the rest of its line, which an allowlist is to see.
func (s *scanner) judge() (open int) {
	open = len(s.text)
	if len(s.zones) == 0 {
		return open
	}
	slices.SortFunc(s.zones, func(a, b zone) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.start, b.start))
	})
	for i := 0; i < len(s.zones); {
		n := 1
		for i+n < len(s.zones) && s.zones[i+n].rule == s.zones[i].rule {
			n++
		}
		open = min(open, s.apply(s.zones[i:i+n]))
		i += n
	}
	return open
}

// apply adds the matches of a rule in its zones. Each begins after the one
// before it has ended, as if the text began there.
func (s *scanner) apply(zones []zone) (open int) {
	r, open, at := s.rules[zones[0].rule], len(s.text), 0
	for i := 0; i < len(zones); {
		z, n := zones[i], 1
		for i+n < len(zones) && zones[i+n].start < z.end {
			z.end = max(z.end, zones[i+n].end)
			z.several = z.several || zones[i+n].several
			n++
		}
		var o int
		if z.several || r.fromStart {
			at, o = s.search(r, z, at)
		} else {
			at, o = s.visit(r, zones[i:i+n], at)
		}
		open = min(open, o)
		i += n
	}
	return open
}

// search looks for matches all over z.
func (s *scanner) search(r *rule, z zone, at int) (end, open int) {
	open = len(s.text)
	for at = max(at, z.start); at < z.end; {
		m := r.regexp().FindSubmatchIndex(s.text[at:z.end])
		// A match that ends with the zone may do so because the zone ends.
		for more := maxSpan; m != nil && at+m[1] == z.end && z.end < len(s.text) && more <= maxBlock; more *= 2 {
			z.end = min(len(s.text), z.end+more)
			m = r.regexp().FindSubmatchIndex(s.text[at:z.end])
		}
		if m == nil {
			break
		}
		open = min(open, s.weigh(r, m, at))
		at += max(m[1], 1)
	}
	return at, open
}

// visit looks for matches where they must begin: as far before each literal as
// the expression reaches. Zones are in the order in which matches in them begin.
func (s *scanner) visit(r *rule, zones []zone, at int) (end, open int) {
	open = len(s.text)
	for i := range zones {
		zones[i].start, _ = s.reach(zones[i].factor, zones[i].literal, 0, true)
	}
	slices.SortFunc(zones, func(a, b zone) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.literal, b.literal))
	})
	for _, z := range zones {
		start, ok := s.reach(z.factor, z.literal, at, true)
		if z.literal < at || !ok {
			continue
		}
		m := s.matchAt(r, start, at, z.end)
		if m == nil || start+m[1] == z.end && z.end < len(s.text) {
			var o int
			at, o = s.search(r, z, at)
			open = min(open, o)
			continue
		}
		open = min(open, s.weigh(r, m, start))
		at = start + max(m[1], 1)
	}
	return at, open
}

// matchAt returns the match in text[at:end] that begins at start.
func (s *scanner) matchAt(r *rule, start, at, end int) []int {
	var window []byte
	_, before := utf8.DecodeLastRune(s.text[at:start])
	if before > 0 {
		window = s.text[start-before : end]
	} else {
		before = 1
		s.window = append(append(s.window[:0], '\n'), s.text[start:end]...)
		window = s.window
	}
	m := r.anchored().FindSubmatchIndex(window)
	for i := range m {
		if m[i] >= 0 {
			m[i] -= before
		}
	}
	if m != nil {
		m[0] = 0
	}
	return m
}

// weigh adds a match. It returns where it begins if what of it is a secret
// depends on the rest of the line, which is not there yet.
func (s *scanner) weigh(r *rule, m []int, at int) (open int) {
	found, waits := s.secret(r, m, at)
	s.matches = append(s.matches, found)
	if waits {
		return found.start
	}
	return len(s.text)
}

// secret says what of a match is a secret, and whether that is not certain yet.
func (s *scanner) secret(r *rule, m []int, at int) (found match, waits bool) {
	text := s.text[at:]
	found = match{start: at + m[0], end: at + m[1], generic: r.generic}
	start, end := m[0], m[1]
	for start < end && text[start] == '\n' {
		start++
	}
	for start < end && text[end-1] == '\n' {
		end--
	}
	whole := text[start:end]
	for g := 1; 2*g < len(m); g++ {
		if r.group == g || r.group == 0 && m[2*g] < m[2*g+1] {
			start, end = m[2*g], m[2*g+1]
			break
		}
	}
	if start < 0 || start == end {
		return found, false
	}
	secret := text[start:end]
	if r.entropy != 0 && entropy(secret) <= r.entropy {
		return found, false
	}
	line, cut := s.line(found)
	for _, a := range r.allow {
		if a.allows(secret, whole, line) {
			return found, false
		}
		waits = waits || a.target == onLine && cut && !s.end
	}
	if start+at < s.from {
		start = s.from - at
	}
	if start < end {
		found.hit = redact.Hit{Start: at + start, End: at + end, Rule: r.id}
	}
	return found, waits
}

// line returns the lines that m stands in, as far as they are near it, and
// whether more of them may come.
func (s *scanner) line(m match) (line []byte, cut bool) {
	start := max(0, m.start-lineBefore)
	if i := bytes.LastIndexByte(s.text[start:m.start], '\n'); i >= 0 {
		start += i + 1
	}
	end := min(len(s.text), m.end+lineAfter)
	if i := bytes.IndexByte(s.text[m.end:end], '\n'); i >= 0 {
		return s.text[start : m.end+i], false
	}
	return s.text[start:end], m.end+lineAfter > len(s.text)
}

// settle moves open to the left until no match reaches across it.
func (s *scanner) settle(open int) int {
	slices.SortFunc(s.matches, func(a, b match) int { return cmp.Compare(b.start, a.start) })
	for _, m := range s.matches {
		if m.start < open && m.end > open {
			open = m.start
		}
	}
	return open
}

// hits adds what was found before open to dst. Hits that overlap become one, of
// the rule that knows more than that it is some secret.
func (s *scanner) hits(dst []redact.Hit, open int) []redact.Hit {
	slices.SortFunc(s.matches, func(a, b match) int {
		return cmp.Or(cmp.Compare(a.hit.Start, b.hit.Start), cmp.Compare(b.hit.End, a.hit.End), cmp.Compare(a.hit.Rule, b.hit.Rule))
	})
	first, generic := len(dst), false
	for _, m := range s.matches {
		h := m.hit
		if h.Rule == "" || h.End > open {
			continue
		}
		if len(dst) == first || dst[len(dst)-1].End <= h.Start {
			dst, generic = append(dst, h), m.generic
			continue
		}
		last := &dst[len(dst)-1]
		last.End = max(last.End, h.End)
		if generic && !m.generic {
			last.Rule, generic = h.Rule, false
		}
	}
	return dst
}
