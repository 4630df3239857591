package proof

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// syntaxError is about JSON itself; any other fault is about the form of a record.
type syntaxError string

func (e syntaxError) Error() string { return string(e) }

func (s *scanner) fail(err error) bool {
	if s.fault == nil {
		s.fault = err
	}
	return false
}

func (s *scanner) syntax(what string) bool {
	return s.fail(syntaxError(fmt.Sprintf("%s at byte %d", what, s.at)))
}

// peek returns the byte that is next, 0 at the end; 0 is no part of any JSON.
func (s *scanner) peek() byte {
	if s.at < len(s.b) {
		return s.b[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// value reads one value of the given shape.
func (s *scanner) value(sh *shape) bool {
	s.space()
	c := s.peek()
	if c == 'n' && sh.form != text { // audit.Text is never null
		return s.word("null")
	}
	switch sh.form {
	case literal:
		return s.want(c == '"', "a string") && s.skip()
	case signedInt, unsignedInt:
		return s.want(c == '-' || isDigit(c), "a number") && s.integer(sh)
	case boolean:
		return s.want(c == 't' || c == 'f', "true or false") && s.any()
	case text:
		return s.text()
	case instant:
		return s.want(c == '"', "a time") && s.instant(&time.Time{})
	case list:
		return s.want(c == '[', "a list") && s.list(sh.elem)
	case object:
		return s.want(c == '{', "an object") && s.object(sh)
	}
	return s.any()
}

// want fails if a value of another form is there. What is no value at all is a matter of syntax.
func (s *scanner) want(ok bool, what string) bool {
	if ok {
		return true
	}
	at := s.at
	return s.any() && s.fail(fmt.Errorf("not %s at byte %d", what, at))
}

// any reads a value of any form.
func (s *scanner) any() bool {
	s.space()
	switch c := s.peek(); {
	case c == '"':
		return s.skip()
	case c == '{':
		return s.object(s.schema.free)
	case c == '[':
		return s.list(s.schema.free)
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case c == '-' || isDigit(c):
		return s.number()
	}
	return s.syntax("no value")
}

func (s *scanner) word(w string) bool {
	if string(s.b[s.at:min(s.at+len(w), len(s.b))]) != w {
		return s.syntax("no value")
	}
	s.at += len(w)
	return true
}

// enter steps into an object or a list.
func (s *scanner) enter() bool {
	s.at++
	if s.depth++; s.depth > maxDepth {
		return s.syntax("values are nested too deep")
	}
	s.space()
	return true
}

func (s *scanner) leave() bool {
	s.at++
	s.depth--
	return true
}

// more goes on to what follows a comma, and says no at the end.
func (s *scanner) more(end byte) (more, ok bool) {
	s.space()
	switch s.peek() {
	case ',':
		s.at++
		s.space()
		return true, true
	case end:
		return false, s.leave()
	}
	return false, s.syntax("neither a comma nor the end")
}

func (s *scanner) list(elem *shape) bool {
	if !s.enter() {
		return false
	}
	if s.peek() == ']' {
		return s.leave()
	}
	for {
		if !s.value(elem) {
			return false
		}
		if more, ok := s.more(']'); !more {
			return ok
		}
	}
}

// object reads an object with the fields of sh.
func (s *scanner) object(sh *shape) bool {
	if !s.enter() {
		return false
	}
	if s.peek() == '}' {
		return s.leave()
	}
	var seen uint64
	for due := 0; ; {
		i, ok := s.name(sh, due)
		switch {
		case !ok:
			return false
		case i < 0:
			ok = s.any()
		case seen&(1<<i) != 0:
			return s.fail(fmt.Errorf("%q comes twice", sh.fields[i].name))
		default:
			seen |= 1 << i
			due = i + 1
			ok = s.field(sh, i)
		}
		if !ok {
			return false
		}
		if more, ok := s.more('}'); !more {
			return ok
		}
	}
}

// name reads a field's name and the colon, and returns which field of sh it is, -1 if none.
// Fields come in order as a rule: the search begins with the one that is due.
func (s *scanner) name(sh *shape, due int) (i int, ok bool) {
	start := s.at
	if s.peek() != '"' {
		return 0, s.syntax("no name")
	}
	if !s.skip() {
		return 0, false
	}
	name := s.unquote(s.b[start:s.at])
	if s.space(); s.peek() != ':' {
		return 0, s.syntax("no colon")
	}
	s.at++
	for i := due; i < len(sh.fields); i++ {
		if sh.fields[i].name == string(name) {
			return i, true
		}
	}
	for i := range min(due, len(sh.fields)) {
		if sh.fields[i].name == string(name) {
			return i, true
		}
	}
	return -1, sh.form != object || s.stranger(sh, string(name))
}

// stranger keeps the name of a field that is not known. One that differs from a known one by
// case alone is refused: decoders differ in whether it is the same.
func (s *scanner) stranger(sh *shape, name string) bool {
	for _, f := range sh.fields {
		if strings.EqualFold(f.name, name) {
			return s.fail(fmt.Errorf("%.40q is not %q", name, f.name))
		}
	}
	name = name[:min(len(name), maxUnknownBytes)]
	if _, ok := s.unknown[name]; !ok && len(s.unknown) < maxUnknown {
		s.unknown[name] = struct{}{}
	}
	return true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// skip reads a string, eight bytes at a time where nothing in them matters.
func (s *scanner) skip() bool {
	s.at++
	s.escaped = false
	for {
		for s.at+8 <= len(s.b) {
			w := binary.LittleEndian.Uint64(s.b[s.at:])
			// The lowest high bit set is that of the first byte below ' ', equal to '"' or to '\\'.
			quote, slash := w^(ones*'"'), w^(ones*'\\')
			if m := ((w-ones*' ')&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs; m != 0 {
				s.at += bits.TrailingZeros64(m) / 8
				break
			}
			s.at += 8
		}
		switch c := s.peek(); {
		case c == '"':
			s.at++
			return true
		case c == '\\':
			if !s.escape() {
				return false
			}
		case c < ' ':
			return s.syntax("a control character or the end in a string")
		default:
			s.at++
		}
	}
}

func (s *scanner) escape() bool {
	s.escaped = true
	rest := s.b[s.at+1:]
	if len(rest) == 0 {
		return s.syntax("the end in a string")
	}
	switch rest[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return true
	case 'u':
		if len(rest) >= 5 && isHex(rest[1]) && isHex(rest[2]) && isHex(rest[3]) && isHex(rest[4]) {
			s.at += 6
			return true
		}
	}
	return s.syntax("no escape")
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// unquote returns what the string that was read last says.
func (s *scanner) unquote(quoted []byte) []byte {
	if !s.escaped {
		return quoted[1 : len(quoted)-1]
	}
	var plain string
	if err := json.Unmarshal(quoted, &plain); err != nil {
		s.fail(syntaxError(err.Error()))
	}
	return []byte(plain)
}

// digits moves over digits and says how many there were.
func (s *scanner) digits() (n int) {
	for isDigit(s.peek()) {
		s.at++
		n++
	}
	return n
}

// number reads a number (RFC 8259, section 6).
func (s *scanner) number() bool {
	if s.peek() == '-' {
		s.at++
	}
	zero := s.peek() == '0'
	if n := s.digits(); n == 0 || zero && n > 1 {
		return s.syntax("no number")
	}
	if s.peek() == '.' {
		s.at++
		if s.digits() == 0 {
			return s.syntax("no fraction")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		if s.digits() == 0 {
			return s.syntax("no exponent")
		}
	}
	return true
}

// integer reads a whole number that fits its type.
func (s *scanner) integer(sh *shape) bool {
	start := s.at
	if !s.number() {
		return false
	}
	n := s.b[start:s.at]
	if len(n) <= 9 && digitsOf(n) == len(n) {
		return true // it fits them all
	}
	var err error
	if sh.form == signedInt {
		_, err = strconv.ParseInt(string(n), 10, sh.bits)
	} else {
		_, err = strconv.ParseUint(string(n), 10, sh.bits)
	}
	if err != nil {
		return s.fail(fmt.Errorf("%.40q is no whole number of %d bits", n, sh.bits))
	}
	return true
}

// digitsOf counts the digits at the front of n.
func digitsOf(n []byte) (i int) {
	for i < len(n) && isDigit(n[i]) {
		i++
	}
	return i
}

// text reads a string, or what audit.Text makes of bytes that are none.
func (s *scanner) text() bool {
	if s.peek() == '"' {
		return s.skip()
	}
	start := s.at
	if !s.any() {
		return false
	}
	var t audit.Text
	if err := t.UnmarshalJSON(s.b[start:s.at]); err != nil {
		return s.fail(err)
	}
	return true
}

// instant reads a time as encoding/json does: without a look at escapes.
func (s *scanner) instant(t *time.Time) bool {
	start := s.at
	if !s.skip() {
		return false
	}
	if err := t.UnmarshalText(s.b[start+1 : s.at-1]); err != nil {
		return s.fail(fmt.Errorf("no time at byte %d", start))
	}
	return true
}
