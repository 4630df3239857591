package llm

import "encoding/json"

// keep lists the needed members of a JSON text, each with the keep of its value; nil: all. A keep applies to each
// element of an array.
type keep map[string]keep

// sieve parses JSON texts (RFC 8259) as they arrive and passes each on when it is complete, without the members that are
// not needed, which can have any length. The rest is unchanged, byte for byte.
//
// It checks only the structure: the texts may still be invalid, and encoding/json must check them. Each element of an
// array at the top level is a text.
type sieve struct {
	keep  keep
	whole func(text []byte) // called with a text, which is not valid after the call
	limit int               // maximum size of a text

	out   []byte
	stack []container
	tops  int    // 1 inside of a top-level array
	mode  mode   // inside of a string or a word, or between
	esc   bool   // the string's last byte was a backslash
	key   []byte // raw bytes of the current member's name, without quotes
	drop  int    // depth at which an ignored member began; 0: none
	wrong string // why parsing stopped; empty: no error
}

// container is an open object or array.
type container struct {
	object bool
	copied bool // it has output: a comma is needed before more
	keep   keep
	all    bool // all of it is needed
	next   slot
}

// slot is what can follow in a container.
type slot byte

const (
	slotKey   slot = iota // of an object: a name, or the end
	slotColon             // after a name
	slotValue             // a value, or an array's end
	slotComma             // after a value
)

type mode byte

const (
	between mode = iota
	inString
	inKey
	inWord // a number or a literal
)

const (
	maxDepth = 256  // of nesting
	maxKey   = 1024 // bytes of a member's name
)

// reset discards an incomplete text.
func (s *sieve) reset() {
	s.out, s.stack, s.key = s.out[:0], s.stack[:0], s.key[:0]
	s.tops, s.mode, s.esc, s.drop, s.wrong = 0, between, false, 0, ""
}

// idle reports whether no text has begun.
func (s *sieve) idle() bool {
	return len(s.stack) == 0 && s.tops == 0 && s.mode == between
}

// end ends the input: it completes a word at the top level.
func (s *sieve) end() {
	if s.wrong == "" && s.mode == inWord {
		s.word()
	}
}

// Write implements io.Writer; it never fails. After a syntax error it ignores its input.
func (s *sieve) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && s.wrong == "" {
		switch s.mode {
		case inString, inKey:
			p = s.inString(p)
		case inWord:
			p = s.inWord(p)
		default:
			s.structure(p[0])
			p = p[1:]
		}
	}
	return n, nil
}

// inString processes bytes up to a string's end.
func (s *sieve) inString(p []byte) []byte {
	i := 0
	for ; i < len(p); i++ {
		switch c := p[i]; {
		case s.esc:
			s.esc = false
		case c == '\\':
			s.esc = true
		case c == '"':
			s.text(p[:i])
			s.closed()
			return p[i+1:]
		}
	}
	s.text(p)
	return nil
}

func (s *sieve) text(p []byte) {
	if s.mode == inString {
		s.copy(p)
		return
	}
	if len(s.key)+len(p) > maxKey {
		s.wrong = "a member's name is too long"
		return
	}
	s.key = append(s.key, p...)
}

// closed is called at a string's end.
func (s *sieve) closed() {
	if s.wrong != "" {
		return
	}
	if s.mode == inString {
		s.copy([]byte{'"'})
		s.mode = between
		s.valueEnded()
		return
	}
	s.mode = between
	s.named()
}

// inWord processes bytes up to a number's or literal's end.
func (s *sieve) inWord(p []byte) []byte {
	for i, c := range p {
		switch c {
		case ' ', '\t', '\r', '\n', ',', ']', '}', ':', '"', '[', '{':
			s.copy(p[:i])
			s.word()
			return p[i:]
		}
	}
	s.copy(p)
	return nil
}

func (s *sieve) word() {
	s.mode = between
	s.valueEnded()
}

// structure processes a byte outside of strings and words.
func (s *sieve) structure(c byte) {
	top := s.top()
	switch c {
	case ' ', '\t', '\r', '\n':
		s.space(c)
	case '{', '[':
		s.open(c)
	case '}', ']':
		s.close(c)
	case ',':
		if top == nil && s.tops == 1 {
			return // between elements of the top-level array
		}
		if top == nil || top.next != slotComma {
			s.wrong = "an unexpected comma"
			return
		}
		top.next = slotValue
		if top.object {
			top.next = slotKey
		}
		if top.all {
			s.copy([]byte{','})
		}
	case ':':
		if top == nil || top.next != slotColon {
			s.wrong = "an unexpected colon"
			return
		}
		top.next = slotValue
		s.copy([]byte{':'})
	case '"':
		if top != nil && top.object && top.next == slotKey {
			s.mode, s.key = inKey, s.key[:0]
			return
		}
		if s.valueBegins() {
			s.mode = inString
			s.copy([]byte{'"'})
		}
	default:
		if s.valueBegins() {
			s.mode = inWord
			s.copy([]byte{c})
		}
	}
}

// space keeps white space only where everything is needed, so that a value's bytes are unchanged.
func (s *sieve) space(c byte) {
	if top := s.top(); top != nil && top.all && s.drop == 0 {
		s.copy([]byte{c})
	}
}

func (s *sieve) top() *container {
	if len(s.stack) == 0 {
		return nil
	}
	return &s.stack[len(s.stack)-1]
}

// named decides on a member after its name.
func (s *sieve) named() {
	top := s.top()
	top.next = slotColon
	if s.drop != 0 {
		return
	}
	if !top.all {
		if _, ok := top.keep[s.name()]; !ok {
			s.drop = len(s.stack)
			return
		}
	}
	s.comma(top)
	s.copy([]byte{'"'})
	s.copy(s.key)
	s.copy([]byte{'"'})
}

// name returns the member's name without escapes.
func (s *sieve) name() string {
	for _, c := range s.key {
		if c == '\\' {
			var name string
			if json.Unmarshal([]byte(`"`+string(s.key)+`"`), &name) != nil {
				return ""
			}
			return name
		}
	}
	return string(s.key)
}

// comma writes a comma before a member or an element, unless it was copied.
func (s *sieve) comma(top *container) {
	if top.copied && !top.all {
		s.copy([]byte{','})
	}
	top.copied = true
}

// valueBegins reports whether a value is expected here.
func (s *sieve) valueBegins() bool {
	top := s.top()
	if top == nil {
		return true
	}
	if top.next != slotValue {
		s.wrong = "an unexpected value"
		return false
	}
	if !top.object && s.drop == 0 {
		s.comma(top)
	}
	return true
}

// valueEnded is called after each value.
func (s *sieve) valueEnded() {
	top := s.top()
	if top == nil {
		text := s.out
		s.out = s.out[:0]
		if s.wrong == "" && len(text) > 0 {
			s.whole(text)
		}
		return
	}
	top.next = slotComma
	if s.drop == len(s.stack) {
		s.drop = 0
	}
}

// open begins an object or array.
func (s *sieve) open(c byte) {
	if !s.valueBegins() {
		return
	}
	if c == '[' && len(s.stack) == 0 && s.tops == 0 {
		s.tops = 1
		return
	}
	if len(s.stack) == maxDepth {
		s.wrong = "it is nested too deeply"
		return
	}
	n := container{object: c == '{', keep: s.keep, all: s.keep == nil, next: slotValue}
	if n.object {
		n.next = slotKey
	}
	if top := s.top(); top != nil {
		n.keep, n.all = top.keep, top.all
		if top.object && !top.all && s.drop == 0 {
			n.keep = top.keep[s.name()]
			n.all = n.keep == nil
		}
	}
	s.copy([]byte{c})
	s.stack = append(s.stack, n)
}

// close ends an object or array.
func (s *sieve) close(c byte) {
	top := s.top()
	if top == nil {
		if c != ']' || s.tops != 1 {
			s.wrong = "an unmatched closing bracket"
		}
		s.tops = 0
		return
	}
	if top.object != (c == '}') || top.next == slotColon || top.object && top.next == slotValue {
		s.wrong = "an unmatched closing bracket"
		return
	}
	s.copy([]byte{c})
	s.stack = s.stack[:len(s.stack)-1]
	s.valueEnded()
}

// copy adds to the text, unless the member is ignored.
func (s *sieve) copy(p []byte) {
	if s.drop != 0 {
		return
	}
	if len(s.out)+len(p) > s.limit {
		s.wrong = "it is too long"
		return
	}
	s.out = append(s.out, p...)
}
