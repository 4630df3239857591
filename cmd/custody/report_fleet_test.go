package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/store/storetest"
)

// TestFleetBundles: of a run that another host made, and that a store has, there is a bundle and a report once the
// host is enrolled, and who has the fleet's root key alone can check the bundle.
func TestFleetBundles(t *testing.T) {
	t.Parallel()
	there, here, auditor := newDoor(t), newDoor(t), newDoor(t)
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "shared.db")
	for _, d := range []*door{there, here} {
		d.env = append(d.env, "CUSTODY_STORE="+dsn)
	}
	h, err := host.Open(there.home)
	if err != nil {
		t.Fatal(err)
	}
	h.UseStore(dsn)
	if err := os.MkdirAll(filepath.Join(there.home, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	named := hostkey.Locked{Dir: filepath.Join(there.home, "keys"), Lock: hostkey.InClear()}
	if _, err = named.NewRoot("custody-there"); err == nil {
		err = os.Rename(filepath.Join(named.Dir, hostkey.RootFile), filepath.Join(named.Dir, hostkey.KeyFile))
	}
	if err != nil {
		t.Fatal(err)
	}
	id := host.NewRunID(storetest.Start())
	run, err := h.Begin(t.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Facts: statement.Facts{Tier: "none"}, Redactor: redact.New(make([]byte, 32))})
	if err != nil {
		t.Fatal(err)
	}
	run.Ship(t.Context())
	start := audit.Event{Time: storetest.Start(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart}}
	for _, e := range append([]audit.Event{start}, storetest.Events(10)...) {
		if _, err := run.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if record, stored := run.Close(t.Context(), wal.Sealed); record != nil || stored != nil {
		t.Fatal(record, stored)
	}

	bundle := filepath.Join(t.TempDir(), "b.tar")
	here.contains(here.must(125, "bundle", id, "-o", bundle).stderr, "is of another host, custody-there", "hint: ", "key fleet enrol")
	if _, err := os.Stat(bundle); err == nil {
		t.Error("there is a bundle nevertheless")
	}
	fleet := here.must(0, "key", "fleet", "new", "fleet.example").stdout
	for _, d := range []*door{there, here} {
		here.must(0, "key", "fleet", "enrol", d.must(0, "key", "show").stdout)
	}
	here.contains(here.must(0, "bundle", id, "-o", bundle).stderr, "another host's", "fleet's root key")
	s := auditor.must(0, "verify", bundle, "--fleet-key", fleet, "--unlogged")
	auditor.contains(s.stdout, "key       custody-there", "host      custody-there, by the fleet's root key", "verified")
	auditor.must(2, "verify", bundle, "--key", fleet, "--unlogged")
	here.must(0, "verify", bundle, "--unlogged")

	dir := filepath.Join(t.TempDir(), "report")
	here.must(0, "report", id, "-f", "soc2", "-o", dir)
	if _, err := os.Stat(filepath.Join(dir, id+".tar")); err != nil {
		t.Error(err)
	}
	auditor.must(0, "verify", filepath.Join(dir, id+".tar"), "--fleet-key", fleet, "--unlogged")
}
