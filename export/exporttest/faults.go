package exporttest

import (
	"context"
	"testing"
	"time"

	"github.com/custody-project/custody/export"
)

// Faults runs an exporter into a sink that open makes for the address of a proxy, before the server at target. got
// returns the number of copies of each id at the server; it may be behind. The connections get the faults
// in turn, and after them every event must have arrived, and nothing else.
func Faults(t *testing.T, target string, open func(addr string) export.Sink, got func() map[string]int) *export.Exporter {
	t.Helper()
	var faults []Fault
	for range 3 {
		faults = append(faults, Refuse, Hang, Late, Break, Garbage, Drip, Late)
	}
	p := NewProxy(t, target, faults...)
	sink := open(p.Addr)
	src := &Source{}
	src.Add(Run("acme", "r-1", 400, 90)...)
	x, err := export.Open(export.Options{Name: "siem", Dir: t.TempDir(), Source: src, Format: export.JSON{}, Sink: sink, Poll: 10 * time.Millisecond,
		Batch: export.Batch{Items: 25}, Timeout: 300 * time.Millisecond, Retry: export.Retry{First: 2 * time.Millisecond, Max: 20 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	done := make(chan error, 1)
	go func() { done <- x.Follow(ctx) }()
	runs := 1
	// Events are added until every fault was used.
	for p.Left() > 0 && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		if b, err := x.Behind(ctx); err == nil && b.Segments == 0 {
			runs++
			src.Add(Run("acme", "r-"+string(rune('0'+runs%10))+time.Now().Format("150405.000000000"), 100, 30)...)
		}
	}
	ids := src.IDs()
	for len(missing(ids, got())) > 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, id := range missing(ids, got()) {
		t.Errorf("event %s was lost", id)
	}
	for id := range got() {
		if !ids[id] {
			t.Errorf("event %q is of no record", id)
		}
	}
	s := x.Stats()
	if s.Dead > 0 || s.Retried == 0 || p.Left() > 0 {
		t.Errorf("%d faults are left; %+v", p.Left(), s)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
	return x
}

func missing(ids map[string]bool, got map[string]int) (not []string) {
	for id := range ids {
		if got[id] == 0 {
			not = append(not, id)
		}
	}
	return not
}
