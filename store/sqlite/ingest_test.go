package sqlite

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// TestInsertFails: if the last statement of a transaction fails, no row is stored, although statements are not undone separately.
func TestInsertFails(t *testing.T) {
	s := newStore(t)
	ctx := context.Background()
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		in := inserter{ctx: ctx, tx: tx}
		for seq := range uint64(2*rowSteps[0]) + 7 {
			h := store.Head{Run: "r-1", Seq: seq % 130, Time: time.Unix(1, 0), Kind: audit.KindOutput, Observer: audit.Host}
			if err := in.add(h, store.Frame{Seq: h.Seq, Body: []byte("{}")}); err != nil {
				return err
			}
		}
		return in.flush()
	})
	if err == nil {
		t.Fatal("two rows at one place were taken")
	}
	var n int
	if err := s.db.QueryRow("SELECT count(*) FROM records").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows are left (%v), want none", n, err)
	}
}
