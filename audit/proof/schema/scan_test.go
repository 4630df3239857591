package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/custody-project/custody/audit"
)

// oracle checks a record with encoding/json alone: decoding and encoding it returns the same bytes. Slow, and obviously right.
func oracle(record []byte) error {
	var r audit.Record
	if err := json.Unmarshal(record, &r); err != nil {
		return err
	}
	again, err := json.Marshal(r)
	for _, c := range []byte("<>&") { // they occur in strings only, escaped or not
		record = bytes.ReplaceAll(record, []byte{c}, fmt.Appendf(nil, `\u%04x`, c))
	}
	record = escapes.ReplaceAllFunc(record, func(e []byte) []byte { // so does what was not UTF-8
		if string(e) == `\ufffd` {
			return []byte("\ufffd")
		}
		return e
	})
	switch {
	case err != nil:
		return err
	case !bytes.Equal(again, record):
		return fmt.Errorf("encoding/json writes %s", again)
	case !allUTC(reflect.ValueOf(r)):
		return errors.New("a time is not in UTC, or not in years from 1 to 9999")
	case r.Observer != audit.Host && r.Observer != audit.Guest:
		return fmt.Errorf("observer %s", r.Observer)
	case !r.Kind.Known():
		return nil
	}
	payloads := reflect.ValueOf(r.Event)
	for i := range payloads.NumField() {
		name, _, _ := strings.Cut(payloads.Type().Field(i).Tag.Get("json"), ",")
		is := slices.ContainsFunc(audit.Kinds(), func(k audit.Kind) bool { return payloadName(k) == name })
		if is && payloads.Field(i).IsNil() == (name == payloadName(r.Kind)) {
			return fmt.Errorf("kind %s, and a %s", r.Kind, name)
		}
	}
	return nil
}

var escapes = regexp.MustCompile(`\\(?:u[0-9a-f]{4}|.)`)

// allUTC reports whether all times below v are in UTC, in years that RFC 3339 has.
func allUTC(v reflect.Value) bool {
	if t, ok := v.Interface().(time.Time); ok {
		return t.Location() == time.UTC && t.Year() >= 1 && t.Year() < 10000
	}
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil() || allUTC(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if !allUTC(v.Field(i)) {
				return false
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if !allUTC(v.Index(i)) {
				return false
			}
		}
	}
	return true
}

func typesOf(t reflect.Type) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			types[name] = f.Type
		}
	}
	return types
}

// fill sets every field below v to a non-empty value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 21, 6, 57, 13, 123456789, time.UTC)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.String:
		v.SetString("some \"words\" <of> 漢字\n")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(-1 << 62)
	default:
		v.SetUint(1<<32 - 1)
	}
}

// fullRecords has a record of each kind, with every field set.
func fullRecords(t testing.TB) (all [][]byte) {
	t.Helper()
	for i, k := range audit.Kinds() {
		r := audit.Record{V: 1, Run: "r-full", Seq: uint64(i + 1)}
		var full audit.Event
		fill(reflect.ValueOf(&full).Elem())
		r.Event = audit.Event{Time: full.Time, Observer: audit.Guest, Kind: k, Step: "agent", Guest: full.Guest}
		from, to := reflect.ValueOf(full), reflect.ValueOf(&r.Event).Elem()
		for j := range from.NumField() {
			name, _, _ := strings.Cut(from.Type().Field(j).Tag.Get("json"), ",")
			if name == payloadName(k) {
				to.Field(j).Set(from.Field(j))
			}
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

func TestScanEveryKind(t *testing.T) {
	s := NewScanner(New())
	for i, b := range fullRecords(t) {
		h, err := s.Scan(b)
		if err != nil || h.Kind != audit.Kinds()[i] || !h.Known || h.Observer != audit.Guest || h.Time.Nanosecond() != 123456789 {
			t.Errorf("%s: %+v, %v", b, h, err)
		}
		if err := oracle(b); err != nil {
			t.Errorf("oracle: %s: %v", b, err)
		}
	}
	if len(s.Unknown) > 0 {
		t.Errorf("unknown: %v", s.Unknown)
	}
	payloads := 0
	for name, ft := range typesOf(reflect.TypeFor[audit.Event]()) {
		if ft.Kind() == reflect.Pointer && name != "guest_time" {
			payloads++
		}
	}
	if payloads != len(audit.Kinds())-1 { // run and step share one
		t.Errorf("%d payloads and %d kinds: a kind is missing here", payloads, len(audit.Kinds()))
	}
}

// whole is a record of an operation on the VM; vm is its payload.
func whole(vm string) string {
	return `{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":` + vm + `}`
}

// runs is a record of an exec with this path and these arguments.
func runs(exe, argv string) string {
	return `{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"exec","exec":{"proc":"p","pid":1,"ppid":1,"exe":` + exe + `,"argv":` + argv + `,"cwd":"/","uid":0}}`
}

var goodRecords = []string{
	whole(`{"op":"x"}`),
	whole(`{"op":"x","duration_ns":-9223372036854775808}`),
	whole(`{"op":"\\\"\b\f\n\r\t\u0000\u0007\u000b\u001f\u003c\u003e\u0026\u2028\u2029` + "\x7f\u00e9\u2027\u202a\ufffd\U0001F600" + `"}`),
	whole(`{"op":"<>&\u003c\u003e\u0026\ufffd\\\\ufffd"}`),
	runs(`"/bin/sh"`, `["a",{"base64":"/w=="}]`),
	runs(`{"base64":"/w=="}`, `null`), runs(`""`, `[]`),
	strings.Replace(strings.Replace(whole(`{"op":"x"}`), `,"vm":{"op":"x"}`, "", 1), `"vm"`, `"novel"`, 1),
	strings.Replace(whole(`{"op":"x"}`), "03:04:05Z", "03:04:05.00000001Z", 1),
}

var badRecords = []string{
	``, `{`, `[]`, `null`, `{}`, `{"v":1}`, whole(`null`), whole(`{}`), whole(`{"op":null}`), whole(`{"op":1}`), whole(`{"op":"x",}`), whole(`{,"op":"x"}`),
	whole(`{"op":"x","op":"x"}`), whole(`{"op":"x","duration_ns":0}`), whole(`{"op":"x","duration_ns":-0}`), whole(`{"op":"x","duration_ns":01}`),
	whole(`{"op":"x","duration_ns":1.5}`), whole(`{"op":"x","duration_ns":1e0}`), whole(`{"op":"x","duration_ns":9223372036854775808}`),
	whole(`{"op":"x","duration_ns":true}`), whole(`{"op":"x","duration_ns":"1"}`), whole(`{"duration_ns":1,"op":"x"}`), whole(`{ "op":"x"}`), whole(`{"op" :"x"}`),
	whole(`{"op":"x"}`) + "\n", " " + whole(`{"op":"x"}`), whole(`{"op":"x"},"gap":{}`), whole(`{"\u006fp":"x"}`), whole(`{"OP":"x"}`),
	whole(`{"op":"` + "\u2028" + `"}`), whole(`{"op":"` + "\xff" + `"}`), whole(`{"op":"` + "\x01" + `"}`),
	whole(`{"op":"\u003C"}`), whole(`{"op":"\u0008"}`), whole(`{"op":"\u0041"}`), whole(`{"op":"\ud800"}`), whole(`{"op":"\/"}`), whole(`{"op":"\x"}`), whole(`{"op":"\u007f"}`),
	whole(`{"op":"x`), whole(`{"op":"x\`), whole(`{"op":"x\u00`),
	strings.Replace(whole(`{"op":"x"}`), `"seq":1`, `"seq":-1`, 1), strings.Replace(whole(`{"op":"x"}`), `"seq":1`, `"seq":18446744073709551616`, 1),
	strings.Replace(whole(`{"op":"x"}`), "01-02", "13-02", 1), strings.Replace(whole(`{"op":"x"}`), "01-02", "02-30", 1), strings.Replace(whole(`{"op":"x"}`), "05Z", "05+02:00", 1),
	strings.Replace(whole(`{"op":"x"}`), "05Z", "05.10Z", 1), strings.Replace(whole(`{"op":"x"}`), "05Z", "05,1Z", 1), strings.Replace(whole(`{"op":"x"}`), "2026", "0000", 1), strings.Replace(whole(`{"op":"x"}`), "05Z", "60Z", 1),
	strings.Replace(whole(`{"op":"x"}`), `"2026-01-02T03:04:05Z"`, `null`, 1), strings.Replace(whole(`{"op":"x"}`), `"host"`, `"me"`, 1), strings.Replace(whole(`{"op":"x"}`), `"kind":"vm"`, `"kind":"exec"`, 1),
	runs(`null`, `[]`), runs(`{"base64":"*"}`, `[]`), runs(`{"base64":"/x=="}`, `[]`), runs(`{"base64":"YQ=="}`, `[]`), runs(`{"base64":""}`, `[]`), runs(`{"base64":"/w==","x":1}`, `[]`), runs(`"x"`, `["a",]`), runs(`"x"`, `[null]`),
}

var newerRecords = []string{whole(`{"op":"x","novel":[1,2.5e-3,{"y":[]}]}`), whole(`{"op":"x"},"novel":{}`), whole(`{"novel":`)}

func TestScanAgainstOracle(t *testing.T) {
	s := NewScanner(New())
	for _, r := range badRecords {
		if h, err := s.Scan([]byte(r)); err == nil || oracle([]byte(r)) == nil {
			t.Errorf("%s is taken: %+v, scanner %v, oracle %v", r, h, err, oracle([]byte(r)))
		}
	}
	for _, r := range goodRecords {
		if h, err := s.Scan([]byte(r)); err != nil || h.Stranger != "" || oracle([]byte(r)) != nil {
			t.Errorf("%s is refused: %+v, scanner %v, oracle %v", r, h, err, oracle([]byte(r)))
		}
	}
	for _, r := range newerRecords {
		if h, err := s.Scan([]byte(r)); err != nil || h.Stranger != "novel" || oracle([]byte(r)) == nil {
			t.Errorf("%s: %+v, scanner %v, oracle %v", r, h, err, oracle([]byte(r)))
		}
	}
	if _, ok := s.Unknown["novel"]; !ok {
		t.Errorf("unknown fields: %v", s.Unknown)
	}
}

// FuzzScan compares the scanner with encoding/json.
func FuzzScan(f *testing.F) {
	for _, b := range fullRecords(f) {
		f.Add(b)
	}
	for _, r := range slices.Concat(badRecords, goodRecords, newerRecords) {
		f.Add([]byte(r))
	}
	s := NewScanner(New())
	f.Fuzz(func(t *testing.T, record []byte) {
		h, err := s.Scan(record)
		if want := oracle(record); (err == nil && h.Stranger == "") != (want == nil) {
			t.Errorf("scanner: %+v, %v, oracle: %v", h, err, want)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	all := fullRecords(b)
	size := 0
	for _, r := range all {
		size += len(r)
	}
	b.Run("scan", func(b *testing.B) {
		s := NewScanner(New())
		b.SetBytes(int64(size))
		b.ReportAllocs()
		for b.Loop() {
			for _, r := range all {
				if _, err := s.Scan(r); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("gjson", func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			for _, r := range all {
				if !gjson.ValidBytes(r) {
					b.Fatal()
				}
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			for _, r := range all {
				if err := json.Unmarshal(r, new(audit.Record)); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// payloadName returns the name of the field with a kind's payload, by the format's rule.
func payloadName(k audit.Kind) string {
	if k == audit.KindRun || k == audit.KindStep {
		return "lifecycle"
	}
	return string(k)
}
