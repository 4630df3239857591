package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// descended is a run that continues another one.
func descended(id, op, parent string, after time.Duration) []store.Segment {
	events := slices.Clone(storetest.Events(8))
	for i := range events {
		events[i].Time = storetest.Start().Add(after + time.Duration(i)*time.Millisecond)
	}
	start := *events[0].Lifecycle
	if parent != "" {
		start.Parent = &audit.Parent{Op: op, Run: parent, Seq: 8, Root: strings.Repeat("a", 64), Manifest: strings.Repeat("b", 64)}
	}
	events[0].Lifecycle = &start
	return storetest.Segments(id, storetest.Frames(id, events), 100)
}

// TestLineage: each run of a tree gets the whole tree of its tenant, the parents before their children.
func TestLineage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest("", descended("r-root", "", "", 0)...)
	w.ingest("", descended("r-child", "resume", "r-root", time.Hour)...)
	w.ingest("", descended("r-fork-b", "fork", "r-child", 3*time.Hour)...)
	w.ingest("", descended("r-fork-a", "fork", "r-child", 2*time.Hour)...)
	w.ingest("", descended("r-alone", "", "", 2*time.Hour)...)
	w.ingest("", descended("r-orphan", "fork", "r-deleted", 2*time.Hour)...)
	w.ingest("", descended("r-foreign", "fork", "r-acme", 2*time.Hour)...)
	w.ingest("", descended("r-itself", "fork", "r-itself", 2*time.Hour)...)
	w.ingest("", descended("r-one", "fork", "r-two", 2*time.Hour)...)
	w.ingest("", descended("r-two", "fork", "r-one", 2*time.Hour)...)
	w.ingest("acme", descended("r-acme", "fork", "r-root", time.Hour)...)
	token := w.token("", access.Viewer)
	tree := "r-root, resume r-child of r-root, fork r-fork-a of r-child, fork r-fork-b of r-child"
	for run, want := range map[string]string{
		"r-root": tree, "r-child": tree, "r-fork-a": tree, "r-fork-b": tree,
		"r-alone":   "r-alone",
		"r-orphan":  "r-deleted (not here), fork r-orphan of r-deleted",
		"r-foreign": "r-acme (not here), fork r-foreign of r-acme",
		"r-itself":  "r-itself",
		"r-one":     "r-two, fork r-one of r-two",
	} {
		var l api.Lineage
		w.get("/runs/"+run+"/lineage", token).json(t, &l)
		var got []string
		for _, r := range l.Runs {
			text := r.Run
			if r.Parent != "" {
				text = fmt.Sprintf("%s %s of %s", r.Op, r.Run, r.Parent)
			}
			if !r.Here {
				text += " (not here)"
			}
			if r.Here == r.Start.IsZero() {
				t.Errorf("%s: %+v", run, r)
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != want || l.More {
			t.Errorf("%s: %q, want %q; more: %v", run, text, want, l.More)
		}
	}
}
