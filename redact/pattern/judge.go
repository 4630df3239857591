package pattern

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/custody-project/custody/redact"
)

// judge applies the rules to their zones. It returns the position from which on a match waits for the rest of its line,
// which an allowlist needs.
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

// apply adds the matches of a rule in its zones. Each begins after the end of the one before, as if the text began
// there.
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

// search searches for matches anywhere in z.
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

// visit searches for matches where they must begin: as far before each literal as the expression extends. Zones are
// sorted by the start of their matches.
func (s *scanner) visit(r *rule, zones []zone, at int) (end, open int) {
	open = len(s.text)
	for i := range zones {
		zones[i].start, _ = s.leftmost(zones[i].factor, zones[i].literal, 0, true)
	}
	slices.SortFunc(zones, func(a, b zone) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.literal, b.literal))
	})
	for _, z := range zones {
		start, ok := s.leftmost(z.factor, z.literal, at, true)
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

// weigh adds a match. It returns the match's start if the rest of the line is needed to decide which part of it is a
// secret.
func (s *scanner) weigh(r *rule, m []int, at int) (open int) {
	found, waits := s.secret(r, m, at)
	s.matches = append(s.matches, found)
	if waits {
		return found.start
	}
	return len(s.text)
}

// secret returns the part of a match that is a secret, and whether that is uncertain yet.
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

// line returns the lines of m, as far as they are near it, and whether more of them may follow.
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

// settle moves open to the left until no match crosses it.
func (s *scanner) settle(open int) int {
	slices.SortFunc(s.matches, func(a, b match) int { return cmp.Compare(b.start, a.start) })
	for _, m := range s.matches {
		if m.start < open && m.end > open {
			open = m.start
		}
	}
	return open
}

// hits adds the hits before open to dst. It merges overlapping ones, and prefers a specific rule to a generic one.
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
