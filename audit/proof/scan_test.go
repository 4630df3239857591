package proof

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/custody-project/custody/audit"
)

// oracle judges a record by encoding/json alone, type by type: slow, and obviously right.
func oracle(record []byte) error {
	if !utf8.Valid(record) || !json.Valid(record) || depthOf(record) > maxDepth {
		return errors.New("not JSON")
	}
	fields, err := split(record, reflect.TypeFor[audit.Record]())
	if err != nil {
		return err
	}
	for _, name := range []string{"v", "run", "seq", "time", "observer", "kind"} {
		if raw, ok := fields[name]; !ok || string(raw) == "null" {
			return fmt.Errorf("no %s", name)
		}
	}
	if o := plain(fields["observer"]); o != "host" && o != "guest" {
		return fmt.Errorf("observer %s", o)
	}
	kind, known := plain(fields["kind"]), false
	for _, k := range kinds {
		name := payloadName(k)
		known = known || kind == string(k)
		raw, has := fields[name]
		if has && string(raw) == "null" {
			return fmt.Errorf("%s is null", name)
		}
		is := kind == string(k) || name == "lifecycle" && (kind == "run" || kind == "step")
		if has != is && slices.Contains(kinds[:], audit.Kind(kind)) {
			return fmt.Errorf("kind %s, %s: %t", kind, name, has)
		}
	}
	return nil
}

func plain(raw json.RawMessage) (s string) {
	json.Unmarshal(raw, &s)
	return s
}

func depthOf(b []byte) (most int) {
	d := json.NewDecoder(bytes.NewReader(b))
	depth := 0
	for {
		t, err := d.Token()
		if err != nil {
			return most
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
			most = max(most, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// split checks an object against a struct type and returns its fields.
func split(raw []byte, t reflect.Type) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf("no object: %v", err)
	}
	types, fields := typesOf(t), map[string]json.RawMessage{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		name := key.(string)
		ft, known := types[name]
		if !known {
			for other := range types {
				if strings.EqualFold(other, name) {
					return nil, fmt.Errorf("%s is like %s", name, other)
				}
			}
			continue
		}
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("%s twice", name)
		}
		fields[name] = value
		if err := fits(value, ft); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return fields, nil
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

func fits(raw json.RawMessage, t reflect.Type) error {
	if t == reflect.TypeFor[audit.Text]() {
		return new(audit.Text).UnmarshalJSON(raw)
	}
	if string(raw) == "null" {
		return nil
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return new(time.Time).UnmarshalJSON(raw)
	case t.Kind() == reflect.Pointer:
		return fits(raw, t.Elem())
	case t.Kind() == reflect.Struct:
		_, err := split(raw, t)
		return err
	case t.Kind() == reflect.Slice:
		var all []json.RawMessage
		if err := json.Unmarshal(raw, &all); err != nil {
			return err
		}
		for _, one := range all {
			if err := fits(one, t.Elem()); err != nil {
				return err
			}
		}
		return nil
	}
	return json.Unmarshal(raw, reflect.New(t).Interface())
}

// fill sets every field below v to something that is not empty.
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
	for i, k := range kinds {
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
	s := newScanner(newSchema())
	for i, b := range fullRecords(t) {
		h, err := s.scan(b)
		if err != nil || h.kind != kinds[i] || !h.known || h.observer != audit.Guest || h.time.Nanosecond() != 123456789 {
			t.Errorf("%s: %+v, %v", b, h, err)
		}
		if err := oracle(b); err != nil {
			t.Errorf("oracle: %s: %v", b, err)
		}
	}
	if len(s.unknown) > 0 {
		t.Errorf("unknown: %v", s.unknown)
	}
	payloads := 0
	for name, ft := range typesOf(reflect.TypeFor[audit.Event]()) {
		if ft.Kind() == reflect.Pointer && name != "guest_time" {
			payloads++
		}
	}
	if payloads != len(kinds)-1 { // run and step share one
		t.Errorf("%d payloads and %d kinds: a kind is missing here", payloads, len(kinds))
	}
}

var badRecords = []string{
	``, `{`, `[]`, `null`, `{}`, `{"v":1}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm"}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":null}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{},"gap":{}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{},"vm":{}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","VM":{}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{"op":1}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{"duration_ns":1.5}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{"duration_ns":9223372036854775808}}`,
	`{"v":1,"run":"r","seq":-1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-13-02T03:04:05Z","observer":"host","kind":"vm","vm":{}}`,
	`{"v":1,"run":"r","seq":1,"time":null,"observer":"host","kind":"vm","vm":{}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"me","kind":"vm","vm":{}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{"op":"` + "\xff" + `"}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{"op":"` + "\x01" + `"}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{"op":"\x"}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{}} x`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{"x":01}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{},}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"exec","exec":{"exe":null}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"exec","exec":{"exe":{"base64":"*"}}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`,
}

var goodRecords = []string{
	` { "v" : 1 , "run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{ } }` + "\n",
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","k\u0069nd":"v\u006d","vm":{"op":"\ud800\"\\\/"}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"exec","exec":{"exe":{"base64":"/w=="},"argv":null}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"novel","novel":{"x":[1,2.5e-3,{"y":[]}]}}`,
	`{"v":1,"run":"r","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"vm","vm":{"op":"x","novel":[true,false,null]}}`,
	`{"vm":{"duration_ns":-0},"kind":"vm","observer":"guest","time":"2026-01-02T03:04:05+02:00","seq":1,"run":"r","v":1}`,
}

func TestScanAgainstOracle(t *testing.T) {
	s := newScanner(newSchema())
	for _, r := range badRecords {
		if _, err := s.scan([]byte(r)); err == nil || oracle([]byte(r)) == nil {
			t.Errorf("%s is taken: scanner %v, oracle %v", r, err, oracle([]byte(r)))
		}
	}
	for _, r := range goodRecords {
		if _, err := s.scan([]byte(r)); err != nil || oracle([]byte(r)) != nil {
			t.Errorf("%s is refused: scanner %v, oracle %v", r, err, oracle([]byte(r)))
		}
	}
	if _, ok := s.unknown["novel"]; !ok {
		t.Errorf("unknown fields: %v", s.unknown)
	}
}

// FuzzScan holds the scanner against encoding/json.
func FuzzScan(f *testing.F) {
	for _, b := range fullRecords(f) {
		f.Add(b)
	}
	for _, r := range append(badRecords, goodRecords...) {
		f.Add([]byte(r))
	}
	s := newScanner(newSchema())
	f.Fuzz(func(t *testing.T, record []byte) {
		_, err := s.scan(record)
		if want := oracle(record); (err == nil) != (want == nil) {
			t.Errorf("scanner: %v, oracle: %v", err, want)
		}
		var syntax syntaxError
		if errors.As(err, &syntax) && utf8.Valid(record) && json.Valid(record) && bytes.TrimSpace(record)[0] == '{' && depthOf(record) <= maxDepth {
			t.Errorf("no matter of syntax: %v", err)
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
		s := newScanner(newSchema())
		b.SetBytes(int64(size))
		b.ReportAllocs()
		for b.Loop() {
			for _, r := range all {
				if _, err := s.scan(r); err != nil {
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
