package proof

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// shape is what a JSON value has to look like so that package audit can decode it. A
// *shape is not changed once it is made.
type shape struct {
	form   form
	bits   int     // of a number
	fields []field // of an object, in the order in which they are written
	elem   *shape  // of a list
}

type field struct {
	name  string
	shape *shape
}

type form int

const (
	anything  form = iota // any JSON value
	literal               // a string
	signedInt             // a whole number
	unsignedInt
	boolean
	text    // audit.Text
	instant // time.Time
	list
	object
)

// shapeOf derives a shape from the Go type, as encoding/json would.
func shapeOf(t reflect.Type) *shape {
	switch {
	case t == reflect.TypeFor[audit.Text]():
		return &shape{form: text}
	case t == reflect.TypeFor[time.Time]():
		return &shape{form: instant}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOf(t.Elem())
	case reflect.String:
		return &shape{form: literal}
	case reflect.Bool:
		return &shape{form: boolean}
	case reflect.Int, reflect.Int64, reflect.Int32:
		return &shape{form: signedInt, bits: t.Bits()}
	case reflect.Uint64, reflect.Uint32:
		return &shape{form: unsignedInt, bits: t.Bits()}
	case reflect.Slice:
		return &shape{form: list, elem: shapeOf(t.Elem())}
	case reflect.Struct:
		return &shape{form: object, fields: fieldsOf(t)}
	}
	panic(fmt.Sprintf("no shape for %s", t)) // a test makes the shape of every record
}

func fieldsOf(t reflect.Type) (fields []field) {
	for f := range t.Fields() {
		if f.Anonymous {
			fields = append(fields, fieldsOf(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, field{name, shapeOf(f.Type)})
	}
	if len(fields) > 64 {
		panic(fmt.Sprintf("%s has more fields than a scanner has bits", t))
	}
	return fields
}

// schema is the form of a record. It is not changed once it is made.
type schema struct {
	record *shape
	free   *shape // of what nothing is known of
	kinds  []kindForm

	time, observer, kind int    // places among the record's fields
	required, payloads   uint64 // a bit for each such field
}

// kindForm says which of a record's fields is a kind's payload.
type kindForm struct {
	kind    audit.Kind
	payload int
}

// kinds are all that this version knows.
var kinds = [...]audit.Kind{
	audit.KindRun, audit.KindStep, audit.KindExec, audit.KindExit, audit.KindFile, audit.KindFlow, audit.KindDNS, audit.KindHTTP,
	audit.KindLLM, audit.KindPolicy, audit.KindProbe, audit.KindOutput, audit.KindVM, audit.KindCopy, audit.KindSecret, audit.KindGap, audit.KindFinding, audit.KindAccess,
}

// payloadName is the field in which a kind's payload stands.
func payloadName(k audit.Kind) string {
	if k == audit.KindRun || k == audit.KindStep {
		return "lifecycle"
	}
	return string(k)
}

func newSchema() *schema {
	s := &schema{record: shapeOf(reflect.TypeFor[audit.Record]()), free: &shape{}}
	at := func(name string) int {
		return slices.IndexFunc(s.record.fields, func(f field) bool { return f.name == name })
	}
	for _, k := range kinds {
		form := kindForm{k, at(payloadName(k))}
		s.kinds = append(s.kinds, form)
		s.payloads |= 1 << form.payload
	}
	for _, name := range []string{"v", "run", "seq", "time", "observer", "kind"} {
		s.required |= 1 << at(name)
	}
	s.time, s.observer, s.kind = at("time"), at("observer"), at("kind")
	return s
}

func (s *schema) kindForm(kind []byte) (kindForm, bool) {
	for _, k := range s.kinds {
		if string(kind) == string(k.kind) {
			return k, true
		}
	}
	return kindForm{}, false
}
