package wal_test

import (
	"context"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
)

// stepping is a Sealer on a host whose clock jumps.
type stepping struct {
	wal.Sealer
	now func() time.Time
}

func (s stepping) Seal(seg wal.Segment) (leaves, manifest []byte, err error) {
	seg.Time = s.now()
	return s.Sealer.Seal(seg)
}

// TestClockStepped steps the host's clock back and forth between events and
// seals. The record stays ordered by seq, and it verifies.
func TestClockStepped(t *testing.T) {
	k := newKey(t)
	base := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	steps := []time.Duration{0, -time.Hour, 24 * 365 * time.Hour, -24 * 365 * 30 * time.Hour, time.Nanosecond, -time.Nanosecond}
	seals, dir := 0, runDir(t)
	o := k.options()
	o.SegmentBytes = segmentBytes
	o.Sealer = stepping{o.Sealer, func() time.Time {
		seals++
		return base.Add(steps[seals%len(steps)])
	}}
	l, err := wal.Create(dir, o)
	check(t, err)
	rec := audit.NewRecorder(l, red)
	const events = 40
	for id := range events {
		ev := audit.Event{
			Time: base.Add(steps[id%len(steps)]), Observer: audit.Host, Kind: audit.KindOutput,
			Output: &audit.Output{Stream: "stdout", Offset: int64(id)},
		}
		seq, err := rec.Record(context.Background(), ev)
		check(t, err)
		if seq != uint64(id+1) {
			t.Errorf("event %d got seq %d", id, seq)
		}
	}
	check(t, l.Close(t.Context(), wal.Sealed))
	for i, r := range read(t, dir) {
		if r.Seq != uint64(i+1) || r.Output.Offset != int64(i) || !r.Time.Equal(base.Add(steps[i%len(steps)])) {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if report := verify(t, dir, k); report.Records != events || seals < len(steps) {
		t.Errorf("%d records, %d seals", report.Records, seals)
	}
}
