package sampleruns_test

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// TestRecord: the runs are whole, verify, and have the records that were made.
func TestRecord(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]iter.Seq[audit.Event]{
		"hostile": sampleruns.Hostile(), "crowd": sampleruns.Crowd(500), "megabyte": sampleruns.Megabyte(), "large": sampleruns.Large(1000),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			id := sampleruns.Record(t, dir, events)
			h, err := host.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			st, err := h.Store(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			run, err := st.Run(t.Context(), "", id)
			if err != nil {
				t.Fatal(err)
			}
			told := len(slices.Collect(events))
			if run.Status != store.Sealed || run.Events != uint64(told) {
				t.Errorf("the run is %s with %d records, %d were told", run.Status, run.Events, told)
			}
			kinds := map[audit.Kind]int{}
			s, err := replay.Read(run, st.Records(t.Context(), store.Query{Run: id}))
			if err != nil {
				t.Fatal(err)
			}
			for row, err := range st.Records(t.Context(), store.Query{Run: id}) {
				if err != nil {
					t.Fatal(err)
				}
				kinds[row.Kind]++
			}
			if name == "hostile" && len(kinds) != len(audit.Kinds()) {
				t.Errorf("kinds: %v", kinds)
			}
			if name == "crowd" && len(s.StateAt(sampleruns.Begin.Add(30_000_000), 1).Procs) == 0 {
				t.Error("nothing runs")
			}
			evidence, done, err := h.Proofs().OfRun(t.Context(), "", id)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			keys, err := h.Keys().Trusted()
			if err != nil {
				t.Fatal(err)
			}
			if report, err := proof.Verify(t.Context(), evidence, proof.Trust{Keys: keys}); err != nil {
				t.Errorf("verify: %v, %+v", err, report)
			}
		})
	}
}

// TestTexts: in the hostile run each kind has a record for each of them.
func TestTexts(t *testing.T) {
	texts := sampleruns.Texts()
	for _, kind := range audit.Kinds() {
		if kind == audit.KindRun {
			continue
		}
		said := map[string]bool{}
		for e := range sampleruns.Hostile() {
			if e.Kind == kind {
				said[e.Step] = true
			}
		}
		for _, text := range texts {
			if !said[text] {
				t.Errorf("%s: nobody says %.60q", kind, text)
			}
		}
	}
	if !strings.Contains(strings.Join(texts, ""), sampleruns.Canary) {
		t.Error("no text sets the canary")
	}
}
