package replay

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
	"github.com/custody-project/custody/store/storetest"
)

// growing opens a store for writing and another view of it for reading.
func growing(t *testing.T) (w, r *sqlite.Store) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	w, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	if r, err = sqlite.OpenReader(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return w, r
}

func ingest(t *testing.T, s *sqlite.Store, segs ...store.Segment) {
	t.Helper()
	for _, seg := range segs {
		if err := s.Ingest(t.Context(), seg); err != nil {
			t.Error(err)
		}
	}
}

func TestFollow(t *testing.T) {
	w, r := growing(t)
	segs := storetest.Run("r-1", 40, 3) // an exec and its exit are in different segments
	ingest(t, w, segs[0])
	run, err := r.Run(t.Context(), "", "r-1")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	var text, ndjson bytes.Buffer
	go func() { done <- Follow(t.Context(), &text, r, run, Options{}) }()
	go func() { done <- FollowJSON(t.Context(), &ndjson, r, "r-1", Options{}) }()
	time.Sleep(pollEvery / 2) // so that there is something to follow; nothing depends on it
	ingest(t, w, segs[1:6]...)
	time.Sleep(pollEvery)
	ingest(t, w, segs[6:]...)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	var want bytes.Buffer
	for _, f := range storetest.Frames("r-1", storetest.Events(40)) {
		want.Write(append(bytes.Clone(f.Body), '\n'))
	}
	if ndjson.String() != want.String() {
		t.Errorf("followed %d lines, want every record once", strings.Count(ndjson.String(), "\n"))
	}
	if !strings.Contains(text.String(), "40 events, run done") || strings.Contains(text.String(), "NOT IN THE STORE") {
		t.Errorf("followed:\n%s", text.String())
	}
	execs := strings.Count(text.String(), "git commit")
	ends := strings.Count(text.String(), "end of git") + strings.Count(text.String(), "exit 0 ")
	if execs != 9 || ends < 9 {
		t.Errorf("%d execs and %d ends:\n%s", execs, ends, text.String())
	}
}

func TestFollowEnds(t *testing.T) {
	w, r := growing(t)
	ingest(t, w, storetest.Run("r-1", 40, 10)[:2]...)
	run, err := r.Run(t.Context(), "", "r-1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pollEvery+pollEvery/2)
	defer cancel()
	var out bytes.Buffer
	if err := Follow(ctx, &out, r, run, Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "20 events, run running") {
		t.Errorf("followed:\n%s", out.String())
	}
}
