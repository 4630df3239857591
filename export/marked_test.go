package export_test

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/export/format/native"
	"github.com/custody-project/custody/store"
)

// marking is a source in which records with some seqs are not what was signed.
type marking struct {
	*exporttest.Source
	wrong []uint64
}

func (m marking) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return store.WithMarks(ctx, m.Source.Records(ctx, q), m)
}

func (m marking) Row(_ context.Context, row store.Row) store.Mark {
	if slices.Contains(m.wrong, row.Seq) {
		return store.Mark{State: store.Fails, Text: "altered"}
	}
	return store.Mark{State: store.Holds}
}

// seen is a format that collects events.
type seen struct{ events *[]export.Event }

func (seen) Name() string { return "seen" }

func (s seen) Append(dst []byte, e export.Event) ([]byte, error) {
	*s.events = append(*s.events, e)
	return append(dst, '.'), nil
}

// TestMarkedExplainsNothing: an altered record of an exec is not the context of another record.
func TestMarkedExplainsNothing(t *testing.T) {
	src := marking{Source: &exporttest.Source{}}
	run := []audit.Event{
		{Observer: audit.Guest, Kind: audit.KindExec, Exec: &audit.Exec{Proc: "p1", Exe: "/bin/evil"}},
		{Observer: audit.Guest, Kind: audit.KindExit, Exit: &audit.Exit{Proc: "p1"}},
	}
	for i, e := range run {
		body, err := json.Marshal(audit.Record{V: 1, Run: "r-1", Seq: uint64(i + 1), Event: e})
		if err != nil {
			t.Fatal(err)
		}
		src.Foreign("r-1", uint64(i+1), body)
	}
	for _, c := range []struct {
		wrong []uint64
		exe   string
	}{{nil, "/bin/evil"}, {[]uint64{1}, ""}} {
		src.wrong = c.wrong
		var events []export.Event
		if _, err := export.Write(t.Context(), &bytes.Buffer{}, src, seen{&events}, export.Filter{}, store.Run{ID: "r-1"}); err != nil {
			t.Fatal(err)
		}
		exe := ""
		if x := events[1].Exec; x != nil {
			exe = string(x.Exe)
		}
		if exe != c.exe {
			t.Errorf("with %v altered, the exit is of %q, want %q", c.wrong, exe, c.exe)
		}
	}
}

// TestMarkedKeepsItsPlace: forged bytes in the store do not determine the id of their event.
func TestMarkedKeepsItsPlace(t *testing.T) {
	src := marking{Source: &exporttest.Source{}, wrong: []uint64{7}}
	body := []byte(`{"v":1,"run":"r-genuine","seq":1,"time":"2026-01-01T00:00:00Z","observer":"host","kind":"gap"}`)
	src.Foreign("r-1", 7, body)
	sink := &receiver{}
	o := options(t, src, sink)
	o.Format = native.New()
	if s, err := export.Send(t.Context(), o, store.Run{ID: "r-1"}); err != nil || s.Sent != 1 {
		t.Fatal(s, err)
	}
	if got := sink.got[0]; got.ID != "r-1:7" || got.Severity != export.Alert || !strings.Contains(string(got.Data), `"verification"`) {
		t.Errorf("sent %s, %d: %s", got.ID, got.Severity, got.Data)
	}
}
