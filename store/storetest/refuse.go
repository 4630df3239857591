package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

var refuseTests = []namedTest{
	{"conflicts", testConflicts},
	{"conflicts within a call", testConflictWithin},
	{"malformed", testMalformed},
	{"another's run", testOtherOwner},
}

// testConflicts checks that other bytes for a stored seq are refused with the whole segment, and change nothing.
func testConflicts(t *testing.T, s store.Store) {
	for i, tc := range []struct {
		name   string
		change func(run string, s *store.Segment)
	}{
		{"body", func(run string, s *store.Segment) { s.Frames[2] = Frame(run, 3, Events(40)[30]) }},
		{"salt", func(_ string, s *store.Segment) { s.Frames[2].Salt[0]++ }},
		{"manifest", func(_ string, s *store.Segment) { s.Manifest = []byte("another") }},
		{"manifest's end", func(_ string, s *store.Segment) { s.Manifest = append(s.Manifest[:len(s.Manifest):len(s.Manifest)], 0) }},
		{"erased with another leaf", func(_ string, s *store.Segment) { s.Frames[2] = store.Frame{Seq: 3, Erased: &[32]byte{1}} }},
	} {
		run := fmt.Sprint("r-", i)
		segs := Run(run, 20, 10)
		Ingest(t, s, segs[:1])
		bad := Run(run, 20, 15)[0] // seq 1 to 10 are stored, 11 to 15 are new
		bad.Manifest = segs[0].Manifest
		tc.change(run, &bad)
		for range 2 {
			if err := s.Ingest(t.Context(), bad); !errors.Is(err, store.ErrConflict) {
				t.Fatalf("%s: got %v, want ErrConflict", tc.name, err)
			}
		}
		WantRecords(t, s, run, segs[:1])
		Ingest(t, s, segs)
		WantRecords(t, s, run, segs)
	}
}

// testConflictWithin ingests both versions in one call, when neither is stored yet.
func testConflictWithin(t *testing.T, s store.Store) {
	good, bad := Run("r-1", 20, 10)[0], Run("r-1", 20, 10)[0]
	bad.Frames[4].Salt[3] = 7
	if err := s.Ingest(t.Context(), good, bad); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("got %v, want ErrConflict", err)
	}
	Ingest(t, s, []store.Segment{good})
	WantRecords(t, s, "r-1", []store.Segment{good})
}

func testMalformed(t *testing.T, s store.Store) {
	body := func(text string) func(*store.Segment) {
		return func(s *store.Segment) { s.Frames[1].Body = []byte(text) }
	}
	for _, tc := range []struct {
		name   string
		change func(*store.Segment)
	}{
		{"other run", func(s *store.Segment) { s.Run = "r-2" }},
		{"no run", func(s *store.Segment) { s.Run = "" }},
		{"run as a path", func(s *store.Segment) { *s = Run("../r-1", 10, 10)[0] }},
		{"run of dots", func(s *store.Segment) { *s = Run("..", 10, 10)[0] }},
		{"run with a star", func(s *store.Segment) { *s = Run("r-*", 10, 10)[0] }},
		{"long run", func(s *store.Segment) { s.Run = strings.Repeat("r", store.MaxRunID+1) }},
		{"tenant no name", func(s *store.Segment) { s.Tenant = "a*" }},
		{"host no name", func(s *store.Segment) { s.Host = "a/b" }},
		{"swapped", func(s *store.Segment) { s.Frames[1], s.Frames[2] = s.Frames[2], s.Frames[1] }},
		{"doubled", func(s *store.Segment) { s.Frames[2] = s.Frames[1] }},
		{"empty", body("")},
		{"not json", body("{")},
		{"more than json", body(`{"run":"r-1","seq":2,"time":"2026-11-03T12:00:00Z","kind":"vm"}}`)},
		{"no time", body(`{"run":"r-1","seq":2,"kind":"exec"}`)},
		{"no kind", body(`{"run":"r-1","seq":2,"time":"2026-11-03T12:00:00Z"}`)},
		{"time before all", body(`{"run":"r-1","seq":2,"time":"1969-12-31T23:59:59Z","kind":"vm"}`)},
		{"time after all", body(`{"run":"r-1","seq":2,"time":"2262-01-01T00:00:00Z","kind":"vm"}`)},
		{"seq text", body(`{"run":"r-1","seq":"2","time":"2026-11-03T12:00:00Z","kind":"vm"}`)},
		{"other seq", func(s *store.Segment) { s.Frames[1].Body = s.Frames[0].Body }},
		{"bounds", func(s *store.Segment) { s.Last++ }},
		{"too long", func(s *store.Segment) { s.Frames[1] = sized("r-1", 2, store.MaxBody+1) }},
		{"manifest too long", func(s *store.Segment) { s.Manifest = make([]byte, store.MaxManifest+1) }},
		{"seq too great", func(s *store.Segment) {
			s.Last = 1 << 63
			s.Frames = append(s.Frames, Frame("r-1", 1<<63, audit.Event{Time: start, Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{}}))
		}},
		{"index too great", func(s *store.Segment) { s.Index = 1 << 63 }},
		{"erased and there", func(s *store.Segment) { s.Frames[1].Erased = &[32]byte{} }},
		{"erased with its salt", func(s *store.Segment) { s.Frames[1] = store.Frame{Seq: 2, Salt: [16]byte{1}, Erased: &[32]byte{}} }},
		{"erased at no time", func(s *store.Segment) {
			for i := range s.Frames {
				s.Frames[i] = store.Frame{Seq: s.Frames[i].Seq, Erased: &[32]byte{}}
			}
			s.Manifest = []byte("says nothing")
		}},
	} {
		seg := Run("r-1", 10, 10)[0]
		tc.change(&seg)
		if err := s.Ingest(t.Context(), seg); !errors.Is(err, store.ErrMalformed) {
			t.Errorf("%s: got %v, want ErrMalformed", tc.name, err)
		}
	}
	wantLike(t, s, &Oracle{})
}

// testOtherOwner checks that a run keeps its first tenant and host.
func testOtherOwner(t *testing.T, s store.Store) {
	segs := owned("a", "h1", Run("r-1", 40, 10))
	Ingest(t, s, segs[1:2])
	for _, other := range [][2]string{{"b", "h1"}, {"a", "h2"}, {"", "h1"}, {"a", ""}, {"", ""}, {"A", "h1"}} {
		for _, seg := range owned(other[0], other[1], Run("r-1", 40, 10)) {
			if err := s.Ingest(t.Context(), seg); !errors.Is(err, store.ErrConflict) {
				t.Errorf("tenant and host %q, segment %d: got %v, want ErrConflict", other, seg.Index, err)
			}
		}
	}
	WantRecords(t, s, "r-1", segs[1:2])
	Ingest(t, s, segs)
	same(t, s, segs[1], segs[0], segs[2], segs[3], segs[4])
}

// owned sets the tenant and host of segments.
func owned(tenant, host string, segs []store.Segment) []store.Segment {
	for i := range segs {
		segs[i].Tenant, segs[i].Host = tenant, host
	}
	return segs
}
