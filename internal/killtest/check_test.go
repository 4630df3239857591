package killtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/store"
)

// check compares what the hosts said with what their logs hold, and the logs with the
// store, and returns what verification found of each run.
func (w *world) check(t *testing.T, s *summary) (reports []proof.Report) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Rounds++
	for _, p := range w.all() {
		s.Kills[p.name] += p.kills
	}
	st, err := openStore(t.Context(), w.db)
	check(t, err)
	defer st.Close()
	look := w.bundle
	if w.home != "" {
		look = w.bundleAtHome
	}
	judge := look(t)
	entries, err := os.ReadDir(w.runs)
	check(t, err)
	for _, e := range entries {
		dir := filepath.Join(w.runs, e.Name())
		logged := framesOf(t, dir)
		for seq, n := range w.acked[e.Name()] {
			s.Acked++
			if f, ok := logged[seq]; !ok || numberOf(t, f.Body) != n {
				t.Errorf("run %s: event %d was acknowledged as seq %d, and is not there in the log", e.Name(), n, seq)
			}
		}
		if len(logged) == 0 {
			continue // it died before anything was durable
		}
		s.Runs++
		s.Records += inStore(t, st, e.Name(), logged)
		reports = append(reports, judge(dir))
	}
	for run, acked := range w.acked {
		if _, err := os.Stat(filepath.Join(w.runs, run)); err != nil && len(acked) > 0 {
			t.Errorf("run %s with %d acknowledged events is gone", run, len(acked))
		}
	}
	for _, word := range w.words {
		t.Errorf("the ingester says: %s", word)
	}
	return reports
}

func framesOf(t *testing.T, dir string) map[uint64]store.Frame {
	t.Helper()
	frames := map[uint64]store.Frame{}
	paths, err := wal.Segments(dir)
	check(t, err)
	for _, path := range paths {
		for f, err := range wal.ReadSegment(path) {
			if err != nil {
				t.Errorf("%s: %v", path, err)
				break
			}
			if _, twice := frames[f.Seq]; twice {
				t.Errorf("%s: seq %d stands there twice", path, f.Seq)
			}
			frames[f.Seq] = store.Frame{Seq: f.Seq, Salt: f.Salt, Body: f.Bytes}
		}
	}
	return frames
}

// inStore wants the store to have exactly the log's records, and returns how many.
func inStore(t *testing.T, st store.Store, run string, logged map[uint64]store.Frame) int {
	t.Helper()
	rows := 0
	last := uint64(0)
	for row, err := range st.Records(context.Background(), store.Query{Tenant: "acme", Run: run}) {
		if err != nil {
			t.Errorf("run %s: %v", run, err)
			return rows
		}
		rows++
		f, ok := logged[row.Seq]
		switch {
		case row.Seq <= last:
			t.Errorf("run %s: seq %d comes after seq %d", run, row.Seq, last)
		case !ok:
			t.Errorf("run %s: the store has seq %d, the log has not", run, row.Seq)
		case !bytes.Equal(f.Body, row.Body) || f.Salt != row.Salt:
			t.Errorf("run %s: seq %d has other bytes in the store", run, row.Seq)
		}
		last = row.Seq
	}
	if rows != len(logged) {
		t.Errorf("run %s: the store has %d records, the log %d", run, rows, len(logged))
	}
	return rows
}

// numberOf returns the number that the writer gave an event.
func numberOf(t *testing.T, body []byte) int {
	t.Helper()
	var r audit.Record
	check(t, json.Unmarshal(body, &r))
	switch {
	case r.Exec != nil:
		return r.Exec.PID
	case r.Exit != nil:
		return r.Exit.PID
	case r.File != nil:
		return r.File.PID
	case r.Flow != nil:
		return r.Flow.PID
	case r.DNS != nil:
		return int(r.DNS.LatencyNS)
	case r.Output != nil:
		return int(r.Output.Offset)
	}
	return -1
}

// bundle returns what makes a run's bundle and verifies it, after a look at the host's log.
func (w *world) bundle(t *testing.T) (judge func(dir string) proof.Report) {
	t.Helper()
	log, err := hostlog.OpenReader(logDir(w.runs), w.key)
	check(t, err)
	if err := log.Check(t.Context()); err != nil {
		t.Errorf("the host's log: %v", err)
	}
	return func(dir string) proof.Report {
		return verify(t, filepath.Base(dir), note.VerifierList(w.key), func(f io.Writer) error {
			return proof.WriteBundle(t.Context(), f, dir, proof.BundleOptions{HostKey: w.public, Signer: w.signer, Log: log})
		})
	}
}

// verify wants a bundle to hold for someone who has the host's public key only.
func verify(t *testing.T, run string, keys note.Verifiers, write func(io.Writer) error) proof.Report {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle")
	f, err := os.Create(path)
	check(t, err)
	err = write(f)
	check(t, f.Close())
	if err != nil {
		t.Errorf("%s: %v", run, err)
		return proof.Report{}
	}
	e, err := proof.OpenBundle(path)
	check(t, err)
	defer e.Close()
	report, err := proof.Verify(t.Context(), e, proof.Trust{Keys: keys})
	if err != nil {
		t.Errorf("%s: %v", run, err)
	}
	return report
}
