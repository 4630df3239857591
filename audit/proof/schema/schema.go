// Package schema parses records for a verifier: it accepts only the bytes that encoding/json writes for an
// audit.Record, names unknown fields and kinds, and needs no memory for each record.
package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// shape describes the JSON values that encoding/json writes for one of
// package audit's types. A *shape is immutable.
type shape struct {
	form     form
	bits     int     // of a number
	nullable bool    // a pointer or a list: null is allowed
	fields   []field // of an object, in the order of encoding
	required uint64  // a bit for each field that is always present
	elem     *shape  // of a list
}

type field struct {
	name   string
	quoted string // as in JSON, with the colon
	shape  *shape
	omit   []string // values with which the field is omitted
}

type form int

const (
	literal   form = iota // a string
	signedInt             // an integer
	unsignedInt
	boolean
	text    // audit.Text
	instant // time.Time
	list
	object
)

// shapeOf derives a shape from the Go type, with the rules of encoding/json.
func shapeOf(t reflect.Type) *shape {
	switch {
	case t == reflect.TypeFor[audit.Text]():
		return &shape{form: text}
	case t == reflect.TypeFor[time.Time]():
		return &shape{form: instant}
	}
	switch t.Kind() {
	case reflect.Pointer:
		sh := shapeOf(t.Elem())
		sh.nullable = true
		return sh
	case reflect.String:
		return &shape{form: literal}
	case reflect.Bool:
		return &shape{form: boolean}
	case reflect.Int, reflect.Int64, reflect.Int32:
		return &shape{form: signedInt, bits: t.Bits()}
	case reflect.Uint64, reflect.Uint32:
		return &shape{form: unsignedInt, bits: t.Bits()}
	case reflect.Slice:
		return &shape{form: list, nullable: true, elem: shapeOf(t.Elem())}
	case reflect.Struct:
		sh := &shape{form: object, fields: fieldsOf(t)}
		for i, f := range sh.fields {
			if f.omit == nil {
				sh.required |= 1 << i
			}
		}
		return sh
	}
	panic(fmt.Sprintf("no shape for %s", t)) // a test makes the shape of every record
}

func fieldsOf(t reflect.Type) (fields []field) {
	for f := range t.Fields() {
		if f.Anonymous {
			fields = append(fields, fieldsOf(f.Type)...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		sh := shapeOf(f.Type)
		fields = append(fields, field{name, `"` + name + `":`, sh, omitted(sh, options)})
	}
	if len(fields) > 64 {
		panic(fmt.Sprintf("%s has more fields than a scanner has bits", t))
	}
	return fields
}

// omitted returns the values with which encoding/json omits a field, nil if there are none.
func omitted(sh *shape, options string) []string {
	switch {
	case options == "":
		return nil
	case options == "omitzero" && sh.form == instant:
		return []string{`"0001-01-01T00:00:00Z"`}
	case options != "omitempty" || sh.form == instant:
		panic("a field of a record has the option " + options) // a test makes the shape of every record
	case sh.form == list:
		return []string{"null", "[]"}
	case sh.nullable:
		return []string{"null"}
	}
	return map[form][]string{literal: {`""`}, text: {`""`}, signedInt: {"0"}, unsignedInt: {"0"}, boolean: {"false"}}[sh.form]
}

// schema is the form of a record. It is immutable.
type Schema struct {
	record *shape
	kinds  []kindForm

	time, observer, kind int    // indexes of the record's fields
	payloads             uint64 // a bit for each such field
}

// kindForm returns the index of the field with a kind's payload.
type kindForm struct {
	kind    audit.Kind
	payload int
}

func New() *Schema {
	s := &Schema{record: shapeOf(reflect.TypeFor[audit.Record]())}
	at := func(name string) int {
		return slices.IndexFunc(s.record.fields, func(f field) bool { return f.name == name })
	}
	for _, k := range audit.KindTable() {
		form := kindForm{k.Kind, at(k.Payload)}
		s.kinds = append(s.kinds, form)
		s.payloads |= 1 << form.payload
	}
	s.time, s.observer, s.kind = at("time"), at("observer"), at("kind")
	return s
}

func (s *Schema) kindForm(kind []byte) (kindForm, bool) {
	for _, k := range s.kinds {
		if string(kind) == string(k.kind) {
			return k, true
		}
	}
	return kindForm{}, false
}

// RecordSchema returns the form of a record as JSON, for other implementations of the format. A value is one of
//
//	"string", "int64", "uint64", "int32", "uint32", "bool"
//	"text"    a string, or {"base64":"..."} of bytes that are not UTF-8
//	"time"    RFC 3339 in UTC
//	[T]       a list of T, or null
//	{...}     an object with these fields in this order; one whose name ends in "?" is omitted if it is
//	          "", 0, false, null, [] or the time 0001-01-01T00:00:00Z
//	"T?"      T or null: such a field is omitted only if it is null
//
// docs/verify.md describes how values are written.
func RecordSchema() []byte {
	return appendShape(nil, New().record)
}

func appendShape(b []byte, sh *shape) []byte {
	switch sh.form {
	case list:
		return append(appendShape(append(b, '['), sh.elem), ']')
	case object:
		for i, f := range sh.fields {
			mark := ""
			if f.omit != nil {
				mark = "?"
			}
			b = fmt.Appendf(append(b, "{,"[min(i, 1)]), "%q:", f.name+mark)
			if f.shape.form == object && f.shape.nullable && f.omit == nil {
				panic("an object that can be null") // a test makes the shape of every record
			}
			b = appendShape(b, f.shape)
		}
		return append(b, '}')
	}
	name := map[form]string{literal: "string", boolean: "bool", text: "text", instant: "time"}[sh.form]
	switch sh.form {
	case signedInt:
		name = fmt.Sprint("int", sh.bits)
	case unsignedInt:
		name = fmt.Sprint("uint", sh.bits)
	}
	if sh.nullable {
		name += "?"
	}
	return fmt.Appendf(b, "%q", name)
}
