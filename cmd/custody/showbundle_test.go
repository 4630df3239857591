package main

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/redact"
)

// TestTimelineWithheldEnd: the records that a bundle withholds behind the last one it shows count too.
func TestTimelineWithheldEnd(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	key, err := hostkey.LoadOrCreate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(t.TempDir(), "r-1")
	log, err := wal.Create(run, wal.Options{Run: "r-1", Sealer: statement.NewSealer(key, statement.Facts{Tier: "qemu-tcg"})})
	if err != nil {
		t.Fatal(err)
	}
	record := audit.NewRecorder(log, redact.New(make([]byte, 32)))
	for range 6 {
		if _, err := record.Record(t.Context(), audit.Event{Observer: audit.Guest, Kind: audit.KindOutput, Output: &audit.Output{Stream: "stdout", Text: "a line of output\n"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(t.Context(), wal.Sealed); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	some := &proof.Selection{Shows: func(seq uint64) bool { return seq == 2 || seq == 3 }, What: "some"}
	if err := proof.WriteBundle(t.Context(), &b, run, proof.BundleOptions{HostKey: key.Public, Signer: key, Select: some, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	d.write(filepath.Join(d.dir, "some.tar"), b.String())
	d.contains(d.must(0, "timeline", "some.tar").stdout, "2 events", "4 records withheld by the exporter")
}

// TestClean: what a text has that is not seen as itself does not reach a terminal.
func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"a b\tc é": "a b\tc é", "a\nb": "a\ufffdb", "\x1b[2J": "\ufffd[2J", "\u009b2J": "\ufffd2J", "\x7f": "\ufffd",
		"a\u202eb": "a\ufffdb", "a\u2066b": "a\ufffdb", "a\u200bb": "a\ufffdb", "a\u2028b": "a\ufffdb",
	} {
		if got := console.Clean(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
