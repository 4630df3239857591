// Package wire writes JSON objects without reflection, for the formats of package export. For any
// bytes that a guest puts into a string, the output is valid, bounded UTF-8 JSON on one line, with notes where a text was
// cut or was not UTF-8:
//
//	bytes that are not UTF-8    each as \xNN, the exact bytes are noted (Raw)
//	control characters, U+2028  \u00NN, as JSON escapes them; also DEL, C1 and U+2029
//	a text above MaxText        cut at a character boundary, its path and length are noted (Cuts)
//	all texts above MaxTotal    likewise
package wire

import (
	"strings"
	"unicode/utf8"
)

// Bounds of the texts of one event, in bytes before escaping.
// Escaping makes at most six bytes of one.
const (
	MaxText  = 32 << 10  // one string
	MaxTotal = 512 << 10 // all strings
	MaxLists = 256 << 10 // all strings in lists: a long list leaves space for other texts
	envelope = 16 << 10  // reserved by Envelope
	listCost = 8         // bytes that an element of a list counts in addition to its text
	maxMarks = 64        // cuts, and raw texts, that are listed individually
)

// Writer has the bytes of one event, and bounds the texts in them. Root is its object; Objects and Arrays write to
// it. It is not safe for concurrent use.
type Writer struct {
	Notes Notes
	b     []byte
	left  int
	lists int // the part of left for texts outside of lists
	inner int // number of open lists
}

// New begins an object after dst.
func New(dst []byte) Writer {
	return Writer{b: append(dst, '{'), left: MaxTotal, lists: MaxTotal - MaxLists}
}

// Root returns the object that New began. End it with Finish.
func (w *Writer) Root() Object { return Object{w: w} }

// Resume returns the open object at a place.
func (w *Writer) Resume(p Place) Object { return Object{w, int(p)} }

// Finish ends the object that New began, and returns all bytes.
func (w *Writer) Finish() []byte { return append(w.b, '}') }

// Envelope reserves space for some more texts, regardless of what was written.
func (w *Writer) Envelope() {
	w.left = max(w.left, envelope)
	w.lists = 0
}

// spare returns how much text can still be written here.
func (w *Writer) spare() int {
	if w.inner > 0 {
		return max(w.left-w.lists, 0)
	}
	return max(w.left, 0)
}

// room reports whether there is space for another element of a list; if not, it notes that elements are missing,
// the first of which has n bytes.
func (w *Writer) room(key string, n int) bool {
	if w.spare() >= listCost {
		w.left -= listCost
		return true
	}
	w.Notes.cut(key, n)
	return false
}

func (w *Writer) key(key string) {
	w.comma()
	w.b = append(w.b, '"')
	w.b = append(w.b, key...)
	w.b = append(w.b, '"', ':')
}

func (w *Writer) comma() {
	if c := w.b[len(w.b)-1]; c != '{' && c != '[' {
		w.b = append(w.b, ',')
	}
}

func (w *Writer) text(key, s string) {
	w.b = append(w.b, '"')
	w.escape(key, s)
	w.b = append(w.b, '"')
}

// end ends an object or an array. An empty one is removed.
func (w *Writer) end(mark int, open, closing byte) {
	w.Notes.leave()
	if w.b[len(w.b)-1] == open {
		w.b = w.b[:mark]
		return
	}
	w.b = append(w.b, closing)
}

// quoted writes an argument of a command line, quoted for a POSIX shell, inside a string.
func (w *Writer) quoted(key, s string) {
	if s != "" && !strings.ContainsFunc(s, needsQuotes) {
		w.escape(key, s)
		return
	}
	w.b = append(w.b, '\'')
	if strings.Contains(s, "'") {
		s = strings.ReplaceAll(s, "'", `'\''`)
	}
	w.escape(key, s)
	w.b = append(w.b, '\'')
}

func needsQuotes(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("@%+=:,./-_", r)
}

// escape writes the inside of a string.
func (w *Writer) escape(key, s string) {
	if n := min(MaxText, w.spare()); len(s) > n {
		w.Notes.cut(key, len(s))
		s = clip(s, n)
	}
	w.left -= len(s)
	start := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; plain[c] {
			continue
		}
		w.b = append(w.b, s[start:i]...)
		if !w.rest(s[i:]) {
			w.Notes.raw(key, s)
		}
		return
	}
	w.b = append(w.b, s...)
}

// rest writes text with characters other than plain ones, and reports whether it is UTF-8.
func (w *Writer) rest(s string) (valid bool) {
	valid = true
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			w.b = append(w.b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == '"' || c == '\\':
			w.b = append(w.b, '\\', c)
		case r == utf8.RuneError && n == 1:
			valid = false
			w.b = append(w.b, '\\', '\\', 'x', hex[c>>4], hex[c&15])
		case r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029:
			w.b = append(w.b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			w.b = append(w.b, s[i:i+n]...)
		}
		i += n
	}
	return valid
}

const hex = "0123456789abcdef"

// plain are the bytes that need no escape in a JSON string.
var plain = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// clip cuts s to at most n bytes, at a character boundary if it is UTF-8.
func clip(s string, n int) string {
	for i := n; i > n-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n]
}
