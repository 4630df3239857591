package api

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/custody-project/custody/store"
)

// Marker says of rows whether they are what a host signed. It is for one request.
type Marker interface {
	store.Marker
	Close() error
}

// marked is a Source with the marks of its records. It is for one request, and not for concurrent use.
type marked struct {
	Source
	marker store.Marker
}

// Records implements Source.
func (m marked) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return store.WithMarks(ctx, m.Source.Records(ctx, q), m.marker)
}

// withMarks calls read with src, whose records have their marks if the Server knows them.
func (s *Server) withMarks(ctx context.Context, src Source, read func(Source) error) error {
	if s.opt.Marks == nil {
		return read(src)
	}
	marker, err := s.opt.Marks(ctx)
	if err != nil {
		return err
	}
	return errors.Join(read(marked{src, marker}), marker.Close())
}

// marking passes rows on with their marks, if the Server knows them.
func (s *Server) marking(ctx context.Context, rows iter.Seq2[store.Row, error]) iter.Seq2[store.Row, error] {
	if s.opt.Marks == nil {
		return rows
	}
	return func(yield func(store.Row, error) bool) {
		marker := &lateMarker{server: s}
		defer marker.Close()
		store.WithMarks(ctx, rows, marker)(yield)
	}
}

// lateMarker opens its Marker at the first row: most questions about a live run find none.
type lateMarker struct {
	server *Server
	marker Marker
}

// Row implements store.Marker.
func (l *lateMarker) Row(ctx context.Context, row store.Row) store.Mark {
	if l.server.opt.Marks == nil {
		return store.Mark{State: store.Holds}
	}
	if l.marker == nil {
		marker, err := l.server.opt.Marks(ctx)
		if err != nil {
			l.server.log.Error("records cannot be marked", "err", err)
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

// Doubt lists the records of a run that are not what was signed, or of which that is not known.
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

// marks returns the mark of each row that is not good, and nil for the others.
func (s *Server) marks(ctx context.Context, rows []store.Row) ([]*store.Mark, error) {
	marks := make([]*store.Mark, len(rows))
	if s.opt.Marks == nil || len(rows) == 0 {
		return marks, nil
	}
	marker, err := s.opt.Marks(ctx)
	if err != nil {
		return nil, err
	}
	defer marker.Close()
	for i, row := range rows {
		if m := marker.Row(ctx, row); !m.Good() {
			marks[i] = &m
		}
	}
	return marks, ctx.Err()
}
