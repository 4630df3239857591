package main

import (
	"testing"

	"github.com/custody-project/custody/internal/sampleruns"
)

// TestDefinitionsRepaired: fsck names the command that repairs a changed definition in custody.db, and it does.
func TestDefinitionsRepaired(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"an index is gone":     "DROP INDEX runs_by_start",
		"a trigger is there":   "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records WHERE run = new.run; END",
		"a view is there":      "CREATE VIEW shown AS SELECT * FROM records WHERE seq > 3",
		"a column is there":    "ALTER TABLE runs ADD COLUMN more TEXT",
		"a table is there":     "CREATE TABLE more (a)",
		"a column has no name": "ALTER TABLE records RENAME COLUMN host TO hosts",
	} {
		t.Run(name, func(t *testing.T) {
			d := newDoor(t)
			d.home = t.TempDir()
			run := sampleruns.Record(t, d.home, sampleruns.Review())
			d.must(0, "fsck")
			d.sqlite(statement)
			s := d.custody("fsck")
			if s.code == 0 {
				t.Fatalf("fsck found nothing: %s", s.stderr)
			}
			d.contains(s.stdout+s.stderr, "custody rebuild")
			d.must(0, "rebuild")
			d.must(0, "fsck")
			d.must(0, "verify", run)
		})
	}
}
