package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/monitor"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/witness"
	"github.com/custody-project/custody/host"
)

// TestMonitorBesideWitness: a witness reads a checkpoint before it is published. A monitor of the same home does not take the
// one that is published until then for a log that was rolled back.
func TestMonitorBesideWitness(t *testing.T) {
	r := newRecorded(t, "")
	r.run()
	if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(r.home.Dir, "log")
	key, err := r.home.Keys().Signing()
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := key.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	a := newApp(t.Context(), nil, &out, &out)
	watch := func() (int, string) {
		out.Reset()
		return a.code(monitorCmd{Log: log}.Run(a)), out.String()
	}
	if code, text := watch(); code != 0 || !strings.Contains(text, "1 entries, 1 of them new") {
		t.Fatalf("monitor exits %d: %s", code, text)
	}

	next := filepath.Join(t.TempDir(), host.NewRunID(time.Now()))
	forge(t, r.home, next, filepath.Base(next))
	forceLog(t, r.home, log, next) // an entry that no published checkpoint has
	source, err := monitor.OpenSource(log)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := source.Bundle(t.Context(), 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	root := merkle.Root([]merkle.Hash{statement.LogHash(entries[0]), statement.LogHash(entries[1])})
	text := fmt.Sprintf("%s\n2\n%s\n", verifier.Name(), base64.StdEncoding.EncodeToString(root[:]))
	unpublished, err := note.Sign(&note.Note{Text: text}, key)
	if err != nil {
		t.Fatal(err)
	}
	config := witness.Config{Logs: []note.Verifier{verifier}}
	closeReaders, err := witnessServeCmd{Entries: []string{verifier.Name() + "=" + log}}.readers(a, r.home, &config)
	if err != nil {
		t.Fatal(err)
	}
	defer closeReaders()
	if err := config.Readers[verifier.Name()].Read(t.Context(), unpublished); err != nil {
		t.Fatal(err)
	}
	if code, text := watch(); code != 0 {
		t.Errorf("monitor exits %d: %s", code, text)
	}

	checkpoint := filepath.Join(log, "checkpoint")
	if err := os.WriteFile(checkpoint, unpublished, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := watch(); code != 0 || !strings.Contains(text, "2 entries, 1 of them new") {
		t.Errorf("monitor exits %d: %s", code, text)
	}
}
