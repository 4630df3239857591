package redact_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
)

// vector is a line of the corpus. Invalid UTF-8 is encoded as in an event.
type vector struct {
	Value, Text, Want audit.Text
	Encoding          string
}

func corpus(t *testing.T) (list []vector) {
	t.Helper()
	for _, name := range []string{"single", "double"} {
		b, err := os.ReadFile("testdata/" + name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			var v vector
			if err := json.Unmarshal(line, &v); err != nil {
				t.Fatal(err)
			}
			list = append(list, v)
		}
	}
	return list
}

// set sets all strings and bytes within v to text and returns their number.
func set(v reflect.Value, text string) (n int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return 1
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return set(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		return set(v.Index(0), text) + set(v.Index(1), text)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return 0
		}
		for i := range v.NumField() {
			n += set(v.Field(i), text)
		}
	}
	return n
}

// each calls f with all strings and bytes within v.
func each(v reflect.Value, f func(string)) {
	switch v.Kind() {
	case reflect.String:
		f(v.String())
	case reflect.Pointer:
		if !v.IsNil() {
			each(v.Elem(), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			each(v.Index(i), f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				each(v.Field(i), f)
			}
		}
	}
}

// TestCorpusInEveryField seals each vector in all text fields of an event.
func TestCorpusInEveryField(t *testing.T) {
	known := map[audit.Text]*redact.Redactor{}
	for _, v := range corpus(t) {
		r := known[v.Value]
		if r == nil {
			r = redact.New(benchKey)
			if err := r.Add("v", []byte(v.Value)); err != nil {
				t.Fatal(err)
			}
			known[v.Value] = r
		}
		var ev audit.Event
		if n := set(reflect.ValueOf(&ev), string(v.Text)); n < 120 {
			t.Fatalf("only %d fields can contain text", n)
		}
		sealed, err := r.Seal(&ev)
		if err != nil {
			t.Fatal(err)
		}
		each(reflect.ValueOf(ev), func(s string) {
			if s != string(v.Want) {
				t.Fatalf("%.9q as %s: %q became %q, want %q", v.Value, v.Encoding, v.Text, s, v.Want)
			}
		})
		if names := sealed.Found(); len(names) != 1 || names[0] != "v" {
			t.Fatalf("%.9q as %s: found %q", v.Value, v.Encoding, names)
		}
		if left := r.Bytes(sealed.Bytes()); !bytes.Equal(left, sealed.Bytes()) {
			t.Fatalf("%.9q as %s: a value is left in %s", v.Value, v.Encoding, sealed.Bytes())
		}
		var back audit.Event
		if err := json.Unmarshal(sealed.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		each(reflect.ValueOf(back.Exec.Argv), func(s string) {
			if s != string(v.Want) {
				t.Fatalf("%.9q as %s: %q came back as %q", v.Value, v.Encoding, v.Want, s)
			}
		})
	}
}
