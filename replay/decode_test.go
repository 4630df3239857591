package replay

import (
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// TestDecode: what is decoded in part is what encoding/json makes of the whole.
func TestDecode(t *testing.T) {
	r, _ := agent()
	frames := slices.Concat(story(), traffic(), storetest.Frames("r-1", r.events), storetest.Frames("r-1", busy(300)))
	seen := map[audit.Kind]bool{}
	for row := range rowsOf(frames) {
		var want audit.Record
		wantErr := json.Unmarshal(row.Body, &want)
		got, err := decode(row)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: got %v, want %v", row.Body, err, wantErr)
		}
		if err != nil {
			continue
		}
		seen[got.Kind] = true
		want.V, want.Guest = got.V, nil // nothing here is made of these
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", row.Body, got, want)
		}
	}
	if len(seen) < 14 {
		t.Errorf("only %d kinds", len(seen))
	}
	if _, err := decode(store.Row{Erased: new([32]byte)}); err != errErased {
		t.Errorf("an erased record: %v", err)
	}
}

// TestOtherPayloads: a record that carries the payload of another kind has none.
func TestOtherPayloads(t *testing.T) {
	body := []byte(`{"v":1,"run":"r-1","seq":1,"time":"2026-11-03T12:00:00Z","observer":"guest","kind":"probe","secret":{"name":"x","op":"mint"},"exec":{"proc":"p"}}`)
	r, err := decode(store.Row{Head: store.Head{Seq: 1, Time: time.Unix(1, 0)}, Body: body})
	if err != nil || r.Secret != nil || r.Exec != nil || r.Observer != audit.Guest {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestEveryKind: a record of each kind of the table is decoded with its payload, and has a line of its own in the table.
func TestEveryKind(t *testing.T) {
	for _, k := range audit.Kinds() {
		e := audit.Event{Time: storetest.Start(), Observer: audit.Host, Kind: k}
		want := e.SetPayload()
		body, err := json.Marshal(audit.Record{V: audit.Version, Run: "r-1", Seq: 1, Event: e})
		if err != nil {
			t.Fatal(err)
		}
		r, err := decode(store.Row{Head: store.Head{Run: "r-1", Seq: 1, Time: e.Time}, Body: body})
		if err != nil || r.OwnPayload() != nil || !reflect.DeepEqual(r.Payload(), want) {
			t.Errorf("kind %s: decoded as %+v, %v", k, r.Payload(), err)
			continue
		}
		d := newPrinter(io.Discard, store.Run{ID: "r-1"}, Options{}).describer
		if got, _ := d.describe(r, body); reflect.DeepEqual(got, unknown(k, body)) {
			t.Errorf("kind %s: its line is that of a kind that the timeline does not know", k)
		}
	}
}
