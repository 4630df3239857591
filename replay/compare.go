package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/custody-project/custody/store"
)

// What can differ between a store and the log it was made from.
var (
	ErrAltered = errors.New("the record is altered in the store")
	ErrSalt    = errors.New("the record's salt is altered in the store")
	ErrColumns = errors.New("the search columns differ from the record")
	ErrMissing = errors.New("the record is missing from the store")
	ErrExtra   = errors.New("the store has a record that the log has not")
	ErrOrder   = errors.New("records are not in order of seq")
	ErrSummary = errors.New("the run's summary differs from its records")
)

// Difference is one of the errors above at one record.
type Difference struct {
	Seq uint64
	Err error
}

// Error implements error.
func (d Difference) Error() string { return fmt.Sprintf("seq %d: %v", d.Seq, d.Err) }

// Unwrap returns the kind of difference.
func (d Difference) Unwrap() error { return d.Err }

// maxNamed differences are named; of further ones only the number is given.
const maxNamed = 100

// Differences is all in which a store differs from a log.
type Differences struct {
	Named []Difference
	Total int
	// Behind of the Total are records at the log's end, after all that the store
	// has. While a run goes on that is the store's usual lag.
	Behind int
}

// Error implements error.
func (d *Differences) Error() string {
	text := fmt.Sprintf("the store differs from the log at %s", plural(d.Total, "place"))
	for _, one := range d.Named {
		text += "\n" + one.Error()
	}
	if more := d.Total - len(d.Named); more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return text
}

// Unwrap returns the named differences.
func (d *Differences) Unwrap() []error {
	errs := make([]error, len(d.Named))
	for i, one := range d.Named {
		errs[i] = one
	}
	return errs
}

func (d *Differences) add(seq uint64, err error) {
	d.Total++
	if len(d.Named) < maxNamed {
		d.Named = append(d.Named, Difference{seq, err})
	}
}

// Hint returns what to do about it.
func (d *Differences) Hint() string {
	return "the log is the record: `custody ship --differ` mends the store; `custody rebuild` makes a new SQLite store, and keeps the old file as evidence"
}

// CompareStore compares the rows that a store has of a run with the frames of
// its log, both in order of seq, and returns the number of frames compared. A
// difference is a *Differences; any other error means that no answer was found.
func CompareStore(ctx context.Context, rows Rows, frames iter.Seq2[store.Frame, error]) (uint64, error) {
	next, stop := iter.Pull2(rows)
	defer stop()
	c := comparison{next: next}
	if err := c.advance(); err != nil {
		return 0, err
	}
	var compared uint64
	for f, err := range frames {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = c.frame(f)
		}
		if err != nil {
			return compared, fmt.Errorf("compare the store with the log: %w", err)
		}
		compared++
	}
	for c.more {
		c.found.add(c.row.Seq, ErrExtra)
		if err := c.advance(); err != nil {
			return compared, fmt.Errorf("compare the store with the log: %w", err)
		}
	}
	if c.found.Total > 0 {
		return compared, &c.found
	}
	return compared, nil
}

// comparison walks the rows along the frames.
type comparison struct {
	next  func() (store.Row, error, bool)
	row   store.Row
	more  bool // row is valid
	seen  bool // a row was read before
	found Differences
}

func (c *comparison) advance() error {
	before := c.row.Seq
	row, err, more := c.next()
	if err != nil {
		return err
	}
	if more && c.seen && row.Seq <= before {
		c.found.add(row.Seq, ErrOrder)
	}
	c.row, c.more, c.seen = row, more, true
	return nil
}

func (c *comparison) frame(f store.Frame) error {
	for c.more && c.row.Seq < f.Seq {
		c.found.add(c.row.Seq, ErrExtra)
		if err := c.advance(); err != nil {
			return err
		}
	}
	if !c.more {
		c.found.Behind++
	}
	if !c.more || c.row.Seq != f.Seq {
		c.found.add(f.Seq, ErrMissing)
		return nil
	}
	c.equal(f)
	return c.advance()
}

func (c *comparison) equal(f store.Frame) {
	if f.Erased != nil || c.row.Erased != nil {
		if f.Erased == nil || c.row.Erased == nil || *f.Erased != *c.row.Erased {
			c.found.add(f.Seq, ErrAltered)
		}
		return
	}
	if !bytes.Equal(c.row.Body, f.Body) {
		c.found.add(f.Seq, ErrAltered)
		return
	}
	if c.row.Salt != f.Salt {
		c.found.add(f.Seq, ErrSalt)
	}
	head, err := store.ParseHead(f.Body)
	if err != nil || !head.SameColumns(c.row.Head) {
		c.found.add(f.Seq, ErrColumns)
	}
}

// CompareSummary folds the frames of a log again and compares the result with
// the summary that the store shows of the run. A difference is ErrSummary.
func CompareSummary(run store.Run, frames iter.Seq2[store.Frame, error]) error {
	want := store.NewRun(run.ID)
	erased := false
	for f, err := range frames {
		if err != nil {
			return fmt.Errorf("compare the run's summary: %w", err)
		}
		if f.Erased != nil { // it was one of the run's events; if it was a finding, only the store knows
			erased = true
			want.Add(store.Head{Run: run.ID, Seq: f.Seq, Time: want.FirstTime})
			continue
		}
		head, err := store.HeadOf(run.ID, f)
		if err != nil {
			return fmt.Errorf("compare the run's summary: %w", err)
		}
		want.Add(head)
	}
	if erased {
		want.Findings = run.Findings
	}
	want.Start = want.Began()
	if field := want.Differs(run); field != "" {
		return fmt.Errorf("%w: %s", ErrSummary, field)
	}
	return nil
}
