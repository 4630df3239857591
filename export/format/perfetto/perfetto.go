// Package perfetto writes a run as a trace for ui.perfetto.dev, which processes it in the browser
// without uploading it, for a copy of that page, or for trace_processor: "Open trace file".
//
// The format is Perfetto's TrackEvent in protobuf (perfetto.dev/docs/reference/synthetic-track-event and
// trace-packet-proto). Times are the record's, in nanoseconds since 1970, with a clock snapshot that states that. The
// tracks are:
//
//	run, steps            a slice each
//	processes             a track each, below their parent's: a slice for each program, instants for files and connects
//	names, flows, requests, model   observations of the host, a slice each; denials are instants
//	secrets               a track each: a slice for its life, instants for renewals and uses
//	sandbox               freezes and other operations on the VM
//	findings and gaps     instants
//	output                a counter of bytes for each stream
//
// Arrows lead from a name's answer to the flow that depends on it, on to its requests and the LLM API call, from that to
// the programs that it requested, from flows to the uses of a secret, and to findings from their evidence. The
// category of an event is its observer, host or guest; a track of the guest's claims has that in its name. Each event
// has the seq of its record. A trace is derived from the record and proves nothing; a bundle does.
package perfetto

import (
	"bufio"
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/custody-project/custody/export/internal/wire"
	"github.com/custody-project/custody/store"
)

// Write writes the run with these rows, in order of seq. It keeps an event in memory for
// each row until the end, because only then all durations are known.
func Write(w io.Writer, run store.Run, rows iter.Seq2[store.Row, error]) error {
	m := newModel(run)
	for row, err := range rows {
		if err != nil {
			return err
		}
		m.row(row)
	}
	m.finish()
	out := bufio.NewWriterSize(w, 64<<10)
	t := tracer{out: out, tracks: map[trackKey]uint64{}}
	t.write(m)
	if err := cmp.Or(t.err, out.Flush()); err != nil {
		return fmt.Errorf("write perfetto trace: %w", err)
	}
	return nil
}

// lane is a group of tracks.
type lane int

const (
	laneRun lane = iota
	laneSteps
	laneProcs
	laneNames
	laneFlows
	laneRequests
	laneModel
	laneSecrets
	laneSandbox
	laneFindings
	laneAccess
	laneOutput
	lanes
)

func (l lane) String() string {
	return [...]string{
		"run", "steps", "processes (claimed by the guest)", "names", "flows", "requests", "model", "secrets", "sandbox",
		"findings and gaps", "access", "output",
	}[l]
}

// event is something on a track. Without a separate track, it is placed on one of its lane's
// that is free at that time.
type event struct {
	lane       lane
	track      string // key of its track, "" for any of its lane
	start, end int64  // ns; an instant has no end
	instant    bool
	open       bool // it had not ended at the end of the record
	name       string
	observer   string
	seq        uint64
	args       []arg
	arrows     []uint64
}

// arg is a detail: a text, or a number if text is empty.
type arg struct {
	name   string
	text   string
	number int64
}

const (
	maxName = 200  // bytes of a name
	maxArg  = 4000 // of a detail
)

func (e *event) say(name, text string) {
	if text != "" {
		e.args = append(e.args, arg{name: name, text: wire.Legible(text, maxArg)})
	}
}

func (e *event) count(name string, n int64) {
	if n != 0 {
		e.args = append(e.args, arg{name: name, number: n})
	}
}

// nanos returns Unix time in nanoseconds, 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.Year() < 1970 || t.Year() > 2260 {
		return 0
	}
	return t.UnixNano()
}

// trackKey identifies a track: one of its lane, by its key or by its row.
type trackKey struct {
	lane lane
	key  string
	row  int
}

// tracer writes the trace of a model. Tracks are numbered in order of creation.
type tracer struct {
	out    *bufio.Writer
	buf    []byte
	tracks map[trackKey]uint64
	next   uint64
	err    error
}

func (t *tracer) write(m *model) {
	t.begin(m.began)
	root := t.newTrack(0, "custody "+m.run.ID, 0)
	byLane := [lanes][]*event{}
	for _, e := range m.events {
		byLane[e.lane] = append(byLane[e.lane], e)
	}
	for l, events := range byLane {
		if len(events) == 0 && (lane(l) != laneOutput || len(m.output) == 0) {
			continue
		}
		t.tracks[trackKey{lane: lane(l), row: 1}] = t.newTrack(root, lane(l).String(), l)
		switch lane(l) {
		case laneProcs:
			t.procs(m)
		case laneOutput:
			t.counters(m)
			continue
		}
		t.lane(root, lane(l), events)
	}
}

// procs creates the processes' tracks, each below its parent's.
func (t *tracer) procs(m *model) {
	for _, p := range m.procs {
		above := t.tracks[trackKey{lane: laneProcs, row: 1}]
		if p.parent != nil {
			above = t.tracks[trackKey{lane: laneProcs, key: p.parent.key}]
		}
		t.tracks[trackKey{lane: laneProcs, key: p.key}] = t.newTrack(above, p.name, 0)
	}
}

// lane writes the events of a lane, track by track.
func (t *tracer) lane(root uint64, l lane, events []*event) {
	slices.SortStableFunc(events, func(a, b *event) int { return cmp.Compare(a.start, b.start) })
	var busy rows
	for _, e := range events {
		t.event(t.trackOf(root, l, e, &busy), e)
	}
}

// row is one of a lane's tracks, with the time until which it is occupied.
type row struct {
	number int
	end    int64
}

// rows are a lane's tracks as a heap, the one that is free first on top.
type rows []row

func (r rows) Len() int           { return len(r) }
func (r rows) Less(i, j int) bool { return r[i].end < r[j].end }
func (r rows) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *rows) Push(x any)        { *r = append(*r, x.(row)) }
func (r *rows) Pop() any          { panic("rows are never given back") }

// place returns the number of a row that is free from start on, and occupies it until end.
func (r *rows) place(start, end int64) int {
	if len(*r) == 0 || (*r)[0].end > start {
		heap.Push(r, row{len(*r) + 1, end})
		return len(*r)
	}
	(*r)[0].end = end
	number := (*r)[0].number
	heap.Fix(r, 0)
	return number
}

// trackOf returns the track of an event. Slices of one track never overlap: those of a separate
// track were made so, others are placed on a free row.
func (t *tracer) trackOf(root uint64, l lane, e *event, busy *rows) uint64 {
	key := trackKey{lane: l, key: e.track}
	if e.track == "" {
		key.row = busy.place(e.start, e.end)
	}
	id, ok := t.tracks[key]
	if ok {
		return id
	}
	if e.track != "" {
		id = t.newTrack(t.tracks[trackKey{lane: l, row: 1}], e.track, 0)
	} else { // the same name as another: they are drawn as one
		id = t.newTrack(root, l.String(), int(l))
	}
	t.tracks[key] = id
	return id
}
