package replay

import (
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// errErased means that the record was erased.
var errErased = errors.New("the record was erased")

// decode reads a record's exact bytes. Of the payloads it takes the one that
// belongs to the kind; place and time are the row's, which a store has checked.
func decode(row store.Row) (audit.Record, error) {
	if row.Erased != nil {
		return audit.Record{}, errErased
	}
	head, err := store.ParseHead(row.Body)
	if err != nil {
		return audit.Record{}, err
	}
	r := audit.Record{V: audit.Version, Run: head.Run, Seq: row.Seq}
	r.Kind = head.Kind
	if err := payload(&r.Event, row.Body); err != nil {
		return audit.Record{}, err
	}
	r.Time, r.Observer, r.Kind, r.Step = row.Time.UTC(), head.Observer, head.Kind, head.Step
	return r, nil
}

// payload decodes as much of body as e.Kind has use for: to skip is cheaper than to decode.
func payload(e *audit.Event, body []byte) error {
	switch e.Kind {
	case audit.KindExec:
		return part(body, &struct {
			P **audit.Exec `json:"exec"`
		}{&e.Exec})
	case audit.KindExit:
		return part(body, &struct {
			P **audit.Exit `json:"exit"`
		}{&e.Exit})
	case audit.KindFile:
		err := part(body, &struct {
			P **audit.File `json:"file"`
		}{&e.File})
		if err != nil || e.File == nil || len(e.File.Secrets) == 0 {
			return err
		}
		return part(body, &struct { // whether a secret was opened before its end
			P **audit.GuestTime `json:"guest_time"`
		}{&e.Guest})
	case audit.KindOutput:
		return part(body, &struct {
			P **audit.Output `json:"output"`
		}{&e.Output})
	case audit.KindFlow:
		return part(body, &struct {
			P **audit.Flow `json:"flow"`
		}{&e.Flow})
	}
	kind := e.Kind
	err := json.Unmarshal(body, e)
	e.Kind, e.Guest = kind, nil
	e.DropOthers()
	return err
}

func part[T any](body []byte, into *T) error { return json.Unmarshal(body, into) }

// The earliest and the latest instant that a number of nanoseconds since 1970 can name.
const minNanos, maxNanos = math.MinInt64, math.MaxInt64

// nanos is t in nanoseconds since 1970. What does not fit, which no store
// takes, is as early or as late as can be.
func nanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, minNanos)):
		return minNanos
	case t.After(time.Unix(0, maxNanos)):
		return maxNanos
	}
	return t.UnixNano()
}

func instantOf(ns int64) time.Time { return time.Unix(0, ns).UTC() }
