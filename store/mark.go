package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
)

// State states whether a record, or a run as a whole, is what a host signed.
type State string

// The states.
const (
	Holds     State = "holds"     // it is what was signed
	Fails     State = "fails"     // it is not: a part was changed, removed or added
	Unsigned  State = "unsigned"  // no signature covers it
	Live      State = "live"      // it is in the log of a live run, and is not sealed yet
	Cannot    State = "cannot"    // it cannot be verified here, for example because the key of its host is unknown
	Unchecked State = "unchecked" // not checked, or changed since the check
	Checking  State = "checking"  // the check is in progress
)

// Mark is the state of a record or a run. Text is the reason, except for Holds.
type Mark struct {
	State State  `json:"state"`
	Text  string `json:"text,omitempty"`
}

// Good reports whether the marked row can be shown as it is.
func (m Mark) Good() bool { return m.State == Holds || m.State == Live }

// Wrong reports whether the marked row is known to differ from what was signed.
func (m Mark) Wrong() bool { return m.State == Fails || m.State == Unsigned }

// MarkError: a run differs from what was signed. Its Mark is one that is Wrong.
type MarkError struct{ Mark Mark }

// Error implements error.
func (e *MarkError) Error() string { return e.Mark.Text }

// Marker checks whether rows are what a host signed. It need not be safe for concurrent use.
type Marker interface {
	Row(ctx context.Context, row Row) Mark
}

// WithMarks yields rows, and sets Mark in those that are not good. It stops when ctx ends, so that no row is marked for lack of
// time.
func WithMarks(ctx context.Context, rows iter.Seq2[Row, error], marker Marker) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for row, err := range rows {
			if err == nil {
				if m := marker.Row(ctx, row); !m.Good() {
					row.Mark = &m
				}
				err = context.Cause(ctx)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// Wrong reports whether the row has a mark that is Wrong.
func (r Row) Wrong() bool { return r.Mark != nil && r.Mark.Wrong() }

// Signed yields rows up to one with a mark that is Wrong, for which it yields a *MarkError. It is for formats without marks.
func Signed(rows iter.Seq2[Row, error]) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for row, err := range rows {
			if err == nil && row.Wrong() {
				m := *row.Mark
				m.Text = fmt.Sprintf("record %d: %s", row.Seq, m.Text)
				row, err = Row{}, &MarkError{Mark: m}
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// marked is the JSON form of a row that is not good: its bytes are not on a separate line, where they could be
// mistaken for a record. Record has them if they are JSON, else Bytes.
type marked struct {
	V      int             `json:"v"`
	Run    string          `json:"run"`
	Seq    uint64          `json:"seq"`
	Mark   Mark            `json:"verification"`
	Erased string          `json:"erased,omitempty"`
	Record json.RawMessage `json:"record,omitempty"`
	Bytes  []byte          `json:"bytes,omitempty"`
}

// MarkedLine returns the row with its mark, as one line without a line end.
func MarkedLine(row Row, m Mark) ([]byte, error) {
	out := marked{V: 1, Run: row.Run, Seq: row.Seq, Mark: m}
	switch {
	case row.Erased != nil:
		out.Erased = fmt.Sprintf("%x", *row.Erased)
	case json.Valid(row.Body):
		out.Record = row.Body
	default:
		out.Bytes = row.Body
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(out)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
