package llm

import "encoding/json"

// keep lists the members of a JSON text matter: those named, and of them what
// their own keep says; nil: all. Arrays are looked through: what is said holds for each element.
type keep map[string]keep

// sieve reads JSON texts (RFC 8259) as they arrive and hands each on when it is
// whole, without the members that do not matter. Their length is of no consequence,
// and what remains is byte for byte as it came.
//
// It looks at the structure only: what it hands on may still be wrong inside, and
// is for encoding/json to judge. Of an array at the top, each element is a text.
type sieve struct {
	keep  keep
	whole func(text []byte) // a text; not valid after the call
	limit int               // bytes of a text that are kept

	out   []byte
	stack []container
	tops  int    // 1 inside of a top-level array
	mode  mode   // inside of a string, a word, or between
	esc   bool   // the string's last byte was a backslash
	key   []byte // raw bytes of the member's name that is being read, without quotes
	drop  int    // depth at which a member began that does not matter; 0: none
	wrong string // why nothing more is read; empty: all is well
}

// container is an object or array that is open.
type container struct {
	object bool
	copied bool // something of it is in out: a comma comes first
	keep   keep
	all    bool // all of it matters
	next   slot
}

// slot is what comes next in a container.
type slot byte

const (
	slotKey   slot = iota // of an object: a name, or the end
	slotColon             // behind a name
	slotValue             // a value, or an array's end
	slotComma             // behind a value
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

// reset forgets a text that is not whole.
func (s *sieve) reset() {
	s.out, s.stack, s.key = s.out[:0], s.stack[:0], s.key[:0]
	s.tops, s.mode, s.esc, s.drop, s.wrong = 0, between, false, 0, ""
}

// idle reports that no text has begun.
func (s *sieve) idle() bool {
	return len(s.stack) == 0 && s.tops == 0 && s.mode == between
}

// end ends the input: a word at the top is whole only then.
func (s *sieve) end() {
	if s.wrong == "" && s.mode == inWord {
		s.word()
	}
}

// Write implements io.Writer; it never fails. After something that is no JSON it ignores what comes.
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

// inString takes bytes up to a string's end.
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

// inWord takes bytes up to a number's or literal's end.
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

// structure takes a byte outside of strings and words.
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
			s.wrong = "a comma stands where none can"
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
			s.wrong = "a colon stands where none can"
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

// space keeps white space only where all matters, so that a value's bytes are as they came.
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

// named decides on a member whose name was read.
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

// name is the member's name without escapes.
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

// comma puts one before a member or an element, unless it has come by itself.
func (s *sieve) comma(top *container) {
	if top.copied && !top.all {
		s.copy([]byte{','})
	}
	top.copied = true
}

// valueBegins reports whether a value can stand here.
func (s *sieve) valueBegins() bool {
	top := s.top()
	if top == nil {
		return true
	}
	if top.next != slotValue {
		s.wrong = "a value stands where none can"
		return false
	}
	if !top.object && s.drop == 0 {
		s.comma(top)
	}
	return true
}

// valueEnded is called behind each value.
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

// close ends one.
func (s *sieve) close(c byte) {
	top := s.top()
	if top == nil {
		if c != ']' || s.tops != 1 {
			s.wrong = "a bracket closes what is not open"
		}
		s.tops = 0
		return
	}
	if top.object != (c == '}') || top.next == slotColon || top.object && top.next == slotValue {
		s.wrong = "a bracket closes what is not open"
		return
	}
	s.copy([]byte{c})
	s.stack = s.stack[:len(s.stack)-1]
	s.valueEnded()
}

// copy adds to the text, unless the member does not matter.
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
