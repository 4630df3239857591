// Package notebook writes and reads the notes on the runs of a host.
package notebook

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// Max is how many notes on one run are read: the newest.
const Max = 10_000

// Notebook is the notes on runs that Reader has. It is safe for concurrent use if Reader is.
type Notebook struct {
	Host    *host.Host
	Reader  host.Reader
	Version string // of the program
}

// Write records a note in an access log of its own, which is sealed and shipped to the store before Write returns. It returns the
// note's id.
func (b Notebook) Write(ctx context.Context, n audit.Note) (string, error) {
	if err := n.Check(); err != nil {
		return "", err
	}
	tag, err := b.Host.TagKey()
	if err != nil {
		return "", err
	}
	redactor, err := pattern.NewRedactor(tag)
	if err != nil {
		return "", err
	}
	log := b.Host.AccessLog(redactor, b.Version)
	noted, err := log.Note(ctx, n)
	return noted.ID, errors.Join(err, log.Close())
}

// On reads the notes on a run, and their withdrawals. With Max of them the oldest are missing.
func (b Notebook) On(ctx context.Context, run store.Run) ([]replay.Note, error) {
	return replay.ReadNotes(run, b.Reader.Search(ctx, replay.NotesQuery(run, Max)))
}

// Withdraw checks that a note on a run can be withdrawn.
func (b Notebook) Withdraw(ctx context.Context, run store.Run, id string) error {
	notes, err := b.On(ctx, run)
	if err == nil {
		_, err = replay.Withdrawable(replay.Notes(notes), id)
	}
	return err
}

// AboutSeq makes n a note about the record with this seq, from 1. The error is store.ErrNoRecord if there is none.
func (b Notebook) AboutSeq(ctx context.Context, run store.Run, n *audit.Note, seq uint64) error {
	return b.about(ctx, run, n, store.Query{AfterSeq: seq - 1, Limit: 1}, seq)
}

// AboutTime makes n a note about the last record at an instant. The error is store.ErrNoRecord if there is none.
func (b Notebook) AboutTime(ctx context.Context, run store.Run, n *audit.Note, at time.Time) error {
	return b.about(ctx, run, n, store.Query{To: at.Add(1)}, 0)
}

// about makes n a note about the last record of q, which has the given seq unless that is 0.
func (b Notebook) about(ctx context.Context, run store.Run, n *audit.Note, q store.Query, seq uint64) error {
	q.Tenant, q.Run = run.Tenant, run.ID
	for row, err := range b.Reader.Records(ctx, q) {
		if err != nil {
			return err
		}
		leaf := row.Frame().Leaf()
		n.Seq, n.Leaf = row.Seq, hex.EncodeToString(leaf[:])
	}
	if n.Seq == 0 || seq != 0 && n.Seq != seq {
		return fmt.Errorf("%s has no such record: %w", run.ID, store.ErrNoRecord)
	}
	return nil
}

// Record returns the record of a run with this seq, and whether there is one.
func (b Notebook) Record(ctx context.Context, run store.Run, seq uint64) (store.Row, bool, error) {
	for row, err := range b.Reader.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID, AfterSeq: seq - 1, Limit: 1}) {
		return row, row.Seq == seq, err
	}
	return store.Row{}, false, nil
}

// WriteJSON writes one JSON object a note, with whether the record that it is about is still the same, and its mark.
func (b Notebook) WriteJSON(ctx context.Context, w io.Writer, run store.Run, notes []replay.Note, opt replay.Options) error {
	out := json.NewEncoder(w)
	for _, n := range notes {
		row, there, err := b.Record(ctx, run, max(n.Seq, 1))
		if err != nil {
			return err
		}
		if err := out.Encode(struct {
			replay.Note
			Bound replay.Bound `json:"bound"`
			Mark  *store.Mark  `json:"verification,omitempty"`
		}{n, n.Binding(row, there), n.Mark(opt.Mark)}); err != nil {
			return err
		}
	}
	return nil
}
