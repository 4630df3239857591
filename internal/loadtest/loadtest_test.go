package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// TestWrite writes a small run, and wants each acknowledged event to be in the store at its seq.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	var said bytes.Buffer
	w := &writing{mode: "strict", count: 500, batch: 7, home: dir, out: bufio.NewWriter(&said)}
	if err := w.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	run, acked, last := "", map[uint64]int{}, ""
	for line := range strings.Lines(said.String()) {
		var seq uint64
		var n int
		fmt.Sscanf(line, "run %s", &run)
		if c, _ := fmt.Sscanf(line, "acked %d %d", &seq, &n); c == 2 {
			acked[seq] = n
		}
		last = strings.TrimSpace(line)
	}
	if len(acked) != 500 || last != "stored" {
		t.Fatalf("%d events were acknowledged, the last word is %q", len(acked), last)
	}
	h, err := openHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	st, err := h.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for row, err := range st.Records(t.Context(), store.Query{Run: run}) {
		if err != nil {
			t.Fatal(err)
		}
		n, ok := acked[row.Seq]
		delete(acked, row.Seq)
		var got audit.Record
		if err := json.Unmarshal(row.Body, &got); err != nil {
			t.Fatal(err)
		}
		if want := made(n, got.Time); ok && (want.Kind != got.Kind || fmt.Sprint(want.Exec) != fmt.Sprint(got.Exec)) {
			t.Errorf("seq %d is %s, want event %d", row.Seq, row.Body, n)
		}
	}
	if len(acked) > 0 {
		t.Errorf("%d acknowledged events are not in the store", len(acked))
	}
}

// TestMade wants every made-up event to be one that a Recorder takes, of about the size of a real one.
func TestMade(t *testing.T) {
	size, kinds := 0, map[audit.Kind]int{}
	const n = 1600
	for i := range n {
		ev := made(i, time.Now())
		body, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		size += len(body)
		kinds[ev.Kind]++
	}
	if size/n < 250 || size/n > 500 || len(kinds) != 6 {
		t.Errorf("%d bytes an event, kinds %v", size/n, kinds)
	}
}

// TestReport measures a little of everything that needs no server and no time.
func TestReport(t *testing.T) {
	r := &report{events: 3000, queried: runEvents, dir: t.TempDir(), only: "durable,sqlite,verify,ocsf,query"}
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := r.print(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"event to durable", "event to SQLite", "sha256sum", "OCSF", "this hash, all runs"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the report says nothing of %q:\n%s", want, table.String())
		}
	}
}
