package api

import (
	"context"
	"errors"
	"iter"

	"github.com/custody-project/custody/audit/store"
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
