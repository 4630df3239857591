package killtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/wal"
)

// spoolBytes is how much may wait for the store in these tests: a fraction of a second of events.
const spoolBytes = 200_000

// TestStoreAwayStrict has no store take anything for longer than the spool lasts. The
// record then stalls, nothing is acknowledged, and when the store comes nothing is missing.
func TestStoreAwayStrict(t *testing.T) {
	w := storeAway(t, wal.Strict)
	quiet := func() bool { // what was durable before is still being acknowledged on a busy machine
		before := w.ackedSoFar()
		time.Sleep(700 * time.Millisecond)
		return w.ackedSoFar() == before
	}
	for began := time.Now(); !quiet(); {
		if time.Since(began) > drainTime {
			t.Fatal("events are acknowledged while the spool is full")
		}
	}
	w.storeBack(t)
	if reports := w.check(t, &summary{Kills: map[string]int{}}); len(reports) != 1 || len(reports[0].Gaps) != 0 {
		t.Errorf("reports %+v", reports)
	}
	w.close(t)
}

// TestStoreAwayDegrade is the same in degrade mode: what did not fit is dropped, and declared.
func TestStoreAwayDegrade(t *testing.T) {
	w := storeAway(t, wal.Degrade)
	w.host.waitFor(t, "dropped")
	time.Sleep(300 * time.Millisecond)
	w.storeBack(t)
	reports := w.check(t, &summary{Kills: map[string]int{}})
	if len(reports) != 1 {
		t.Fatalf("%d runs", len(reports))
	}
	var declared uint64
	for _, g := range reports[0].Gaps {
		if g.Stage != "wal" || !strings.Contains(g.Cause, "no room") {
			t.Errorf("gap %+v", g)
		}
		declared += g.Count
	}
	if declared == 0 || declared != uint64(w.dropped) {
		t.Errorf("%d events were dropped, %d declared", w.dropped, declared)
	}
	w.close(t)
}

// storeAway runs a host and its transport without any store until the spool is full.
func storeAway(t *testing.T, mode wal.Mode) *world {
	t.Helper()
	w := newWorld(t, "SQLite")
	w.host.env = append(w.host.env, fmt.Sprintf("CUSTODY_TORTURE_SPOOL=%d", spoolBytes), "CUSTODY_TORTURE_MODE="+string(mode))
	w.nats.start(t)
	w.host.start(t)
	w.host.waitFor(t, "stalled")
	return w
}

// storeBack brings the store, waits until the record goes on and ends the run.
func (w *world) storeBack(t *testing.T) {
	t.Helper()
	w.ingest.start(t)
	w.host.waitFor(t, "resumed")
	before := w.ackedSoFar()
	for began := time.Now(); w.ackedSoFar() == before; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > drainTime {
			t.Fatal("nothing is acknowledged although there is room again")
		}
	}
	if err := w.host.end(t, drainTime); err != nil {
		t.Errorf("the host's end: %v", err)
	}
}

func (w *world) ackedSoFar() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, run := range w.acked {
		n += len(run)
	}
	return n
}
