package forms_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/replay/forms"
	"github.com/custody-project/custody/store"
)

// recorded returns a store with one run.
func recorded(t *testing.T) (store.Store, store.Run) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	id := sampleruns.Record(t, dir, sampleruns.Review())
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	st, err := h.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st, store.Run{ID: id}
}

// written returns what a view writes of the records of the given kinds.
func written(t *testing.T, name string, st store.Store, run store.Run, kinds ...audit.Kind) ([]byte, error) {
	t.Helper()
	v, ok := forms.Named(name)
	if !ok {
		t.Fatalf("there is no view %q", name)
	}
	var out bytes.Buffer
	err := v.Write(t.Context(), &out, st, run, kinds)
	return out.Bytes(), err
}

// TestViews: each view writes a run in its format.
func TestViews(t *testing.T) {
	st, run := recorded(t)
	for name, check := range map[string]func(text []byte) bool{
		"csv": func(text []byte) bool {
			rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
			return err == nil && len(rows) > 10
		},
		"asciicast": func(text []byte) bool {
			header, _, _ := bytes.Cut(text, []byte("\n"))
			return bytes.Contains(header, []byte(`"version"`)) && json.Valid(header)
		},
		"perfetto": func(text []byte) bool {
			return len(text) > 100 && text[0] == 0x0a // the first field of a trace is a packet
		},
	} {
		text, err := written(t, name, st, run)
		if err != nil || !check(text) {
			t.Errorf("%s: %v: %.300q", name, err, text)
		}
	}
	if v, ok := forms.Named("ocsf"); ok {
		t.Errorf("the format of a sink is a view: %+v", v)
	}
}

// TestKinds: a view of some kinds has the records of these alone.
func TestKinds(t *testing.T) {
	st, run := recorded(t)
	text, err := written(t, "csv", st, run, audit.KindExec)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("%v: %q", err, text)
	}
	kind := slices.Index(rows[0], "kind")
	if kind < 0 {
		t.Fatalf("no column of kinds: %q", rows[0])
	}
	for _, row := range rows[1:] {
		if row[kind] != string(audit.KindExec) {
			t.Errorf("a record of kind %s", row[kind])
		}
	}
}

// marked is a store in which one record differs from what was signed.
type marked struct {
	store.Store
	seq uint64
}

// Row implements store.Marker.
func (m marked) Row(_ context.Context, row store.Row) store.Mark {
	if row.Seq == m.seq {
		return store.Mark{State: store.Unsigned, Text: "no host signed it"}
	}
	return store.Mark{}
}

// Records implements store.Store.
func (m marked) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return store.WithMarks(ctx, m.Store.Records(ctx, q), m)
}

// TestMarked: a view of a record that differs from what was signed is an error that names it and the formats with marks.
func TestMarked(t *testing.T) {
	st, run := recorded(t)
	for _, v := range forms.Views() {
		_, err := written(t, v.Name, marked{st, 3}, run)
		var wrong *store.MarkError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "record 3: no host signed it; "+v.Name+" cannot show that") {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
}

// TestExports: the API offers the formats of sinks and all views, under different names of files.
func TestExports(t *testing.T) {
	list, err := forms.Exports()
	if err != nil {
		t.Fatal(err)
	}
	var names, suffixes []string
	for _, e := range list {
		names, suffixes = append(names, e.Name), append(suffixes, e.Suffix)
		if e.OneRun != (e.Name == "asciicast" || e.Name == "perfetto") {
			t.Errorf("%s: only one run: %t", e.Name, e.OneRun)
		}
	}
	if want := []string{"ocsf", "ecs", "native", "cef", "asciicast", "perfetto", "csv"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	slices.Sort(suffixes)
	if len(slices.Compact(suffixes)) != len(list) {
		t.Errorf("two forms have one suffix: %q", suffixes)
	}
}
