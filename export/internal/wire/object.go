package wire

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Object writes the members of a JSON object. Keys are constants and not escaped. Of nested objects
// and arrays, write only to the innermost open one.
type Object struct {
	w    *Writer
	mark int // where it began
}

// Place is the beginning of an object. Unlike an Object, a type with a reference to a Writer can store it without an allocation.
type Place int

// Place returns where o began, for Writer.Resume.
func (o Object) Place() Place { return Place(o.mark) }

// Obj begins an object as a member. End it with End.
func (o Object) Obj(key string) Object {
	mark := len(o.w.b)
	o.w.key(key)
	o.w.Notes.enter(key)
	o.w.b = append(o.w.b, '{')
	return Object{o.w, mark}
}

// Arr begins an array as a member. End it with End.
func (o Object) Arr(key string) Array {
	mark := len(o.w.b)
	o.w.key(key)
	o.w.Notes.enter(key)
	o.w.inner++
	o.w.b = append(o.w.b, '[')
	return Array{o.w, mark}
}

// End ends the object. An empty object is removed.
func (o Object) End() { o.w.end(o.mark, '{', '}') }

// Const writes a member with a constant, which needs no escape and counts against no bound.
func (o Object) Const(key, s string) {
	o.w.key(key)
	o.w.b = append(o.w.b, '"')
	o.w.b = append(o.w.b, s...)
	o.w.b = append(o.w.b, '"')
}

// Str writes a member with a text.
func (o Object) Str(key, s string) {
	o.w.key(key)
	o.w.text(key, s)
}

// StrIf writes a text that is not empty.
func (o Object) StrIf(key, s string) {
	if s != "" {
		o.Str(key, s)
	}
}

// Join writes the non-empty parts as a text, separated by spaces.
func (o Object) Join(key string, parts ...string) {
	o.w.key(key)
	o.w.b = append(o.w.b, '"')
	first := true
	for _, p := range parts {
		if p == "" {
			continue
		}
		if !first {
			o.w.b = append(o.w.b, ' ')
		}
		first = false
		o.w.escape(key, p)
	}
	o.w.b = append(o.w.b, '"')
}

// ID writes the id of the record with this seq, in the form of export.Event.ID.
func (o Object) ID(key, run string, seq uint64) {
	o.w.key(key)
	o.w.b = append(o.w.b, '"')
	o.w.escape(key, run)
	o.w.b = append(o.w.b, ':')
	o.w.b = strconv.AppendUint(o.w.b, seq, 10)
	o.w.b = append(o.w.b, '"')
}

// Consts writes the concatenation of constants as a member.
func (o Object) Consts(key string, parts ...string) {
	o.w.key(key)
	o.w.b = append(o.w.b, '"')
	for _, p := range parts {
		o.w.b = append(o.w.b, p...)
	}
	o.w.b = append(o.w.b, '"')
}

// Command writes the command line of arguments, quoted for a POSIX shell, so that the boundaries of arguments
// are visible.
func (o Object) Command(key string, argv []audit.Text) {
	if len(argv) == 0 {
		return
	}
	o.w.key(key)
	o.w.inner++
	o.w.b = append(o.w.b, '"')
	for i, a := range argv {
		if !o.w.room(key, len(a)) {
			break
		}
		if i > 0 {
			o.w.b = append(o.w.b, ' ')
		}
		o.w.quoted(key, string(a))
	}
	o.w.b = append(o.w.b, '"')
	o.w.inner--
}

// Texts writes an array of texts that is not empty.
func (o Object) Texts(key string, list []audit.Text) {
	if len(list) == 0 {
		return
	}
	a := o.Arr(key)
	for _, t := range list {
		if !a.Room(len(t)) {
			break
		}
		a.Value(string(t))
	}
	a.End()
}

// Strs writes an array of texts that is not empty.
func (o Object) Strs(key string, list []string) {
	if len(list) == 0 {
		return
	}
	a := o.Arr(key)
	for _, t := range list {
		if !a.Room(len(t)) {
			break
		}
		a.Value(t)
	}
	a.End()
}

// Int writes a number.
func (o Object) Int(key string, n int64) {
	o.w.key(key)
	o.w.b = strconv.AppendInt(o.w.b, n, 10)
}

// IntText writes a number as a text.
func (o Object) IntText(key string, n int64) {
	o.w.key(key)
	o.w.b = append(o.w.b, '"')
	o.w.b = strconv.AppendInt(o.w.b, n, 10)
	o.w.b = append(o.w.b, '"')
}

// IntIf writes a number that is not 0.
func (o Object) IntIf(key string, n int64) {
	if n != 0 {
		o.Int(key, n)
	}
}

// Uint writes a number. One beyond a signed 64-bit integer is clamped and noted.
func (o Object) Uint(key string, n uint64) {
	if n > math.MaxInt64 {
		n = math.MaxInt64
		o.w.Notes.cut(key, 0)
	}
	o.w.key(key)
	o.w.b = strconv.AppendUint(o.w.b, n, 10)
}

// UintIf writes a number that is not 0.
func (o Object) UintIf(key string, n uint64) {
	if n != 0 {
		o.Uint(key, n)
	}
}

// Bool writes a boolean.
func (o Object) Bool(key string, b bool) {
	o.w.key(key)
	o.w.b = strconv.AppendBool(o.w.b, b)
}

// BoolIf writes true, and omits false.
func (o Object) BoolIf(key string, b bool) {
	if b {
		o.Bool(key, true)
	}
}

// Time writes a time in UTC, RFC 3339 with nanoseconds.
func (o Object) Time(key string, t time.Time) {
	o.w.key(key)
	o.w.b = append(o.w.b, '"')
	o.w.b = t.UTC().AppendFormat(o.w.b, time.RFC3339Nano)
	o.w.b = append(o.w.b, '"')
}

// JSON writes a member whose value is already JSON, on one line.
func (o Object) JSON(key string, v []byte) {
	o.w.key(key)
	o.w.b = append(o.w.b, v...)
}

// Base64 writes bytes as base64.
func (o Object) Base64(key string, b []byte) {
	o.w.key(key)
	o.w.b = append(o.w.b, '"')
	o.w.b = base64.StdEncoding.AppendEncode(o.w.b, b)
	o.w.b = append(o.w.b, '"')
}

// Mark writes the mark of a record that is not known to be what a host signed, as "verification"; nothing for nil.
func (o Object) Mark(m *store.Mark) {
	if m == nil {
		return
	}
	v := o.Obj("verification")
	v.Str("state", string(m.State))
	v.StrIf("text", m.Text)
	v.End()
}
