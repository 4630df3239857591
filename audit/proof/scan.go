package proof

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
)

const (
	maxDepth        = 100 // of values in a record
	maxUnknown      = 16  // names of unknown fields that are kept
	maxUnknownBytes = 64  // of each
)

// head is what Verify needs of a record.
type head struct {
	kind     audit.Kind
	known    bool // the kind is one that this version knows
	observer audit.Observer
	time     time.Time
}

// scanner reads records against the schema, one after the other. It is several times
// faster than decoding them and takes the same ones; the tests hold it against encoding/json.
// JSON is RFC 8259's, in UTF-8, and no field that is known comes twice in an object.
// Fields that are not known are allowed, at any depth: a newer version may write more. It is
// not safe for concurrent use.
type scanner struct {
	schema  *schema
	unknown map[string]struct{} // names of fields, of all records so far

	b       []byte
	at      int
	depth   int
	fault   error // the first, which ends the scan
	escaped bool  // the string that was read last has escapes

	// what the record's own fields say
	seen           uint64 // a bit for each of them that is there
	kind, observer []byte
	time           time.Time
}

func newScanner(c *schema) *scanner { return &scanner{schema: c, unknown: map[string]struct{}{}} }

// scan checks a whole record. The error is a syntaxError if it is not even JSON.
func (s *scanner) scan(record []byte) (head, error) {
	*s = scanner{schema: s.schema, unknown: s.unknown, b: record}
	if !utf8.Valid(record) {
		return head{}, syntaxError("it is not in UTF-8")
	}
	s.space()
	if s.peek() != '{' {
		return head{}, syntaxError("it is no JSON object")
	}
	s.object(s.schema.record)
	s.space()
	switch {
	case s.fault != nil:
		return head{}, s.fault
	case s.at < len(s.b):
		return head{}, syntaxError("something follows the object")
	}
	return s.judge()
}

// judge checks what a record's own fields have to do with each other.
func (s *scanner) judge() (head, error) {
	c := s.schema
	h := head{time: s.time}
	if s.seen&c.required != c.required {
		return h, fmt.Errorf("it lacks v, run, seq, time, observer or kind")
	}
	switch string(s.observer) {
	case string(audit.Host):
		h.observer = audit.Host
	case string(audit.Guest):
		h.observer = audit.Guest
	default:
		return h, fmt.Errorf("its observer is %.40q", s.observer)
	}
	k, ok := c.kindForm(s.kind)
	if !ok {
		h.kind = audit.Kind(s.kind)
		return h, nil
	}
	h.kind, h.known = k.kind, true
	switch s.seen & c.payloads {
	case 1 << k.payload:
		return h, nil
	case 0:
		return h, fmt.Errorf("its kind is %s, and it has no %s", k.kind, c.record.fields[k.payload].name)
	}
	return h, fmt.Errorf("its kind is %s, and it has the payload of another", k.kind)
}

// field reads the value of one of an object's fields.
func (s *scanner) field(sh *shape, i int) bool {
	c := s.schema
	if sh != c.record {
		return s.value(sh.fields[i].shape)
	}
	s.seen |= 1 << i
	s.space()
	switch {
	case i == c.kind:
		return s.keep(&s.kind)
	case i == c.observer:
		return s.keep(&s.observer)
	case i == c.time:
		return s.want(s.peek() == '"', "a time") && s.instant(&s.time)
	case (c.payloads|c.required)&(1<<i) != 0:
		return s.notNull() && s.value(sh.fields[i].shape)
	}
	return s.value(sh.fields[i].shape)
}

func (s *scanner) notNull() bool {
	return s.peek() != 'n' || s.any() && s.fail(fmt.Errorf("null before byte %d", s.at))
}

// keep reads a string and keeps what it says.
func (s *scanner) keep(into *[]byte) bool {
	start := s.at
	if !s.want(s.peek() == '"', "a string") || !s.skip() {
		return false
	}
	*into = s.unquote(s.b[start:s.at])
	return s.fault == nil
}
