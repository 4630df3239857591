package api

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"

	"github.com/custody-project/custody/store"
)

// Marker marks rows that differ from what a host signed. It serves one request.
type Marker interface {
	store.Marker
	Close() error
}

// marked is a Source with the marks of its records. It serves one request and is not safe for concurrent use.
type marked struct {
	Source
	marker store.Marker
}

// Records implements Source.
func (m marked) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return store.WithMarks(ctx, m.Source.Records(ctx, q), m.marker)
}

// markers opens a Marker for each request, and marks rows with it.
type markers struct {
	open func(ctx context.Context) (Marker, error) // nil: no row is marked
	log  *slog.Logger
}

// read calls read with src, whose records have their marks if they are known.
func (m *markers) read(ctx context.Context, src Source, read func(Source) error) error {
	if m.open == nil {
		return read(src)
	}
	marker, err := m.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(read(marked{src, marker}), marker.Close())
}

// rows passes rows on with their marks, if they are known.
func (m *markers) rows(ctx context.Context, rows iter.Seq2[store.Row, error]) iter.Seq2[store.Row, error] {
	if m.open == nil {
		return rows
	}
	return func(yield func(store.Row, error) bool) {
		marker := &lateMarker{markers: m}
		defer marker.Close()
		store.WithMarks(ctx, rows, marker)(yield)
	}
}

// lateMarker opens its Marker at the first row: most requests about a live run have no row.
type lateMarker struct {
	markers *markers
	marker  Marker
}

// Row implements store.Marker.
func (l *lateMarker) Row(ctx context.Context, row store.Row) store.Mark {
	if l.markers.open == nil {
		return store.Mark{State: store.Holds}
	}
	if l.marker == nil {
		marker, err := l.markers.open(ctx)
		if err != nil {
			l.markers.log.Error("records cannot be marked", "err", err)
			return store.Mark{State: store.Cannot, Text: "what was signed cannot be read here; the server's log has the reason"}
		}
		l.marker = marker
	}
	return l.marker.Row(ctx, row)
}

// Close closes the Marker, if there is one.
func (l *lateMarker) Close() error {
	if l.marker == nil {
		return nil
	}
	return l.marker.Close()
}

// Doubt lists the records of a run that differ from what was signed, or for which that cannot be determined.
type Doubt struct {
	Count   uint64        `json:"count"`
	Records []DoubtRecord `json:"records"` // the first maxDoubts of them
}

// DoubtRecord is one record that a Doubt lists.
type DoubtRecord struct {
	Seq  uint64     `json:"seq"`
	Mark store.Mark `json:"verification"`
}

// maxDoubts bounds the records that a Doubt lists.
const maxDoubts = 100

func (d *Doubt) add(row store.Row) *Doubt {
	if row.Mark == nil {
		return d
	}
	next := Doubt{}
	if d != nil {
		next = *d // answers may still use d
	}
	next.Count++
	if len(next.Records) < maxDoubts {
		next.Records = append(slices.Clip(next.Records), DoubtRecord{row.Seq, *row.Mark})
	}
	return &next
}

// of returns the mark of each row that is not good, and nil for the others.
func (m *markers) of(ctx context.Context, rows []store.Row) ([]*store.Mark, error) {
	marks := make([]*store.Mark, len(rows))
	if m.open == nil || len(rows) == 0 {
		return marks, nil
	}
	marker, err := m.open(ctx)
	if err != nil {
		return nil, err
	}
	defer marker.Close()
	for i, row := range rows {
		if mark := marker.Row(ctx, row); !mark.Good() {
			marks[i] = &mark
		}
	}
	return marks, ctx.Err()
}
