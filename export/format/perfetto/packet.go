package perfetto

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/custody-project/custody/export/internal/wire"
)

// Numbers of the fields, with their names in Perfetto's published .proto files:
// trace.proto, trace_packet.proto, clock_snapshot.proto, track_descriptor.proto, counter_descriptor.proto,
// track_event.proto and debug_annotation.proto.
const (
	tracePacket = 1

	packetClockSnapshot   = 6
	packetTimestamp       = 8
	packetSequence        = 10
	packetTrackEvent      = 11
	packetSequenceFlags   = 13
	packetTrackDescriptor = 60

	snapshotClock  = 1
	clockID        = 1
	clockTimestamp = 2

	trackUUID     = 1
	trackName     = 2
	trackParent   = 5
	trackCounter  = 8
	trackChildren = 11
	trackRank     = 12

	counterUnit = 3

	eventAnnotation = 4
	eventType       = 9
	eventTrack      = 11
	eventCategory   = 22
	eventName       = 23
	eventCounter    = 30
	eventFlow       = 47

	annotationInt    = 4
	annotationString = 6
	annotationName   = 10
)

// Values of enums.
const (
	typeBegin   = 1
	typeEnd     = 2
	typeInstant = 3
	typeCounter = 4

	clockRealtime = 1
	clockBoottime = 6 // the default clock of timestamps

	unitBytes     = 3
	orderTime     = 2 // CHRONOLOGICAL
	orderExplicit = 3
	stateCleared  = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	sequence      = 1 // all packets are of one sequence
)

// message is a protobuf message under construction.
type message []byte

func (m *message) varint(field protowire.Number, n uint64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), n)
}

func (m *message) text(field protowire.Number, s string) {
	*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
}

func (m *message) fixed(field protowire.Number, n uint64) {
	*m = protowire.AppendFixed64(protowire.AppendTag(*m, field, protowire.Fixed64Type), n)
}

func (m *message) sub(field protowire.Number, inner message) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), inner)
}

// packet writes one packet of the trace.
func (t *tracer) packet(p message) {
	if t.err != nil {
		return
	}
	p.varint(packetSequence, sequence)
	t.buf = protowire.AppendBytes(protowire.AppendTag(t.buf[:0], tracePacket, protowire.BytesType), p)
	_, t.err = t.out.Write(t.buf)
}

// begin declares the clock of the timestamps.
func (t *tracer) begin(at int64) {
	var snapshot, p message
	for _, id := range []uint64{clockBoottime, clockRealtime} {
		var c message
		c.varint(clockID, id)
		c.varint(clockTimestamp, uint64(at))
		snapshot.sub(snapshotClock, c)
	}
	p.sub(packetClockSnapshot, snapshot)
	p.varint(packetTimestamp, uint64(at))
	p.varint(packetSequenceFlags, stateCleared)
	t.packet(p)
}

// newTrack describes a track and returns its number. The root's children are ordered by
// rank, those of others by their first events.
func (t *tracer) newTrack(parent uint64, name string, rank int) uint64 {
	id, d := t.descriptor(parent, name, rank)
	if parent == 0 {
		d.varint(trackChildren, orderExplicit)
	} else {
		d.varint(trackChildren, orderTime)
	}
	t.describe(d)
	return id
}

func (t *tracer) descriptor(parent uint64, name string, rank int) (uint64, message) {
	t.next++
	var d message
	d.varint(trackUUID, t.next)
	d.text(trackName, wire.Legible(name, maxName))
	if parent != 0 {
		d.varint(trackParent, parent)
	}
	d.varint(trackRank, uint64(rank))
	return t.next, d
}

func (t *tracer) describe(d message) {
	var p message
	p.sub(packetTrackDescriptor, d)
	t.packet(p)
}

// event writes an instant, or both ends of a slice.
func (t *tracer) event(track uint64, e *event) {
	var m message
	m.varint(eventTrack, track)
	m.text(eventCategory, wire.Legible(e.observer, maxName))
	m.text(eventName, wire.Legible(e.name, maxName))
	m.sub(eventAnnotation, annotation(arg{name: "seq", number: int64(e.seq)}))
	if e.open {
		m.sub(eventAnnotation, annotation(arg{name: "end", text: "not in the record"}))
	}
	for _, a := range e.args {
		m.sub(eventAnnotation, annotation(a))
	}
	for _, id := range e.arrows {
		m.fixed(eventFlow, id)
	}
	if e.instant {
		m.varint(eventType, typeInstant)
		t.at(e.start, m)
		return
	}
	m.varint(eventType, typeBegin)
	t.at(e.start, m)
	var end message
	end.varint(eventTrack, track)
	end.varint(eventType, typeEnd)
	t.at(e.end, end)
}

func (t *tracer) at(when int64, event message) {
	var p message
	p.varint(packetTimestamp, uint64(when))
	p.sub(packetTrackEvent, event)
	t.packet(p)
}

func annotation(a arg) (m message) {
	m.text(annotationName, a.name)
	if a.text != "" {
		m.text(annotationString, a.text)
	} else {
		m.varint(annotationInt, uint64(a.number))
	}
	return m
}

// counters writes the number of bytes of each stream.
func (t *tracer) counters(m *model) {
	for rank, name := range m.streams {
		id, d := t.descriptor(t.tracks[trackKey{lane: laneOutput, row: 1}], name, rank)
		var unit message
		unit.varint(counterUnit, unitBytes)
		d.sub(trackCounter, unit)
		t.describe(d)
		for _, s := range m.output[name] {
			var e message
			e.varint(eventTrack, id)
			e.varint(eventType, typeCounter)
			e.varint(eventCounter, uint64(s.bytes))
			t.at(s.at, e)
		}
	}
}
