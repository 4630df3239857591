package wal_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

const testRun = "r-test"

// key is a signing key and its verifier.
type key struct {
	signer  note.Signer
	trusted note.Verifiers
}

func newKey(t testing.TB) key {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, "custody-test")
	check(t, err)
	signer, err := note.NewSigner(skey)
	check(t, err)
	verifier, err := note.NewVerifier(vkey)
	check(t, err)
	return key{signer, note.VerifierList(verifier)}
}

func (k key) options() wal.Options {
	return wal.Options{
		Run: testRun, Sealer: statement.NewSealer(k.signer, statement.Facts{Tier: "test"}),
		SegmentAge: time.Hour, Linger: 100 * time.Microsecond, Retry: 200 * time.Microsecond,
	}
}

var red = redact.New([]byte("0123456789abcdef0123456789abcdef"))

// event is a sealed event with a number that identifies it.
func event(t testing.TB, id int) redact.Sealed {
	t.Helper()
	s, err := red.Seal(&audit.Event{
		Time: time.Unix(1e9, 0).UTC(), Observer: audit.Host, Kind: audit.KindOutput,
		Output: &audit.Output{Stream: "stdout", Offset: int64(id), Text: audit.Text(fmt.Sprintf("event %d", id))},
	})
	check(t, err)
	return s
}

// read returns all records of a run's directory, and fails on any bad frame.
func read(t testing.TB, dir string) []audit.Record {
	t.Helper()
	paths, err := wal.Segments(dir)
	check(t, err)
	var records []audit.Record
	for _, path := range paths {
		for f, err := range wal.ReadSegment(path) {
			check(t, err)
			var r audit.Record
			check(t, json.Unmarshal(f.Bytes, &r))
			if r.Seq != f.Seq || r.Run != f.Run {
				t.Fatalf("%s: frame says %s %d, record %s %d", path, f.Run, f.Seq, r.Run, r.Seq)
			}
			records = append(records, r)
		}
	}
	return records
}

// ids returns the seq of each numbered event, and fails if an event occurs twice.
func ids(t testing.TB, records []audit.Record) map[int]uint64 {
	t.Helper()
	m := map[int]uint64{}
	for _, r := range records {
		if r.Output == nil {
			continue
		}
		id := int(r.Output.Offset)
		if at, ok := m[id]; ok {
			t.Fatalf("event %d stands at seq %d and at seq %d", id, at, r.Seq)
		}
		m[id] = r.Seq
	}
	return m
}

// verify fails unless the closed run in dir verifies.
func verify(t testing.TB, dir string, k key) proof.Report {
	t.Helper()
	e, err := proof.OpenDir(dir)
	check(t, err)
	defer e.Close()
	report, err := proof.Verify(context.Background(), e, proof.Trust{Keys: k.trusted})
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	return report
}

// tally has the events that a script knows to be accepted and durable.
type tally struct {
	posted map[int]uint64 // accepted: event to seq
	synced map[int]uint64 // acknowledged as durable
}

// script writes a small run: single events, a burst, a rotation, a burst that
// fills segments. It stops at the first error.
func script(ctx context.Context, t testing.TB, l *wal.Log) (tally, error) {
	done := tally{map[int]uint64{}, map[int]uint64{}}
	id := 0
	burst := func(n int) error {
		first := id
		var last uint64
		for ; id < first+n; id++ {
			seq, err := l.Append(ctx, event(t, id))
			if err != nil {
				return err
			}
			done.posted[id], last = seq, seq
		}
		if err := l.Sync(ctx, last); err != nil {
			return err
		}
		for i := first; i < id; i++ {
			done.synced[i] = done.posted[i]
		}
		return nil
	}
	for _, n := range []int{1, 1, 3, 0, 1, 6, 1} {
		var err error
		if n == 0 {
			err = l.Rotate(ctx)
		} else {
			err = burst(n)
		}
		if err != nil {
			return done, err
		}
	}
	return done, l.Close(ctx, wal.Sealed)
}

// recovered recovers the run in dir, closes it as interrupted and verifies it.
func recovered(t testing.TB, dir string, k key) ([]audit.Record, wal.Recovery) {
	t.Helper()
	l, rec, err := wal.Recover(t.Context(), dir, k.options())
	if errors.Is(err, wal.ErrFinished) {
		verify(t, dir, k)
		return read(t, dir), rec
	}
	check(t, err)
	ctx := context.Background()
	_, err = l.Append(ctx, event(t, 1_000_000))
	check(t, err)
	check(t, l.Close(ctx, wal.Interrupted))
	if r := verify(t, dir, k); r.Closing != wal.Interrupted {
		t.Fatalf("closing %q, want %q", r.Closing, wal.Interrupted)
	}
	return read(t, dir), rec
}

// holds fails unless every event in want occurs exactly once, at its seq.
func holds(t testing.TB, records []audit.Record, want map[int]uint64) {
	t.Helper()
	got := ids(t, records)
	for id, seq := range want {
		if got[id] != seq {
			t.Errorf("acknowledged event %d: stands at seq %d, want %d", id, got[id], seq)
		}
	}
}

func runDir(t testing.TB) string { return filepath.Join(t.TempDir(), testRun) }
