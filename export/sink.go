package export

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Sink is a way out of Custody. An Exporter calls it from one goroutine at a time.
type Sink interface {
	// Send hands items over, in their order, and returns when the other side has answered for
	// them, or the sink has done what its protocol has in place of an answer. The outcome:
	//
	//	nil        all were taken
	//	Outcomes   one outcome for each item
	//	*Refused   no repeat can help: the batch is split until what is to blame is alone
	//	*Later     to be sent again after a while that the other side named
	//	any other  to be sent again
	//
	// An item that was taken may be handed over again, always with the same ID.
	Send(ctx context.Context, items []Item) error
	Close() error
}

// Outcomes of the items of one Send, by position: nil, *Refused, or anything else for those to send again.
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
	return fmt.Sprintf("%d of %d events were not taken: %v", n, len(o), first)
}

// Refused means that the receiver will never take the event in this form.
type Refused struct{ Reason string }

// Error implements error.
func (r *Refused) Error() string { return "refused: " + r.Reason }

// Later means that the sink is to retry, and not before After.
type Later struct {
	After time.Duration // 0 when it did not say
	Err   error
}

// Error implements error.
func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns the cause.
func (l *Later) Unwrap() error { return l.Err }

// Warner is a Sink that cannot promise all that others do, or is set up so.
type Warner interface {
	// Warning returns a guarantee that the sink cannot give, "" if there is none. It may be called at any time.
	Warning() string
}

// Batch is how much goes into one Send.
type Batch struct {
	Items int // at most
	Bytes int // of data, at most, but for an item that is larger alone
	// Segments makes every batch one segment of a run, or a part of it that is cut at the
	// same place whenever it is exported again.
	Segments bool
}

// Batcher is a Sink that has an opinion on batches.
type Batcher interface{ Batch() Batch }

// What is used where neither the sink nor the caller says anything.
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
