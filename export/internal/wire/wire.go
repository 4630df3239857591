// Package wire writes one JSON object after the other, without reflection, for the formats of package export. Whatever
// bytes a guest put into a string, the output is valid UTF-8 JSON on one line, bounded, with marks where a text was cut
// or was not UTF-8:
//
//	bytes that are no UTF-8     each as \xNN, the exact bytes kept beside (Raw)
//	control characters, U+2028  \u00NN, as JSON escapes them; also DEL, C1 and U+2029
//	a text above MaxText        cut at a character's end, its place and length kept (Cuts)
//	all texts above MaxTotal    likewise
package wire

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Bounds of what is written of the texts of one event, in bytes before they are escaped.
// Escaping makes at most six bytes of one.
const (
	MaxText  = 32 << 10  // one string
	MaxTotal = 512 << 10 // all strings
	MaxLists = 256 << 10 // of these, those in lists: a long list leaves room for what is no list
	envelope = 16 << 10  // that Envelope sees to
	listCost = 8         // that an element of a list counts beside its text
	maxMarks = 64        // cuts, and raw texts, that are listed one by one
)

// Cut is a place where something was left out.
type Cut struct {
	Path  string // as in file.path
	Bytes int    // of the whole text; 0 for a number that was brought into range
}

// Raw is a text that is no UTF-8.
type Raw struct {
	Path  string
	Bytes string // as far as it was written
}

// Writer appends JSON. Keys are the caller's constants; they are not escaped. It is not safe for concurrent use.
type Writer struct {
	B    []byte
	Cuts []Cut
	Raws []Raw
	// Quiet is set while texts are written again that stand elsewhere already: they are not marked.
	Quiet bool
	left  int
	lists int // of left, what is for other texts than those in lists
	inner int // lists that are open
	path  [12]string
	deep  int
}

// New begins an object behind dst.
func New(dst []byte) Writer {
	return Writer{B: append(dst, '{'), left: MaxTotal, lists: MaxTotal - MaxLists}
}

// Envelope reserves space for some more texts, however much was written.
func (w *Writer) Envelope() {
	w.left = max(w.left, envelope)
	w.lists = 0
}

// spare is how much text can still be written here.
func (w *Writer) spare() int {
	if w.inner > 0 {
		return max(w.left-w.lists, 0)
	}
	return max(w.left, 0)
}

// Obj begins an object as a member. End it with End.
func (w *Writer) Obj(key string) (mark int) {
	mark = len(w.B)
	w.key(key)
	w.push(key)
	w.B = append(w.B, '{')
	return mark
}

// Arr begins an array as a member. End it with EndArr.
func (w *Writer) Arr(key string) (mark int) {
	mark = len(w.B)
	w.key(key)
	w.push(key)
	w.inner++
	w.B = append(w.B, '[')
	return mark
}

// Elem begins an object as an element of an array. End it with End.
func (w *Writer) Elem() (mark int) {
	mark = len(w.B)
	w.comma()
	w.push("")
	w.B = append(w.B, '{')
	return mark
}

// End ends an object. One in which nothing stands vanishes.
func (w *Writer) End(mark int) { w.end(mark, '{', '}') }

// EndArr ends an array. One in which nothing stands vanishes.
func (w *Writer) EndArr(mark int) {
	w.inner--
	w.end(mark, '[', ']')
}

func (w *Writer) end(mark int, open, closing byte) {
	w.deep--
	if w.B[len(w.B)-1] == open {
		w.B = w.B[:mark]
		return
	}
	w.B = append(w.B, closing)
}

// Finish ends the object that New began.
func (w *Writer) Finish() []byte { return append(w.B, '}') }

// Const writes a member whose text needs no escape and counts against no bound: the caller's constants.
func (w *Writer) Const(key, s string) {
	w.key(key)
	w.B = append(w.B, '"')
	w.B = append(w.B, s...)
	w.B = append(w.B, '"')
}

// Str writes a member with a text.
func (w *Writer) Str(key, s string) {
	w.key(key)
	w.text(key, s)
}

// StrIf writes a text that is not empty.
func (w *Writer) StrIf(key, s string) {
	if s != "" {
		w.Str(key, s)
	}
}

// Join writes a text that is made of those parts that are not empty, with a space between them.
func (w *Writer) Join(key string, parts ...string) {
	w.key(key)
	w.B = append(w.B, '"')
	first := true
	for _, p := range parts {
		if p == "" {
			continue
		}
		if !first {
			w.B = append(w.B, ' ')
		}
		first = false
		w.escape(key, p)
	}
	w.B = append(w.B, '"')
}

// Tagged writes a text with a constant before it as an element of an array.
func (w *Writer) Tagged(prefix, s string) {
	w.comma()
	w.B = append(w.B, '"')
	w.B = append(w.B, prefix...)
	w.escape("", s)
	w.B = append(w.B, '"')
}

// ID writes the id of the record with this place in the run, as export.Event.ID has it.
func (w *Writer) ID(key, run string, seq uint64) {
	w.key(key)
	w.B = append(w.B, '"')
	w.escape(key, run)
	w.B = append(w.B, ':')
	w.B = strconv.AppendUint(w.B, seq, 10)
	w.B = append(w.B, '"')
}

// Path writes the path of an attribute, of two of the caller's constants.
func (w *Writer) Path(key, at, attribute string) {
	w.key(key)
	w.B = append(w.B, '"')
	w.B = append(w.B, at...)
	w.B = append(w.B, '.')
	w.B = append(w.B, attribute...)
	w.B = append(w.B, '"')
}

// Command writes a command line of its arguments, quoted as for a POSIX shell, so that it shows where an argument
// begins and ends.
func (w *Writer) Command(key string, argv []audit.Text) {
	if len(argv) == 0 {
		return
	}
	w.key(key)
	w.inner++
	w.B = append(w.B, '"')
	for i, a := range argv {
		if !w.room(key, len(a)) {
			break
		}
		if i > 0 {
			w.B = append(w.B, ' ')
		}
		w.quoted(key, string(a))
	}
	w.B = append(w.B, '"')
	w.inner--
}

// Room reports whether there is space for a further element of the array that is open; if not, it is marked that
// elements are missing, the first of which has n bytes.
func (w *Writer) Room(n int) bool { return w.room("", n) }

func (w *Writer) room(key string, n int) bool {
	if w.spare() >= listCost {
		w.left -= listCost
		return true
	}
	w.mark(key, n)
	return false
}

func (w *Writer) quoted(key, s string) {
	if s != "" && !strings.ContainsFunc(s, needsQuotes) {
		w.escape(key, s)
		return
	}
	w.B = append(w.B, '\'')
	if strings.Contains(s, "'") {
		s = strings.ReplaceAll(s, "'", `'\''`)
	}
	w.escape(key, s)
	w.B = append(w.B, '\'')
}

func needsQuotes(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("@%+=:,./-_", r)
}

// Texts writes an array of texts that is not empty.
func (w *Writer) Texts(key string, list []audit.Text) {
	if len(list) == 0 {
		return
	}
	a := w.Arr(key)
	for _, t := range list {
		if !w.Room(len(t)) {
			break
		}
		w.comma()
		w.text("", string(t))
	}
	w.EndArr(a)
}

// Strs writes an array of texts that is not empty.
func (w *Writer) Strs(key string, list []string) {
	if len(list) == 0 {
		return
	}
	a := w.Arr(key)
	for _, t := range list {
		if !w.Room(len(t)) {
			break
		}
		w.comma()
		w.text("", t)
	}
	w.EndArr(a)
}

// Value writes a text as an element of an array.
func (w *Writer) Value(s string) {
	w.comma()
	w.text("", s)
}

// ConstValue writes one of the caller's constants as an element of an array.
func (w *Writer) ConstValue(s string) {
	w.comma()
	w.B = append(w.B, '"')
	w.B = append(w.B, s...)
	w.B = append(w.B, '"')
}

// Int writes a number.
func (w *Writer) Int(key string, n int64) {
	w.key(key)
	w.B = strconv.AppendInt(w.B, n, 10)
}

// IntIf writes a number that is not 0.
func (w *Writer) IntIf(key string, n int64) {
	if n != 0 {
		w.Int(key, n)
	}
}

// Uint writes a number. One that a signed 64-bit integer cannot hold is brought into range and marked.
func (w *Writer) Uint(key string, n uint64) {
	if n > math.MaxInt64 {
		n = math.MaxInt64
		w.mark(key, 0)
	}
	w.key(key)
	w.B = strconv.AppendUint(w.B, n, 10)
}

// UintIf writes a number that is not 0.
func (w *Writer) UintIf(key string, n uint64) {
	if n != 0 {
		w.Uint(key, n)
	}
}

// Bool writes a truth.
func (w *Writer) Bool(key string, b bool) {
	w.key(key)
	w.B = strconv.AppendBool(w.B, b)
}

// BoolIf writes what is true.
func (w *Writer) BoolIf(key string, b bool) {
	if b {
		w.Bool(key, true)
	}
}

// Time writes a time in UTC, RFC 3339 with nanoseconds.
func (w *Writer) Time(key string, t time.Time) {
	w.key(key)
	w.B = append(w.B, '"')
	w.B = t.UTC().AppendFormat(w.B, time.RFC3339Nano)
	w.B = append(w.B, '"')
}

// JSON writes a member whose value is JSON already, on one line.
func (w *Writer) JSON(key string, v []byte) {
	w.key(key)
	w.B = append(w.B, v...)
}

// Base64 writes bytes as base64.
func (w *Writer) Base64(key string, b []byte) {
	w.key(key)
	w.B = append(w.B, '"')
	w.B = base64.StdEncoding.AppendEncode(w.B, b)
	w.B = append(w.B, '"')
}

// Marks writes what was cut and what was no UTF-8, as members of the object that is open:
// "truncated" with paths and lengths, "base64" with the exact bytes by path.
func (w *Writer) Marks() {
	if len(w.Cuts) > 0 {
		o := w.Obj("truncated")
		for _, c := range w.Cuts {
			w.key(c.Path)
			w.B = strconv.AppendInt(w.B, int64(c.Bytes), 10)
		}
		w.End(o)
	}
	if len(w.Raws) > 0 {
		o := w.Obj("base64")
		for _, r := range w.Raws {
			w.key(r.Path)
			w.B = append(w.B, '"')
			w.B = base64.StdEncoding.AppendEncode(w.B, []byte(r.Bytes))
			w.B = append(w.B, '"')
		}
		w.End(o)
	}
}

func (w *Writer) key(key string) {
	w.comma()
	w.B = append(w.B, '"')
	w.B = append(w.B, key...)
	w.B = append(w.B, '"', ':')
}

func (w *Writer) comma() {
	if c := w.B[len(w.B)-1]; c != '{' && c != '[' {
		w.B = append(w.B, ',')
	}
}

func (w *Writer) text(key, s string) {
	w.B = append(w.B, '"')
	w.escape(key, s)
	w.B = append(w.B, '"')
}

func (w *Writer) push(key string) {
	if w.deep < len(w.path) {
		w.path[w.deep] = key
	}
	w.deep++
}

// where names the place of a member.
func (w *Writer) where(key string) string {
	var b strings.Builder
	for _, p := range append(w.path[:min(w.deep, len(w.path)):len(w.path)], key) {
		if p == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(p)
	}
	return b.String()
}

// mark notes that a member, or an element of an array, was cut. The first of a path counts.
func (w *Writer) mark(key string, n int) {
	if w.Quiet {
		return
	}
	path := w.where(key)
	for _, c := range w.Cuts {
		if c.Path == path {
			return
		}
	}
	if len(w.Cuts) < maxMarks {
		w.Cuts = append(w.Cuts, Cut{path, n})
	}
}

// escape writes the inside of a string.
func (w *Writer) escape(key, s string) {
	if n := min(MaxText, w.spare()); len(s) > n {
		w.mark(key, len(s))
		s = clip(s, n)
	}
	w.left -= len(s)
	start := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; plain[c] {
			continue
		}
		w.B = append(w.B, s[start:i]...)
		if !w.rest(s[i:]) {
			w.raw(key, s)
		}
		return
	}
	w.B = append(w.B, s...)
}

// rest writes text with other characters than plain ones, and reports whether it is UTF-8.
func (w *Writer) rest(s string) (valid bool) {
	valid = true
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			w.B = append(w.B, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == '"' || c == '\\':
			w.B = append(w.B, '\\', c)
		case r == utf8.RuneError && n == 1:
			valid = false
			w.B = append(w.B, '\\', '\\', 'x', hex[c>>4], hex[c&15])
		case r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029:
			w.B = append(w.B, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			w.B = append(w.B, s[i:i+n]...)
		}
		i += n
	}
	return valid
}

func (w *Writer) raw(key, s string) {
	if w.Quiet || len(w.Raws) == maxMarks {
		return
	}
	path := w.where(key)
	for i, n := 0, 1; i < len(w.Raws); i++ {
		if w.Raws[i].Path == path { // of lists: args, args#2, args#3
			n++
			path = w.where(key) + "#" + strconv.Itoa(n)
			i = -1
		}
	}
	w.Raws = append(w.Raws, Raw{path, s})
}

const hex = "0123456789abcdef"

// plain are the bytes that stand in a JSON string as they are.
var plain = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// clip cuts s to at most n bytes, at the end of a character where it is UTF-8.
func clip(s string, n int) string {
	for i := n; i > n-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n]
}

// Mark writes what is said of a record that is not known to be what a host signed, as "verification"; nothing for nil.
func (w *Writer) Mark(m *store.Mark) {
	if m == nil {
		return
	}
	o := w.Obj("verification")
	w.Str("state", string(m.State))
	w.StrIf("text", m.Text)
	w.End(o)
}
