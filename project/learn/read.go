package learn

import (
	"errors"
	"fmt"
	"iter"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Records selects the records of a run that Read needs.
func Records(run store.Run) store.Query {
	return store.Query{Tenant: run.Tenant, Run: run.ID, Kinds: []audit.Kind{audit.KindDNS, audit.KindFlow, audit.KindHTTP}}
}

// Read returns the traffic of a run. It returns an error for a record whose mark states that no host signed it: a writer to the
// store must not choose rules.
func Read(run store.Run, rows iter.Seq2[store.Row, error]) (*Traffic, error) {
	t := NewTraffic()
	for row, err := range store.Signed(rows) {
		var wrong *store.MarkError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("nothing is learned from run %s: the store has records of it that no host signed: %w; custody fsck lists them", run.ID, err)
		}
		if err != nil {
			return nil, err
		}
		if err := t.Add(row.Body); err != nil {
			return nil, fmt.Errorf("run %s: record %d: %w", run.ID, row.Seq, err)
		}
	}
	return t, nil
}
