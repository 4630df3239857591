package sample

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
)

// Leaf is a value that occurs only once in its event.
type Leaf struct {
	Field string // as in flow.dns_seq
	// Forms are its possible representations; nanoseconds may become milliseconds.
	Forms []string
}

// Full returns for each kind an event in which every field of the payload has a unique value,
// and these values: a format drops a value that it does not write anywhere. If the values are fit,
// an address is a valid address, and a port a valid port; otherwise not.
func Full(fit bool) map[audit.Kind]FullEvent {
	all := map[audit.Kind]FullEvent{}
	for _, info := range audit.KindTable() {
		kind := info.Kind
		f := filler{fit: fit}
		e := export.Event{Tenant: "tenant-x", Host: "host-x"}
		e.V, e.Run, e.Seq = 1, "r-run-x", 4242424242
		e.Time, e.Observer, e.Kind, e.Step = Time(), "observer-x", kind, "step-x"
		e.Guest = &audit.GuestTime{Time: Time().Add(-time.Hour), OffsetNS: 12345678987}
		f.fill(info.Payload, reflect.ValueOf(e.SetPayload()).Elem())
		f.leaf("run", "r-run-x")
		f.leaf("seq", "4242424242")
		f.leaf("time", Time().Format(time.RFC3339Nano))
		f.leaf("observer", "observer-x")
		f.leaf("step", "step-x")
		f.leaf("guest_time.time", "2026-11-20T21:57:07.722398033Z")
		f.leaf("guest_time.offset_ns", "12345678987")
		f.leaf("tenant", "tenant-x")
		f.leaf("host's key", "host-x")
		all[kind] = FullEvent{e, f.leaves, f.flags}
	}
	return all
}

// FullEvent is an event with all its values.
type FullEvent struct {
	export.Event
	Leaves []Leaf
	Flags  []Flag
}

// Flag is a boolean in an event, which Set changes.
type Flag struct {
	Field string
	Set   func(bool)
}

// Kinds returns all kinds, sorted.
func Kinds() []audit.Kind {
	var kinds []audit.Kind
	for k := range Full(true) {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds
}

type filler struct {
	fit    bool
	n      int
	leaves []Leaf
	flags  []Flag
}

func (f *filler) leaf(field string, forms ...string) {
	f.leaves = append(f.leaves, Leaf{field, forms})
}

func (f *filler) fill(name string, v reflect.Value) {
	f.n++
	if t, ok := v.Addr().Interface().(*time.Time); ok {
		*t = Time().Add(time.Duration(f.n) * time.Hour)
		f.leaf(name, t.Format(time.RFC3339Nano), fmt.Sprint(t.UnixMilli()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			f.fill(name+"."+tag, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(name, v.Index(0))
		f.fill(name, v.Index(1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(name, v.Elem())
	case reflect.String:
		forms := f.text(name)
		v.SetString(forms[0])
		f.leaf(name, forms...)
	case reflect.Bool:
		v.SetBool(true)
		f.flags = append(f.flags, Flag{name, v.SetBool})
	case reflect.Int, reflect.Int64:
		n := int64(1000+f.n) * 1e6
		if f.fit && strings.HasSuffix(name, "_port") {
			n = int64(40000 + f.n)
		}
		v.SetInt(n)
		if forms := []string{fmt.Sprint(n)}; n >= 1e6 {
			f.leaf(name, append(forms, fmt.Sprint(n/1e6))...)
		} else {
			f.leaf(name, forms...)
		}
	case reflect.Uint32:
		v.SetUint(uint64(770000 + f.n))
		f.leaf(name, fmt.Sprint(770000+f.n))
	case reflect.Uint64:
		v.SetUint(uint64(7700000000 + f.n))
		f.leaf(name, fmt.Sprint(7700000000+f.n))
	default:
		panic(name + " has a type that the filler does not know")
	}
}

// text returns a text for a field, and its possible representations.
func (f *filler) text(name string) []string {
	if f.fit {
		switch name {
		case "flow.src_ip", "flow.dst_ip", "dns.answers", "access.remote", "note.remote":
			return []string{fmt.Sprintf("10.77.0.%d", f.n)}
		case "flow.peer":
			return []string{"203.0.113.7:4711", "203.0.113.7"}
		case "dns.upstream":
			return []string{"udp://192.0.2.53:5353", "192.0.2.53"}
		case "dns.rcode":
			return []string{"NOTAUTH", "NotAuth"}
		case "http.method":
			return []string{"OPTIONS"}
		}
	}
	return []string{fmt.Sprintf("v%dv", 1000+f.n)}
}
