package export

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Sink sends events to a receiver. An Exporter calls it from one goroutine at a time.
type Sink interface {
	// Send sends items, in order, and returns when the receiver has answered for
	// them, or when the protocol's substitute for an answer is complete. The outcome is:
	//
	//	nil        all were accepted
	//	Outcomes   one outcome for each item
	//	*Refused   retrying is useless: the batch is split to find the event that causes it
	//	*Later     retry after a delay that the receiver requested
	//	any other  retry
	//
	// An accepted item may be sent again, always with the same ID.
	Send(ctx context.Context, items []Item) error
	Close() error
}

// Outcomes of the items of one Send, by index: nil, *Refused, or any other error for those to retry.
type Outcomes []error

// Error implements error.
func (o Outcomes) Error() string {
	var first error
	n := 0
	for _, err := range o {
		if err != nil {
			if n++; first == nil {
				first = err
			}
		}
	}
	return fmt.Sprintf("%d of %d events were not accepted: %v", n, len(o), first)
}

// Refused means that the receiver will never accept the event in this form.
type Refused struct{ Reason string }

// Error implements error.
func (r *Refused) Error() string { return "refused: " + r.Reason }

// Later means that the sender must retry, and not before After.
type Later struct {
	After time.Duration // 0 if the receiver requested none
	Err   error
}

// Error implements error.
func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns the cause.
func (l *Later) Unwrap() error { return l.Err }

// Warner is a Sink that may lack a guarantee of other sinks.
type Warner interface {
	// Warning returns the missing guarantee, "" if there is none. It is safe for concurrent use.
	Warning() string
}

// Batch is the size of one Send.
type Batch struct {
	Items int // at most
	Bytes int // maximum bytes of data, unless one item is larger
	// Segments makes every batch one segment of a run, or a part of it that is the
	// same in every export.
	Segments bool
}

// Batcher is a Sink with a preferred batch size.
type Batcher interface{ Batch() Batch }

// Defaults if neither the sink nor the caller sets a value.
const (
	defaultItems = 500
	defaultBytes = 1 << 20
)

// refusal returns the *Refused in err, or nil.
func refusal(err error) *Refused {
	var r *Refused
	if errors.As(err, &r) {
		return r
	}
	return nil
}
