package api

import (
	"context"

	"github.com/custody-project/custody/audit/store"
)

// Marker says of rows whether they are what a host signed. It is for one request.
type Marker interface {
	Row(ctx context.Context, row store.Row) store.Mark
	Close() error
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
