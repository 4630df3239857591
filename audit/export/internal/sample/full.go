package sample

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/export"
)

// Leaf is a value that stands nowhere else in its event.
type Leaf struct {
	Field string // as in Flow.DNSSeq
	// Forms are the ways to write it; nanoseconds may become milliseconds.
	Forms []string
}

// Full returns for each kind an event in which every field of the payload has a value of its own,
// fit or not, and these values: what a format does not write somewhere, it drops.
func Full() map[audit.Kind]FullEvent {
	all := map[audit.Kind]FullEvent{}
	payloads := map[audit.Kind]string{
		audit.KindRun: "Lifecycle", audit.KindStep: "Lifecycle", audit.KindExec: "Exec", audit.KindExit: "Exit",
		audit.KindFile: "File", audit.KindFlow: "Flow", audit.KindDNS: "DNS", audit.KindHTTP: "HTTP",
		audit.KindLLM: "LLM", audit.KindPolicy: "Policy", audit.KindProbe: "Probe", audit.KindOutput: "Output",
		audit.KindVM: "VM", audit.KindSecret: "Secret", audit.KindGap: "Gap", audit.KindFinding: "Finding",
	}
	for kind, field := range payloads {
		f := filler{}
		e := export.Event{Tenant: "tenant-x", Host: "host-x"}
		e.V, e.Run, e.Seq = 1, "r-run-x", 4242424242
		e.Time, e.Observer, e.Kind, e.Step = Time(), audit.Host, kind, "step-x"
		e.Guest = &audit.GuestTime{Time: Time().Add(-time.Hour), OffsetNS: 12345678987}
		p := reflect.ValueOf(&e.Event).Elem().FieldByName(field)
		p.Set(reflect.New(p.Type().Elem()))
		f.fill(field, p.Elem())
		f.leaf("Run", "r-run-x")
		f.leaf("Seq", "4242424242")
		f.leaf("Tenant", "tenant-x")
		f.leaf("Host", "host-x")
		f.leaf("Step", "step-x")
		f.leaf("Guest.OffsetNS", "12345678987")
		f.leaf("Guest.Time", "2026-11-20T21:57:07.722398033Z")
		all[kind] = FullEvent{e, f.leaves}
	}
	return all
}

// FullEvent is an event with all its values.
type FullEvent struct {
	export.Event
	Leaves []Leaf
}

// Kinds returns all kinds, sorted.
func Kinds() []audit.Kind {
	var kinds []audit.Kind
	for k := range Full() {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds
}

type filler struct {
	n      int
	leaves []Leaf
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
			f.fill(name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(name, v.Index(0))
		f.fill(name, v.Index(1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(name, v.Elem())
	case reflect.String:
		s := fmt.Sprintf("v%dv", 1000+f.n)
		v.SetString(s)
		f.leaf(name, s)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		n := int64(1000+f.n) * 1e6
		v.SetInt(n)
		f.leaf(name, fmt.Sprint(n), fmt.Sprint(n/1e6))
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
