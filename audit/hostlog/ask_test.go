package hostlog

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// TestAsk: witnesses that have seen as much, less, more, or another log, and one that does not answer.
func TestAsk(t *testing.T) {
	k := newKey(t, "custody-test")
	a, b := newWatcher(t, "a", k.v), newWatcher(t, "b", k.v)
	policy := quorum(t, 1, a, b)
	dir := filepath.Join(tempDir(t), "log")
	l := mustOpen(t, dir, k, under(t, policy))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	ask := func(dir string) ([]Refusal, bool) {
		t.Helper()
		r, err := OpenReader(dir, k.v)
		if err != nil {
			t.Fatal(err)
		}
		refusals, enough, err := r.Ask(t.Context(), policy, transport)
		if err != nil {
			t.Fatal(err)
		}
		return refusals, enough
	}
	for i := range 5 {
		mustPublish(t, l, mustAdd(t, l, manifest(i)))
	}
	if refusals, enough := ask(dir); len(refusals) > 0 || !enough {
		t.Errorf("of a log that both have seen: %v, %v", refusals, enough)
	}
	b.stop()
	for i := range 5 {
		mustPublish(t, l, mustAdd(t, l, manifest(5+i)))
	}
	if refusals, enough := ask(dir); len(refusals) != 1 || refusals[0].Name != "b" || !enough {
		t.Errorf("while one is away: %v, %v", refusals, enough)
	}
	b.start(t, k.v)
	if refusals, enough := ask(dir); len(refusals) > 0 || !enough {
		t.Errorf("of a log of which one has seen less: %v, %v", refusals, enough)
	}

	other := filepath.Join(tempDir(t), "log")
	o := mustOpen(t, other, k)
	for i := range 3 {
		mustPublish(t, o, mustAdd(t, o, manifest(100+i)))
	}
	if refusals, enough := ask(other); len(refusals) != 2 || enough || !errors.Is(refusals[0].Err, ErrRolledBack) || !errors.Is(refusals[1].Err, ErrRolledBack) {
		t.Errorf("of a smaller log: %v, %v", refusals, enough)
	}
	for i := range 7 {
		mustPublish(t, o, mustAdd(t, o, manifest(103+i)))
	}
	if refusals, enough := ask(other); len(refusals) != 2 || enough || !errors.Is(refusals[0].Err, ErrForked) {
		t.Errorf("of another log of this size: %v, %v", refusals, enough)
	}
	mustPublish(t, o, mustAdd(t, o, manifest(110)))
	if refusals, enough := ask(other); len(refusals) != 2 || enough || !errors.Is(refusals[0].Err, ErrForked) {
		t.Errorf("of another, larger log: %v, %v", refusals, enough)
	}
}

// TestFreshCosignature: Ask does not accept an old cosignature.
func TestFreshCosignature(t *testing.T) {
	k := newKey(t, "custody-test")
	w := newWatcher(t, "a", k.v)
	l := mustOpen(t, filepath.Join(tempDir(t), "log"), k, under(t, quorum(t, 1, w)))
	n, err := note.Open(mustPublish(t, l, mustAdd(t, l, manifest(0))), note.VerifierList(w.key))
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]bool{0: true, time.Minute: true, time.Hour: false, -time.Hour: false} {
		if err := fresh(n.Sigs[0], time.Now().Add(after)); (err == nil) != want {
			t.Errorf("%s later: %v", after, err)
		}
	}
}
