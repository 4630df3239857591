// Package redact replaces secret values by markers before anything is written.
//
// A value is added once and from then on masked wherever it passes, raw and in
// each published encoding (expand lists them), at any split of a stream:
//
//	[REDACTED:name:tag]
//
// The tag is the first 8 hex digits of HMAC-SHA256(key, value): equal values
// join across records, and without the key a tag cannot be tested against guesses.
//
// # Encodings
//
// Raw; base64 and URL base64 at the three alignments, padded or not, wrapped at
// any column, of the value, of its UTF-16 and of its own base64, and within a
// URL; base32; hex in any case, wrapped or spaced, and with \x; percent escapes
// of every byte or the reserved ones, once and twice; JSON strings with any of
// the usual escapes, once and twice; UTF-16; HTML entities; shell quoting.
//
// # What is compared
//
// Text and patterns are compared with ASCII letters in lower case and without
// blanks, see fold. Overlapping matches are masked together. When a value stands
// inside longer base64 or base32 text, the digits at its ends mix its bits with
// a neighbour's; they are masked too, because the neighbour may be known to the
// reader, and then such a digit gives away up to 4 bits of the value.
//
// # What is not promised
//
// Only added values in the listed encodings are found: not compressed, encrypted,
// reversed or split ones, none with terminal escapes between their letters, and
// no part of a value that stands alone.
//
// A marker is one more pattern of its value and is replaced by itself, so that
// redacting twice changes nothing. The one exception is a value that begins or
// ends like a marker and can join with one; the second pass may then mask more.
package redact

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// MinValue is the least length of a value in bytes: shorter ones occur by chance.
	MinValue = 8
	// MaxValue is the greatest length of a value in bytes. It bounds the automaton.
	MaxValue = 16 << 10

	minFolded = 4 // bytes of a value that are not blank
	minCut    = 4 // symbols of a value's beginning that Cut takes for one
	maxName   = 64
)

// Redactor masks the values added to it. It is safe for concurrent use.
type Redactor struct {
	key       []byte
	detectors []Detector
	rules     atomic.Pointer[ruleset]
	plans     sync.Map // reflect.Type to *plan: see Seal
	bufs      sync.Pool

	adding sync.Mutex // makes Adds take turns; readers only load rules
}

// ruleset is what a Redactor knows at one time. It never changes.
type ruleset struct {
	auto   *automaton // nil without values
	values []value    // a span's value is an index into it
	rules  []rule
}

type value struct {
	name   string
	sum    [sha256.Size]byte // HMAC of the value
	marker string
}

// New returns a Redactor without values. The key, 32 random bytes that stay
// with the project, makes the tags. The detectors, if any, look at what the
// values leave.
func New(key []byte, detectors ...Detector) *Redactor {
	r := &Redactor{key: bytes.Clone(key), detectors: detectors}
	r.rules.Store(&ruleset{})
	r.bufs.New = func() any { return newBuffer() }
	return r
}

// Add makes value be masked from now on, in streams that already run as well.
// The name appears in the marker. A value that was added before keeps the name
// that it had; one name may have several values. No error contains the value.
func (r *Redactor) Add(name string, val []byte) error {
	if err := check(name, val); err != nil {
		return fmt.Errorf("redact %q: %w", name, err)
	}
	r.adding.Lock()
	defer r.adding.Unlock()
	old := r.rules.Load()
	v := r.value(name, val)
	if slices.ContainsFunc(old.values, func(o value) bool { return o.sum == v.sum }) {
		return nil
	}
	next, err := old.with(v, val)
	if err != nil {
		return err
	}
	r.rules.Store(next)
	return nil
}

// AddAll adds all values or, with an error, none.
func (r *Redactor) AddAll(values map[string][]byte) error {
	r.adding.Lock()
	defer r.adding.Unlock()
	next := r.rules.Load()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		val := values[name]
		if err := check(name, val); err != nil {
			return fmt.Errorf("redact %q: %w", name, err)
		}
		v := r.value(name, val)
		if slices.ContainsFunc(next.values, func(o value) bool { return o.sum == v.sum }) {
			continue
		}
		var err error
		if next, err = next.with(v, val); err != nil {
			return err
		}
	}
	r.rules.Store(next)
	return nil
}

// Tag returns the tag that value has in markers: equal values have equal tags,
// and without the key a tag tells nothing. The value need not have been added.
func (r *Redactor) Tag(value []byte) string { return r.value("", value).tag() }

// Find returns the names of the values that stand in b in any form, sorted, each once.
func (r *Redactor) Find(b []byte) []string {
	s := r.rules.Load()
	if s.auto == nil {
		return nil
	}
	_, spans := scan(s.auto, 0, b, 0, len(b), nil)
	return s.names(nil, spans)
}

// names adds the names of the spans' values to list, which is sorted and without repeats.
func (s *ruleset) names(list []string, spans []span) []string {
	for _, m := range spans {
		name := s.values[m.value].name
		if at, ok := slices.BinarySearch(list, name); !ok {
			list = slices.Insert(list, at, name)
		}
	}
	return list
}

func check(name string, val []byte) error {
	switch {
	case name == "" || len(name) > maxName || strings.Trim(name, nameChars) != "":
		return fmt.Errorf("a name has 1 to %d letters, digits, '-', '_' or '.'", maxName)
	case len(val) < MinValue:
		return fmt.Errorf("the value has %d bytes; under %d it would be masked where it occurs by chance", len(val), MinValue)
	case len(val) > MaxValue:
		return fmt.Errorf("the value has %d bytes; at most %d can be masked", len(val), MaxValue)
	case len(fold(val)) < minFolded:
		return fmt.Errorf("the value is white space but for fewer than %d bytes", minFolded)
	}
	return nil
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

func (r *Redactor) value(name string, val []byte) value {
	mac := hmac.New(sha256.New, r.key)
	mac.Write(val)
	v := value{name: name}
	mac.Sum(v.sum[:0])
	v.marker = "[REDACTED:" + name + ":" + v.tag() + "]"
	return v
}

func (v value) tag() string { return hex.EncodeToString(v.sum[:4]) }

// with returns the ruleset that knows v as well.
func (s *ruleset) with(v value, val []byte) (*ruleset, error) {
	next := &ruleset{
		values: append(slices.Clone(s.values), v),
		rules:  slices.Clone(s.rules),
	}
	id := len(s.values)
	for _, p := range expand(val) {
		if p.text = fold(p.text); len(p.text) >= minFolded {
			next.rules = append(next.rules, rule{p, id})
		}
	}
	if next.inMarker() {
		return nil, fmt.Errorf("redact %q: %w", v.name, errInMarker)
	}
	next.rules = append(next.rules, rule{pattern{text: fold([]byte(v.marker))}, id})
	next.auto = compile(next.rules)
	return next, nil
}

var errInMarker = errors.New("the value is part of a marker, that is of a secret's name or the word REDACTED, " +
	"which stay readable: give the secret another name or another value")

// inMarker reports whether a pattern occurs within a marker that is not its own.
func (s *ruleset) inMarker() bool {
	for _, v := range s.values {
		marker := fold([]byte(v.marker))
		for _, r := range s.rules {
			if len(r.text) < len(marker) && bytes.Contains(marker, r.text) {
				return true
			}
		}
	}
	return false
}

// Digest identifies the ruleset: the version of the encodings, and each value's
// name and tag. It tells two rulesets apart without telling values.
func (r *Redactor) Digest() string {
	var lines []string
	for _, v := range r.rules.Load().values {
		lines = append(lines, v.name+":"+v.tag()+"\n")
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(encodings + "\n" + strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}

// String returns s with all values masked; s itself when there is none in it.
func (r *Redactor) String(s string) string {
	if out := mask(r.rules.Load(), s, false); out != nil {
		return string(out)
	}
	return s
}

// Bytes returns b with all values masked; b itself when there is none in it.
func (r *Redactor) Bytes(b []byte) []byte {
	if out := mask(r.rules.Load(), b, false); out != nil {
		return out
	}
	return b
}

// Cut is String for text whose end was cut off: it also masks 4 or more
// symbols at the end that could be the beginning of a value in any encoding.
func (r *Redactor) Cut(s string) string {
	if out := mask(r.rules.Load(), s, true); out != nil {
		return string(out)
	}
	return s
}

// mask returns t with markers in place of matches, nil when nothing matches.
func mask[T text](s *ruleset, t T, cut bool) []byte {
	if s.auto == nil {
		return nil
	}
	var room [8]span
	state, spans := scan(s.auto, 0, t, 0, len(t), room[:0])
	if cut {
		spans = partial(s, state, t, spans)
	}
	if len(spans) == 0 {
		return nil
	}
	out := make([]byte, 0, len(t)+64)
	at := 0
	for _, m := range spans {
		out = append(out, t[at:m.start]...)
		out = append(out, s.values[m.value].marker...)
		at = m.end
	}
	return append(out, t[at:]...)
}

// partial adds the longest beginning of a pattern at the end of t, where state
// is the state after all of it.
func partial[T text](s *ruleset, state uint32, t T, spans []span) []span {
	a := s.auto
	u := a.node(state)
	start, got := back(t, len(t), int(a.nodes[u].depth))
	for int(a.nodes[u].depth) > got {
		u = a.nodes[u].fail
		start, got = back(t, len(t), int(a.nodes[u].depth))
	}
	if a.nodes[u].depth < minCut {
		return spans
	}
	return push(spans, span{digitsBefore(t, start, int(a.nodes[u].left)), len(t), a.valueBelow(u)})
}

// valueBelow returns the value of a pattern that begins as node u does.
func (a *automaton) valueBelow(u uint32) int {
	for a.nodes[u].child != 0 {
		u = a.nodes[u].child
	}
	return a.ends[a.nodes[u].end].value
}
