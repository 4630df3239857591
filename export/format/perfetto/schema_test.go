package perfetto_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// schema is the used part of Perfetto's messages, with the numbers and
// types of the published protocol (perfetto.dev/docs/reference/trace-packet-proto). It is
// independent of the writer's constants. * is a repeated field.
const schema = `
Trace: packet=1 *TracePacket
TracePacket: clock_snapshot=6 ClockSnapshot, timestamp=8 uint64, trusted_packet_sequence_id=10 uint32, track_event=11 TrackEvent, sequence_flags=13 uint32, track_descriptor=60 TrackDescriptor
ClockSnapshot: clocks=1 *Clock
Clock: clock_id=1 uint32, timestamp=2 uint64
TrackDescriptor: uuid=1 uint64, name=2 string, parent_uuid=5 uint64, counter=8 CounterDescriptor, child_ordering=11 int32, sibling_order_rank=12 int32
CounterDescriptor: unit=3 int32
TrackEvent: debug_annotations=4 *DebugAnnotation, type=9 int32, track_uuid=11 uint64, categories=22 *string, name=23 string, counter_value=30 int64, flow_ids=47 *fixed64
DebugAnnotation: int_value=4 int64, string_value=6 string, name=10 string
`

// traceType builds the message Trace of the schema for the protobuf library.
func traceType(t testing.TB) protoreflect.MessageDescriptor {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("trace.proto"), Package: proto.String("p"), Syntax: proto.String("proto2")}
	for line := range strings.Lines(strings.TrimSpace(schema)) {
		name, fields, _ := strings.Cut(strings.TrimSpace(line), ": ")
		m := &descriptorpb.DescriptorProto{Name: proto.String(name)}
		for f := range strings.SplitSeq(fields, ", ") {
			var number int32
			key, typ, _ := strings.Cut(f, " ")
			key, digits, _ := strings.Cut(key, "=")
			fmt.Sscan(digits, &number)
			m.Field = append(m.Field, field(key, typ, number))
		}
		file.MessageType = append(file.MessageType, m)
	}
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d.Messages().ByName("Trace")
}

func field(name, typ string, number int32) *descriptorpb.FieldDescriptorProto {
	f := &descriptorpb.FieldDescriptorProto{
		Name: proto.String(name), Number: proto.Int32(number), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
	}
	if rest, ok := strings.CutPrefix(typ, "*"); ok {
		typ, f.Label = rest, descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	types := map[string]descriptorpb.FieldDescriptorProto_Type{
		"uint64": descriptorpb.FieldDescriptorProto_TYPE_UINT64, "uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32,
		"int64": descriptorpb.FieldDescriptorProto_TYPE_INT64, "int32": descriptorpb.FieldDescriptorProto_TYPE_INT32,
		"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "fixed64": descriptorpb.FieldDescriptorProto_TYPE_FIXED64,
	}
	if simple, ok := types[typ]; ok {
		f.Type = simple.Enum()
		return f
	}
	f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".p."+typ)
	return f
}

// tree is a parsed message: fields by name, lists of repeated ones.
type tree map[string]any

func read(t testing.TB, data []byte) []tree {
	t.Helper()
	m := dynamicpb.NewMessage(traceType(t))
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	packets, _ := plain(t, m)["packet"].([]any)
	var all []tree
	for _, p := range packets {
		all = append(all, p.(tree))
	}
	return all
}

func plain(t testing.TB, m protoreflect.Message) tree {
	t.Helper()
	if len(m.GetUnknown()) > 0 {
		t.Fatalf("%s: fields that it does not have: %x", m.Descriptor().Name(), m.GetUnknown())
	}
	out := tree{}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		one := func(v protoreflect.Value) any {
			if f.Kind() == protoreflect.MessageKind {
				return plain(t, v.Message())
			}
			return v.Interface()
		}
		if !f.IsList() {
			out[string(f.Name())] = one(v)
			return true
		}
		var list []any
		for i := range v.List().Len() {
			list = append(list, one(v.List().Get(i)))
		}
		out[string(f.Name())] = list
		return true
	})
	return out
}

// trace is the parsed trace.
type trace struct {
	names   map[uint64]string
	parents map[uint64]uint64
	slices  []slice
	counts  map[string][]int64
}

// slice is a slice on a track; an instant ends where it begins.
type slice struct {
	track                uint64
	path, name, category string
	start, end           uint64
	instant              bool
	args                 map[string]any
	flows                []uint64
}

// parse parses a trace and checks the assumptions of readers: tracks are described before they are used, slices of
// one track nest, each flow has two ends.
func parse(t testing.TB, data []byte) trace {
	t.Helper()
	tr := trace{names: map[uint64]string{}, parents: map[uint64]uint64{}, counts: map[string][]int64{}}
	open := map[uint64]*slice{}
	for i, p := range read(t, data) {
		if p["trusted_packet_sequence_id"] != uint32(1) {
			t.Fatalf("packet %d is of no sequence: %v", i, p)
		}
		if d, ok := p["track_descriptor"].(tree); ok {
			tr.describe(t, d)
			continue
		}
		e, ok := p["track_event"].(tree)
		if !ok {
			if _, ok := p["clock_snapshot"]; !ok || i != 0 {
				t.Fatalf("packet %d: %v", i, p)
			}
			continue
		}
		at, _ := p["timestamp"].(uint64)
		tr.event(t, e, at, open)
	}
	for id, s := range open {
		t.Errorf("%s: %s has no end", tr.path(id), s.name)
	}
	tr.check(t)
	return tr
}

func (tr *trace) describe(t testing.TB, d tree) {
	id := d["uuid"].(uint64)
	parent, _ := d["parent_uuid"].(uint64)
	if _, twice := tr.names[id]; twice || parent != 0 && tr.names[parent] == "" {
		t.Fatalf("track %d: there twice, or below one that is not there: %v", id, d)
	}
	tr.names[id], tr.parents[id] = d["name"].(string), parent
}

func (tr *trace) path(id uint64) string {
	if tr.parents[id] == 0 {
		return tr.names[id]
	}
	return tr.path(tr.parents[id]) + "/" + tr.names[id]
}

func (tr *trace) event(t testing.TB, e tree, at uint64, open map[uint64]*slice) {
	id := e["track_uuid"].(uint64)
	if tr.names[id] == "" {
		t.Fatalf("an event on track %d, which is not described", id)
	}
	s := slice{track: id, path: tr.path(id), start: at, end: at, args: map[string]any{}}
	s.name, _ = e["name"].(string)
	if c, ok := e["categories"].([]any); ok {
		s.category = c[0].(string)
	}
	if list, ok := e["debug_annotations"].([]any); ok {
		for _, a := range list {
			a := a.(tree)
			s.args[a["name"].(string)] = a["string_value"]
			if n, ok := a["int_value"]; ok {
				s.args[a["name"].(string)] = n
			}
		}
	}
	if list, ok := e["flow_ids"].([]any); ok {
		for _, f := range list {
			s.flows = append(s.flows, f.(uint64))
		}
	}
	switch e["type"].(int32) {
	case 1:
		if open[id] != nil {
			t.Fatalf("%s: %s begins in %s", s.path, s.name, open[id].name)
		}
		open[id] = &s
	case 2:
		if open[id] == nil || at < open[id].start {
			t.Fatalf("%s: an end without a begin", s.path)
		}
		open[id].end = at
		tr.slices = append(tr.slices, *open[id])
		delete(open, id)
	case 3:
		s.instant = true
		tr.slices = append(tr.slices, s)
	case 4:
		n, _ := e["counter_value"].(int64)
		tr.counts[s.path] = append(tr.counts[s.path], n)
	default:
		t.Fatalf("type %v", e["type"])
	}
}

func (tr *trace) check(t testing.TB) {
	last, ends := map[uint64]uint64{}, map[uint64]int{}
	for _, s := range tr.slices {
		for _, f := range s.flows {
			ends[f]++
		}
		if s.instant {
			continue
		}
		if s.start < last[s.track] {
			t.Fatalf("%s: %s begins before what was there has ended", s.path, s.name)
		}
		last[s.track] = s.end
	}
	for f, n := range ends {
		if n != 2 {
			t.Errorf("flow %d has %d ends", f, n)
		}
	}
}

// find returns the slices of a track whose name has a prefix.
func (tr trace) find(path, name string) (all []slice) {
	for _, s := range tr.slices {
		if strings.HasSuffix(s.path, path) && strings.HasPrefix(s.name, name) {
			all = append(all, s)
		}
	}
	return all
}

// linked reports whether an arrow leads from one to the other.
func linked(a, b slice) bool {
	return slices.ContainsFunc(a.flows, func(f uint64) bool { return slices.Contains(b.flows, f) })
}
