package host

import (
	"context"
	"iter"
	"time"

	"github.com/custody-project/custody/store"
)

// Marked is a store whose Records include their marks. Records is not safe for concurrent use.
type Marked struct {
	store.Store
	Wrong uint64 // number of rows so far whose mark is Wrong

	host  *Host
	marks *Marks
	made  time.Time
}

// marksAge is the time after which a Marked replaces its Marks, which grows with each run.
const marksAge = 10 * time.Second

// Marked returns st with the marks of its records.
func (c Checks) Marked(st store.Store) *Marked { return &Marked{Store: st, host: c.host} }

// Records yields records with their marks, until ctx ends.
func (m *Marked) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		if err := m.renew(); err != nil {
			yield(store.Row{}, err)
			return
		}
		for row, err := range store.WithMarks(ctx, m.Store.Records(ctx, q), m.marks) {
			if row.Wrong() {
				m.Wrong++
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

func (m *Marked) renew() error {
	if m.marks != nil && time.Since(m.made) < marksAge {
		return nil
	}
	marks, err := m.host.Checks().Marks(m.Store)
	m.marks, m.made = marks, time.Now()
	return err
}
