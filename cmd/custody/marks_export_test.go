package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/replay/forms"
	"github.com/custody-project/custody/store"
)

// exported checks that exports mark the records in rows, of the genuine run and of the invented one, and that formats
// without marks refuse such a run.
func (r *recorded) exported(id string, rows map[string]map[uint64]store.State) {
	r.Helper()
	for _, run := range []string{id, "r-invented"} {
		if run != id && rows[run] == nil {
			continue
		}
		want := map[string]map[uint64]store.State{}
		if rows[run] != nil {
			want[run] = rows[run]
		}
		wanted, _ := json.Marshal(want)
		if got, _ := json.Marshal(r.marksOf(r.says(exportCmd{Runs: []string{run}, Format: "json"}))); string(got) != string(wanted) {
			r.Errorf("export --format json marks %s, want %s", got, wanted)
		}
		for format, mark := range map[string]string{"ocsf": `"verification":{"state":"`, "ecs": `"verification":{"state":"`, "native": `"verification":{"state":"`, "cef": "custodyVerification="} {
			c := exportCmd{Runs: []string{run}, Format: format}
			if got := strings.Count(r.says(c), mark); got != len(rows[run]) {
				r.Errorf("export --format %s marks %d records of %s, want %d", format, got, run, len(rows[run]))
			}
			file := filepath.Join(r.TempDir(), "events")
			c.To = "file:" + file
			r.says(c)
			if data, err := os.ReadFile(file); err != nil || strings.Count(string(data), mark) != len(rows[run]) {
				r.Errorf("export --format %s to a file: %v, want %d marks: %s", format, err, len(rows[run]), data)
			}
		}
		for _, v := range forms.Views() {
			var out strings.Builder
			err := exportCmd{Runs: []string{run}, Format: v.Name}.Run(newApp(r.Context(), nil, &out, r.Output()))
			var wrong *store.MarkError
			if errors.As(err, &wrong) != (len(rows[run]) > 0) || err != nil && wrong == nil {
				r.Errorf("export --format %s of %s: %v", v.Name, run, err)
			}
		}
	}
}

// sentItems is a sink that accepts all items.
type sentItems []export.Item

func (s *sentItems) Send(_ context.Context, items []export.Item) error {
	*s = append(*s, items...)
	return nil
}

func (s *sentItems) Close() error { return nil }

// TestMarksFollow: an exporter that follows the store marks what it exports, and logs that. After a rotation of the key, records
// that the new one signed have no mark.
func TestMarksFollow(t *testing.T) {
	r := newRecorded(t, "")
	altered := r.run()
	if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	st, err := r.home.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	(&door{T: t, home: r.home.Dir}).sqlite(`UPDATE records SET host = 'evil.example' WHERE seq = 3`)
	var sent sentItems
	x, err := export.Open(export.Options{Name: "siem", Dir: t.TempDir(), Source: r.home.Checks().Marked(st), Format: export.JSON{}, Sink: &sent})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.home.Keys().Rotate(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	r.run()
	if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 24 {
		t.Errorf("%d events were sent, want 24", len(sent))
	}
	for _, item := range sent {
		if marked := strings.Contains(string(item.Data), `"verification"`); marked != (item.Run == altered && item.Seq == 3) || marked != (item.Severity == export.Alert && item.Kind != "finding") {
			t.Errorf("%s, severity %d: %s", item.ID, item.Severity, item.Data)
		}
	}
}
