package store

import (
	"encoding/binary"
	"math/bits"

	"github.com/custody-project/custody/audit"
)

// Reading heads bounds how fast a store takes records in, so that the form in which
// Custody writes them has a reader of its own. It understands JSON (RFC 8259)
// without space between tokens, keys of [a-z0-9_] where they matter, none of those twice,
// plain ASCII in the values that matter, and the kind before the payload.
// Whatever else comes is not refused here but left to encoding/json, so that
// both readers can only ever say the same: FuzzParseHead holds them to it.

// field is a value of a payload that stands in a head.
type field int

const (
	noField field = iota
	proc
	path
	host
	address // instead of a host
	hash
	secret
	rule
	fields
)

// fieldOf says what a payload's key is for.
func fieldOf(kind audit.Kind, key []byte) field {
	switch kind {
	case audit.KindExec:
		switch string(key) {
		case "proc":
			return proc
		case "exe":
			return path
		}
	case audit.KindExit:
		if string(key) == "proc" {
			return proc
		}
	case audit.KindFile:
		switch string(key) {
		case "proc":
			return proc
		case "path":
			return path
		case "sha256":
			return hash
		}
	case audit.KindFlow:
		switch string(key) {
		case "proc":
			return proc
		case "name":
			return host
		case "dst_ip":
			return address
		}
	case audit.KindDNS:
		if string(key) == "name" {
			return host
		}
	case audit.KindHTTP:
		switch string(key) {
		case "host":
			return host
		case "credential":
			return secret
		}
	case audit.KindLLM:
		if string(key) == "host" {
			return host
		}
	case audit.KindSecret:
		switch string(key) {
		case "name":
			return secret
		case "host":
			return host
		}
	case audit.KindFinding:
		switch string(key) {
		case "proc":
			return proc
		case "rule":
			return rule
		case "secret":
			return secret
		}
	}
	return noField
}

// known returns k without an allocation where it is one that has a payload to look at, else ok is false.
func known(k []byte) (kind audit.Kind, ok bool) {
	for _, kind := range [...]audit.Kind{audit.KindExec, audit.KindExit, audit.KindFile, audit.KindFlow, audit.KindDNS,
		audit.KindHTTP, audit.KindLLM, audit.KindSecret, audit.KindFinding} {
		if string(k) == string(kind) {
			return kind, true
		}
	}
	return "", false
}

// The keys of the envelope, as bits to find one that comes twice.
const (
	sawRun = 1 << iota
	sawSeq
	sawTime
	sawObserver
	sawKind
	sawStep
	sawPayload
)

// scanHead reads a head; ok is false when encoding/json has to. run is what the
// caller expects the run to be, which saves a copy of it.
func scanHead(body []byte, run string) (h Head, ok bool) {
	s := scanner{b: body}
	if !s.is('{') {
		return h, false
	}
	seen := 0
	for {
		key, ok := s.key()
		if !ok {
			return h, false
		}
		saw, ok := s.member(&h, key, run)
		if !ok || seen&saw != 0 {
			return h, false
		}
		seen |= saw
		if s.is(',') {
			continue
		}
		return h, s.is('}') && s.i == len(s.b) && h.check() == nil
	}
}

// member reads the value of a key of the envelope, and says which it was.
func (s *scanner) member(h *Head, key []byte, run string) (saw int, ok bool) {
	var text []byte
	switch string(key) {
	case "run":
		text, ok = s.plain()
		if h.Run = run; string(text) != run {
			h.Run = string(text)
		}
		return sawRun, ok
	case "seq":
		h.Seq, ok = s.uint()
		return sawSeq, ok
	case "time":
		if text, ok = s.plain(); ok {
			h.Time, ok = parseTime(text)
		}
		return sawTime, ok
	case "observer":
		text, ok = s.plain()
		h.Observer = observer(text)
		return sawObserver, ok
	case "kind":
		text, ok = s.plain()
		h.Kind = kindOf(text)
		return sawKind, ok
	case "step":
		text, ok = s.plain()
		h.Step = string(text)
		return sawStep, ok
	case "lifecycle", "gap": // rare, and decoded further
		return 0, false
	}
	if kind, ok := known(key); ok {
		return sawPayload, kind == h.Kind && s.payload(h)
	}
	return 0, s.value()
}

func observer(text []byte) audit.Observer {
	switch string(text) {
	case string(audit.Host):
		return audit.Host
	case string(audit.Guest):
		return audit.Guest
	}
	return audit.Observer(text)
}

func kindOf(text []byte) audit.Kind {
	if kind, ok := known(text); ok {
		return kind
	}
	if string(text) == string(audit.KindOutput) {
		return audit.KindOutput
	}
	return audit.Kind(text)
}

// payload reads the payload of h's kind.
func (s *scanner) payload(h *Head) bool {
	if !s.is('{') {
		return false
	}
	var values [fields][]byte
	if s.is('}') {
		return true
	}
	for {
		key, ok := s.key()
		if !ok {
			return false
		}
		if f := fieldOf(h.Kind, key); f == noField {
			ok = s.value()
		} else if values[f] != nil {
			return false // twice
		} else {
			values[f], ok = s.plain()
		}
		if !ok {
			return false
		}
		if s.is(',') {
			continue
		}
		h.take(&values)
		return s.is('}')
	}
}

func (h *Head) take(values *[fields][]byte) {
	h.Proc, h.Path, h.Hash = string(values[proc]), string(values[path]), string(values[hash])
	h.Secret, h.Rule = string(values[secret]), string(values[rule])
	if h.Host = HostName(string(values[host])); h.Host == "" {
		h.Host = HostName(string(values[address]))
	}
}

// scanner walks over JSON without space. Its methods move i behind what they
// read, and return false where that is not what they are for.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) is(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// key reads a key of [a-z0-9_] and its colon: encoding/json takes upper case, and
// letters outside ASCII that fold to these, for the same key.
func (s *scanner) key() ([]byte, bool) {
	if !s.is('"') {
		return nil, false
	}
	for i := s.i; i < len(s.b); i++ {
		c := s.b[i]
		if c >= 'a' && c <= 'z' || c == '_' || c >= '0' && c <= '9' {
			continue
		}
		key := s.b[s.i:i]
		s.i = i
		return key, s.is('"') && s.is(':')
	}
	return nil, false
}

// plain reads a string that stands for itself: ASCII without escapes. It is never nil.
func (s *scanner) plain() ([]byte, bool) {
	if !s.is('"') {
		return nil, false
	}
	for i := s.i; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			text := s.b[s.i:i]
			s.i = i + 1
			return text, true
		case c < ' ' || c >= 0x80 || c == '\\':
			return nil, false
		}
	}
	return nil, false
}

// uint reads a number of up to 19 digits, which fits.
func (s *scanner) uint() (n uint64, ok bool) {
	begin := s.i
	for ; s.i < len(s.b) && isDigit(s.b[s.i]); s.i++ {
		n = n*10 + uint64(s.b[s.i]-'0')
	}
	digits := s.i - begin
	return n, digits > 0 && digits < 20 && (digits == 1 || s.b[begin] != '0')
}

// value skips any value. Deeper than 64 it gives up.
func (s *scanner) value() bool {
	var objects uint64 // bit by bit, what the value lies in: 1 for an object
	depth := 0
	for {
		switch begun, empty := s.open(); {
		case begun == 0:
			if !s.scalar() {
				return false
			}
		case !empty:
			if depth++; depth > 64 {
				return false
			}
			if objects <<= 1; begun == '{' {
				objects |= 1
				if !s.anyKey() {
					return false
				}
			}
			continue
		}
		for depth > 0 && !s.is(',') {
			end := byte(']')
			if objects&1 == 1 {
				end = '}'
			}
			if !s.is(end) {
				return false
			}
			objects >>= 1
			depth--
		}
		if depth == 0 {
			return true
		}
		if objects&1 == 1 && !s.anyKey() {
			return false
		}
	}
}

// open reads the beginning of an object or array, and its end if it is empty.
func (s *scanner) open() (begun byte, empty bool) {
	switch {
	case s.is('{'):
		return '{', s.is('}')
	case s.is('['):
		return '[', s.is(']')
	}
	return 0, false
}

func (s *scanner) anyKey() bool { return s.text() && s.is(':') }

func (s *scanner) scalar() bool {
	if s.i == len(s.b) {
		return false
	}
	switch s.b[s.i] {
	case '"':
		return s.text()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	return s.number()
}

func (s *scanner) literal(word string) bool {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return false
	}
	s.i += len(word)
	return true
}

// number skips a number (RFC 8259, section 6).
func (s *scanner) number() bool {
	s.is('-')
	if !s.is('0') && !s.digits() {
		return false
	}
	if s.is('.') && !s.digits() {
		return false
	}
	if s.is('e') || s.is('E') {
		_ = s.is('+') || s.is('-')
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	begin := s.i
	for s.i < len(s.b) && isDigit(s.b[s.i]) {
		s.i++
	}
	return s.i > begin
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// text skips a string. Bytes that are no UTF-8 are none of its business, nor are
// they of encoding/json's, which replaces them.
func (s *scanner) text() bool {
	if !s.is('"') {
		return false
	}
	for {
		s.i += usual(s.b[s.i:])
		if s.i == len(s.b) {
			return false
		}
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return true
		case c != '\\' || !s.escape():
			return false
		}
	}
}

// usual returns how many bytes at the beginning of b neither end a string nor
// escape anything nor are control characters. It looks at eight at a time: a byte of x
// is zero where x-1 borrows into its highest bit and that was not set.
func usual(b []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote, slash := x^ones*'"', x^ones*'\\'
		control := (x - ones*' ') &^ x
		if odd := (control | (quote-ones)&^quote | (slash-ones)&^slash) & high; odd != 0 {
			return n + bits.TrailingZeros64(odd)/8 // the lowest is right; borrows reach only those above it
		}
	}
	for n < len(b) && b[n] != '"' && b[n] != '\\' && b[n] >= ' ' {
		n++
	}
	return n
}

// escape skips a backslash and what it escapes.
func (s *scanner) escape() bool {
	if len(s.b)-s.i < 2 {
		return false
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return true
	case 'u':
		return s.hex4()
	}
	return false
}

func (s *scanner) hex4() bool {
	if len(s.b)-s.i < 6 {
		return false
	}
	for _, c := range s.b[s.i+2 : s.i+6] {
		if !isDigit(c) && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	s.i += 6
	return true
}
