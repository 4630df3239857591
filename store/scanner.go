package store

import (
	"encoding/binary"
	"math/bits"
)

// scanner parses JSON without space. Its methods advance i past what they have parsed, and return false if they cannot parse
// it.
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

// key parses a key of [a-z0-9_] and its colon: encoding/json treats upper case, and
// letters outside ASCII that fold to these, as the same key.
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

// plain parses a string without escapes, in ASCII. The result is never nil.
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

// uint parses a number of up to 19 digits, which fits.
func (s *scanner) uint() (n uint64, ok bool) {
	begin := s.i
	for ; s.i < len(s.b) && isDigit(s.b[s.i]); s.i++ {
		n = n*10 + uint64(s.b[s.i]-'0')
	}
	digits := s.i - begin
	return n, digits > 0 && digits < 20 && (digits == 1 || s.b[begin] != '0')
}

// value skips any value. It fails if the nesting exceeds 64.
func (s *scanner) value() bool {
	var objects uint64 // bit by bit, the type of the enclosing values: 1 for an object
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

// open parses the beginning of an object or array, and its end if it is empty.
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

// text skips a string. It does not check for valid UTF-8, nor for
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
// escape anything nor are control characters. It checks eight at a time: a byte of x
// is zero if x-1 borrows into its highest bit and that was not set.
func usual(b []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote, slash := x^ones*'"', x^ones*'\\'
		control := (x - ones*' ') &^ x
		if odd := (control | (quote-ones)&^quote | (slash-ones)&^slash) & high; odd != 0 {
			return n + bits.TrailingZeros64(odd)/8 // the lowest is exact; borrows affect only higher ones
		}
	}
	for n < len(b) && b[n] != '"' && b[n] != '\\' && b[n] >= ' ' {
		n++
	}
	return n
}

// escape skips a backslash and the escaped character.
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
