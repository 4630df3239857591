// Package redact replaces secret values by markers before anything is recorded.
//
// A value is added once, and is then masked in all data, raw and in each published encoding, at any split of a stream:
//
//	[REDACTED:name:tag]
//
// The tag is the first 8 hex digits of HMAC-SHA256(key, value): equal values have equal tags across records, and without
// the key guesses cannot be tested against a tag.
//
// # Encodings
//
// docs/redaction.md lists the encodings, and those that are not supported; forms.go combines them: hex, base64, base32,
// percent escapes, string literals, HTML, shell words and UTF-16, and each of them within each of them.
//
// # Comparison
//
// Text and values are compared with ASCII letters in lower case and without filler, see fold.go. The first symbols of
// each form are looked up, see index; from there on text is decoded and compared with the value, see candidate.
// Overlapping matches are masked together. When a value is inside longer base64 or base32 text, the digits at its ends
// mix its bits with a neighbour's; they are masked too, because the reader may know the neighbour, and then such a digit
// reveals up to 4 bits of the value.
//
// # Digests
//
// Seal also masks a string that is the SHA-256, in hex, of exactly a value: see digest.go.
//
// # Limits
//
// Only added values in the listed encodings are found: not compressed or encrypted ones, not those with terminal escapes
// between their letters, and not parts of a value. Detectors guarantee nothing.
//
// A marker of an added value is replaced by itself, so redacting twice changes nothing, with one exception: a value that
// begins or ends like a marker can join with one, and the second pass may then mask more.
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
	"unsafe"
)

const (
	// MinValue is the minimum length of a value in bytes: shorter ones occur by chance.
	MinValue = 8
	// MaxValue is the maximum length of a value in bytes. It bounds the data that a Stream holds back.
	MaxValue = 16 << 10

	minFolded = 4 // bytes of a value that are neither blank nor a dot
	maxName   = 64
)

// Redactor masks the values added to it. It is safe for concurrent use.
type Redactor struct {
	key       []byte
	detectors []Detector
	rules     atomic.Pointer[ruleset]
	plans     sync.Map // reflect.Type to *plan: see Seal
	bufs      sync.Pool

	adding sync.Mutex                     // serializes Adds, and guards known; readers only load rules
	known  map[[sha256.Size]byte]struct{} // hashes of the values
}

// ruleset has the values of a Redactor at one time. It never changes.
type ruleset struct {
	index   *index // nil without values
	values  []*value
	markers *markers  // of all rulesets of a Redactor
	digests *sync.Map // [sha256.Size]byte to *value, of all rulesets of a Redactor: see digest.go
}

type value struct {
	id       uint32 // index in ruleset.values
	name     string
	sum      [sha256.Size]byte // HMAC of the value
	marker   string
	raw      []byte
	folded   []byte
	literals []atomic.Pointer[[]byte] // see literal
	lines    breaks
	binary   bool  // it has bytes that a dump does not print
	trail    uint8 // blanks at the end of raw, at most as many as are counted
}

// New returns a Redactor without values. The key, 32 random bytes that belong to the project, determines the tags. The
// detectors, if any, search the text after the values are masked.
func New(key []byte, detectors ...Detector) *Redactor {
	r := &Redactor{key: bytes.Clone(key), detectors: detectors, known: map[[sha256.Size]byte]struct{}{}}
	r.rules.Store(&ruleset{markers: &markers{}, digests: &sync.Map{}})
	r.bufs.New = func() any { return newBuffer() }
	return r
}

// Add adds a value to mask, also in existing streams. The name is part of the marker. A value that was added before
// keeps its name; one name may have several values. Errors do not contain the value.
func (r *Redactor) Add(name string, val []byte) error {
	return r.AddAll(map[string][]byte{name: val})
}

// AddAll adds all values or, after an error, none.
func (r *Redactor) AddAll(values map[string][]byte) error {
	r.adding.Lock()
	defer r.adding.Unlock()
	old := r.rules.Load()
	next := &ruleset{values: old.values, markers: old.markers, digests: old.digests}
	var added []*value
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := check(name, values[name]); err != nil {
			return fmt.Errorf("redact %q: %w", name, err)
		}
		v := r.value(name, values[name])
		_, known := r.known[v.sum]
		if known || slices.ContainsFunc(added, func(o *value) bool { return o.sum == v.sum }) {
			continue
		}
		v.id = uint32(len(next.values))
		next.values, added = append(next.values, v), append(added, v)
	}
	if len(added) == 0 {
		return nil
	}
	var entries []entry
	for _, v := range added {
		entries = append(entries, v.forms()...)
	}
	entries = sorted(entries)
	next.index = old.index.with(entries)
	if v := next.inMarker(entries, old.values, added); v != nil {
		return fmt.Errorf("redact %q: %w", v.name, errInMarker)
	}
	for _, v := range added {
		r.known[v.sum] = struct{}{}
		next.markers.add(v)
		next.addDigests(v)
	}
	r.rules.Store(next)
	return nil
}

func check(name string, val []byte) error {
	switch {
	case name == "" || len(name) > maxName || strings.Trim(name, nameChars) != "":
		return fmt.Errorf("a name has 1 to %d letters, digits, '-', '_' or '.'", maxName)
	case len(val) < MinValue:
		return fmt.Errorf("the value has %d bytes; values under %d bytes also occur by chance", len(val), MinValue)
	case len(val) > MaxValue:
		return fmt.Errorf("the value has %d bytes; at most %d can be masked", len(val), MaxValue)
	case len(bytes.ReplaceAll(fold(val), []byte("."), nil)) < minFolded:
		return fmt.Errorf("the value has fewer than %d bytes other than white space and dots", minFolded)
	}
	return nil
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

func (r *Redactor) value(name string, val []byte) *value {
	v := &value{name: name, sum: r.sum(val), raw: bytes.Clone(val), folded: fold(val), lines: linesOf(val), literals: make([]atomic.Pointer[[]byte], len(literals))}
	v.trail = uint8(min(len(val)-len(bytes.TrimRight(val, " \n\t\r")), maxGap))
	v.binary = slices.ContainsFunc(val, func(b byte) bool { return b < ' ' || b > '~' })
	v.marker = marker(name, v.sum)
	return v
}

func (r *Redactor) sum(val []byte) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, r.key)
	mac.Write(val)
	mac.Sum(sum[:0])
	return sum
}

func tag(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:4]) }

func marker(name string, sum [sha256.Size]byte) string {
	return markerHead + name + ":" + tag(sum) + "]"
}

// Tag returns the tag of a value in markers: equal values have equal tags, and without the key a tag reveals nothing.
// The value need not have been added.
func (r *Redactor) Tag(value []byte) string { return tag(r.sum(value)) }

var errInMarker = errors.New("the value is part of a marker, that is of a secret's name or the word REDACTED, " +
	"which stay readable: give the secret another name or another value")

// inMarker returns a value that is part of a marker, and could be read there. The entries are those of the added values.
func (s *ruleset) inMarker(entries []entry, old, added []*value) *value {
	fresh := ruleset{index: (*index)(nil).with(entries), values: s.values, markers: s.markers, digests: s.digests}
	for _, v := range old {
		if m := fresh.within(v.marker); m != nil {
			return m
		}
	}
	for _, v := range added {
		if m := s.within(v.marker); m != nil {
			return m
		}
	}
	return nil
}

func (s *ruleset) within(marker string) *value {
	c := newScanner(s)
	c.scan([]byte(marker))
	c.end([]byte(marker), false)
	for _, m := range c.found {
		if m.end-m.start < len(marker) {
			return m.value
		}
	}
	return nil
}

// Digest identifies the ruleset: the version of the encodings, each value's name and tag, and the detectors' rules.
// Different rulesets have different digests, which do not reveal values.
func (r *Redactor) Digest() string {
	var lines []string
	for _, v := range r.rules.Load().values {
		lines = append(lines, v.name+":"+tag(v.sum)+"\n")
	}
	slices.Sort(lines)
	for _, d := range r.detectors {
		lines = append(lines, "detector:"+d.Digest()+"\n")
	}
	sum := sha256.Sum256([]byte(encodings + "\n" + strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}

// String returns s with all values masked, or s itself if it has none. Text that cannot be scanned is replaced by a
// notice.
func (r *Redactor) String(s string) string {
	if out := r.closed(view(s), false); out != nil {
		return string(out)
	}
	return s
}

// Bytes returns b with all values masked, or b itself if it has none.
func (r *Redactor) Bytes(b []byte) []byte {
	if out := r.closed(b, false); out != nil {
		return out
	}
	return b
}

// Cut is String for truncated text: it also masks 4 or more symbols at the end that could be the beginning of a value in
// any encoding, or 8 or more of one that was encoded twice.
func (r *Redactor) Cut(s string) string {
	if out := r.closed(view(s), true); out != nil {
		return string(out)
	}
	return s
}

// withheld replaces text that could not be scanned.
const withheld = "[WITHHELD:redactor failed]"

// closed is redact that fails closed.
func (r *Redactor) closed(t []byte, cut bool) (out []byte) {
	defer func() {
		if recover() != nil {
			out = []byte(withheld)
		}
	}()
	out, _ = r.redact(t, cut)
	return out
}

// Find returns the sorted names of the values that b contains in any form. It panics if b cannot be scanned.
func (r *Redactor) Find(b []byte) []string {
	return names(nil, spans(r.rules.Load(), b, false))
}

// view returns s as bytes, which must not be modified.
func view(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// redact returns t with markers, or nil if it has no values, and the names of the values found.
func (r *Redactor) redact(t []byte, cut bool) (out []byte, found []string) {
	if list := spans(r.rules.Load(), t, cut); len(list) > 0 {
		found = names(nil, list)
		out = replace(t, list)
		t = out
	}
	if hits := r.detect(t); len(hits) > 0 {
		out = r.replaceHits(t, hits)
	}
	return out, found
}

// spans returns the parts of t to mask.
func spans(rules *ruleset, t []byte, cut bool) []span {
	if rules.index == nil {
		return nil
	}
	s := newScanner(rules)
	s.scan(t)
	s.end(t, cut)
	if len(s.found) == 0 {
		return nil
	}
	var list []span
	for _, m := range s.take(len(t)) {
		list = join(list, m)
	}
	return list
}

func replace(t []byte, list []span) []byte {
	out := make([]byte, 0, len(t)+64)
	at := 0
	for _, m := range list {
		out = append(out, t[at:m.start]...)
		out = append(out, m.value.marker...)
		at = m.end
	}
	return append(out, t[at:]...)
}

// names adds the names of the spans' values to list, which is sorted and without repeats.
func names(list []string, spans []span) []string {
	for _, m := range spans {
		if at, ok := slices.BinarySearch(list, m.value.name); !ok {
			list = slices.Insert(list, at, m.value.name)
		}
	}
	return list
}
