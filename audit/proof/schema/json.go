package schema

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf8"
)

// syntaxError is an error in the JSON; any other error is about the form of a record.
type SyntaxError string

func (e SyntaxError) Error() string { return string(e) }

func (s *Scanner) fail(err error) bool {
	if s.fault == nil {
		s.fault = err
	}
	return false
}

func (s *Scanner) syntax(what string) bool {
	return s.fail(SyntaxError(fmt.Sprintf("%s at byte %d", what, s.at)))
}

// peek returns the next byte, 0 at the end; no JSON contains 0.
func (s *Scanner) peek() byte {
	if s.at < len(s.b) {
		return s.b[s.at]
	}
	return 0
}

// word consumes w if it is next.
func (s *Scanner) word(w string) bool {
	if len(s.b)-s.at < len(w) || string(s.b[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

// value reads one value of the given shape.
func (s *Scanner) value(sh *shape) bool {
	if sh.nullable && s.word("null") {
		return true
	}
	switch sh.form {
	case literal:
		return s.string()
	case signedInt, unsignedInt:
		return s.integer(sh)
	case boolean:
		return s.word("true") || s.word("false") || s.syntax("neither true nor false")
	case text:
		return s.text()
	case instant:
		return s.instant()
	case list:
		return s.list(sh.elem)
	}
	return s.object(sh)
}

func (s *Scanner) list(elem *shape) bool {
	if !s.word("[") {
		return s.syntax("not a list")
	}
	if s.word("]") {
		return true
	}
	for s.value(elem) {
		if s.word("]") {
			return true
		}
		if !s.word(",") {
			return s.syntax("neither a comma nor the end of a list")
		}
	}
	return false
}

// object reads an object with the fields of sh, in their order.
func (s *Scanner) object(sh *shape) bool {
	if !s.word("{") {
		return s.syntax("not an object")
	}
	var seen uint64
	for due := 0; ; {
		if due == 0 && s.word("}") {
			break
		}
		i, ok := s.name(sh, due)
		if !ok || !s.field(sh, i) {
			return false
		}
		seen |= 1 << i
		due = i + 1
		if s.word("}") {
			break
		}
		if !s.word(",") {
			return s.syntax("neither a comma nor the end of an object")
		}
	}
	if lacks := sh.required &^ seen; lacks != 0 {
		return s.fail(fmt.Errorf("it lacks %s before byte %d", sh.fields[bits.TrailingZeros64(lacks)].name, s.at))
	}
	return true
}

// name reads a field's name and the colon, and returns which field of sh it is. Fields come in their order.
func (s *Scanner) name(sh *shape, due int) (i int, ok bool) {
	for i := due; i < len(sh.fields); i++ {
		if s.word(sh.fields[i].quoted) {
			return i, true
		}
	}
	for _, f := range sh.fields[:due] {
		if s.word(f.quoted) {
			return 0, s.fail(fmt.Errorf("%s comes twice, or out of order, before byte %d", f.name, s.at))
		}
	}
	n := 1
	for s.at+n < len(s.b) && isName(s.b[s.at+n]) {
		n++
	}
	if name := s.b[s.at:min(s.at+n, len(s.b))]; n == 1 || n > maxFieldName || name[0] != '"' || !bytes.HasPrefix(s.b[s.at+n:], []byte(`":`)) {
		return 0, s.syntax("not a name of a field")
	}
	s.stranger = string(s.b[s.at+1 : s.at+n])
	return 0, false
}

// maxFieldName bounds the name of a field, in bytes, with the quote before it.
const maxFieldName = 65

// isName reports whether c can occur in the name of a field, of this version or a later one.
func isName(c byte) bool { return c >= 'a' && c <= 'z' || isDigit(c) || c == '_' }

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// string reads a string, eight bytes at a time where no byte is special.
func (s *Scanner) string() bool {
	if !s.word(`"`) {
		return s.syntax("not a string")
	}
	for {
		for s.at+8 <= len(s.b) {
			w := binary.LittleEndian.Uint64(s.b[s.at:])
			// The lowest high bit set marks the first byte that is below ' ' or is one of these.
			quote, slash, separator := w^(ones*'"'), w^(ones*'\\'), w^(ones*0xe2)
			m := ((w-ones*' ')&^w | zero(quote) | zero(slash) | zero(separator)) & highs
			if m != 0 {
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
		case c < ' ' || c == 0xe2 && s.separator():
			return s.syntax("what has to be escaped, or the end, in a string")
		default:
			s.at++
		}
	}
}

// zero returns the high bit of each zero byte of w; it is exact for the lowest one, and may be wrong for higher ones.
func zero(w uint64) uint64 { return (w - ones) &^ w }

// separator reports whether a line or paragraph separator, U+2028 or U+2029, is next.
func (s *Scanner) separator() bool {
	rest := s.b[s.at:]
	return len(rest) >= 3 && rest[1] == 0x80 && rest[2]&^1 == 0xa8
}

// escape reads an escape sequence that encoding/json writes.
func (s *Scanner) escape() bool {
	rest := s.b[s.at+1:]
	if len(rest) > 0 && bytes.IndexByte([]byte(`"\bfnrt`), rest[0]) >= 0 {
		s.at += 2
		return true
	}
	if len(rest) >= 5 && rest[0] == 'u' && escaped(string(rest[1:5])) {
		s.at += 6
		return true
	}
	return s.syntax("not an escape")
}

// escaped reports whether encoding/json writes the character with that hexadecimal number as \u and the number. Custody
// writes <, > and &, and U+FFFD, in both forms.
func escaped(hex string) bool {
	switch hex {
	case "003c", "003e", "0026", "2028", "2029", "fffd": // the last represents bytes that are not UTF-8
		return true
	case "0008", "0009", "000a", "000c", "000d": // these have short escapes
		return false
	}
	last := hex[3]
	return (hex[:3] == "000" || hex[:3] == "001") && (isDigit(last) || last >= 'a' && last <= 'f')
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// integer reads an integer that fits its type.
func (s *Scanner) integer(sh *shape) bool {
	start := s.at
	if sh.form == signedInt {
		s.word("-")
	}
	digits := digitsOf(s.b[s.at:])
	first := s.peek()
	s.at += digits
	if digits == 0 || first == '0' && s.at-start > 1 {
		return s.syntax("not an integer")
	}
	if digits <= 9 {
		return true // it fits all types
	}
	n := string(s.b[start:s.at])
	var err error
	if sh.form == signedInt {
		_, err = strconv.ParseInt(n, 10, sh.bits)
	} else {
		_, err = strconv.ParseUint(n, 10, sh.bits)
	}
	if err != nil {
		return s.fail(fmt.Errorf("%.40q is not an integer of %d bits", n, sh.bits))
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

// text reads a string, or the form of audit.Text for bytes that are not UTF-8.
func (s *Scanner) text() bool {
	if s.peek() == '"' {
		return s.string()
	}
	const before, behind = `{"base64":"`, `"}`
	start := s.at
	if s.word(before) {
		if n := bytes.IndexByte(s.b[s.at:], '"'); n >= 0 {
			raw, err := base64.StdEncoding.Strict().DecodeString(string(s.b[s.at : s.at+n]))
			s.at += n
			if s.word(behind) && err == nil && !utf8.Valid(raw) && !bytes.ContainsAny(s.b[start:s.at], "\r\n") {
				return true
			}
		}
	}
	return s.syntax("neither a string nor bytes in base64")
}

// instant reads a time in UTC, in the RFC 3339 form of package time, with a year from 1 to 9999.
func (s *Scanner) instant() bool {
	start := s.at
	if !s.string() {
		return false
	}
	text := s.b[start+1 : s.at-1]
	t, err := time.Parse(time.RFC3339Nano, string(text))
	var again [len(time.RFC3339Nano)]byte
	if err != nil || t.Year() < 1 || len(text) == 0 || text[len(text)-1] != 'Z' || !bytes.Equal(t.AppendFormat(again[:0], time.RFC3339Nano), text) {
		return s.fail(fmt.Errorf("not a time in UTC at byte %d", start))
	}
	return true
}
