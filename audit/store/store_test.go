package store_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/store/storetest"
)

// TestSummaryInAnyOrder: a run's summary does not depend on the order of its records.
func TestSummaryInAnyOrder(t *testing.T) {
	frames := storetest.Frames("r-1", storetest.Events(60))
	want := folded(t, frames)
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		random.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
		if got := folded(t, frames); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
}

func folded(t *testing.T, frames []store.Frame) store.Run {
	t.Helper()
	run := store.NewRun("r-1")
	for _, f := range frames {
		h, err := store.HeadOf("r-1", f)
		if err != nil {
			t.Fatal(err)
		}
		run.Add(h)
	}
	return run
}

// FuzzParseHead compares the head with a full decoding of the record: where
// both understand it, they say the same.
func FuzzParseHead(f *testing.F) {
	for _, frame := range storetest.Frames("r-1", storetest.Events(8)) {
		f.Add(frame.Body)
	}
	f.Add([]byte(`{"run":"r","seq":1,"time":"2262-01-01T00:00:00Z","kind":"gap","gap":{"count":3}}`))
	f.Add([]byte(`{"run":"r","kind":"vm","time":"1970-01-01T00:00:00+14:00"}`))
	f.Add([]byte(`{"run":"r","kind":"exec","exec":null,"time":"2026-01-01T00:00:00+14:00"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		h, err := store.ParseHead(body)
		if err != nil {
			if !errors.Is(err, store.ErrMalformed) {
				t.Fatalf("not a typed error: %v", err)
			}
			return
		}
		if h.Time.UnixNano() < 0 {
			t.Fatalf("time %v does not fit", h.Time)
		}
		var r audit.Record
		if json.Unmarshal(body, &r) != nil {
			return
		}
		if h.Run != r.Run || h.Seq != r.Seq || !h.Time.Equal(r.Time) || h.Kind != r.Kind || h.Observer != r.Observer ||
			h.Step != r.Step || h.Proc != procOf(r) {
			t.Fatalf("head %+v, record %+v", h, r)
		}
	})
}

func procOf(r audit.Record) string {
	switch {
	case r.Kind == audit.KindExec && r.Exec != nil:
		return r.Exec.Proc
	case r.Kind == audit.KindExit && r.Exit != nil:
		return r.Exit.Proc
	case r.Kind == audit.KindFile && r.File != nil:
		return r.File.Proc
	case r.Kind == audit.KindFlow && r.Flow != nil:
		return r.Flow.Proc
	case r.Kind == audit.KindFinding && r.Finding != nil:
		return r.Finding.Proc
	}
	return ""
}
