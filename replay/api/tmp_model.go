package api

import (
	"context"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/replay"
)

type story struct {
	run      store.Run
	rowsOf   []store.Row
	facts    audit.Lifecycle
	kinds    map[audit.Kind]uint64
	policies []replay.Policy
}

func (st *story) rows(yield func(store.Row, error) bool) {
	for _, r := range st.rowsOf {
		if !yield(r, nil) {
			return
		}
	}
}
func (st *story) StateAt(t time.Time, lines int) replay.State {
	s, _ := replay.StateAt(st.run, st.rows, t, lines)
	return s
}
func (st *story) Findings() []replay.Finding { return nil }
func (st *story) Why(seq uint64) (replay.Why, error) {
	return replay.Why{Seq: seq, Causes: []replay.Link{}, Effects: []replay.Link{}}, nil
}

type stories struct{}

func newStories(int64) *stories { return nil }

func (s *Server) story(ctx context.Context, run store.Run) (*story, error) {
	st := &story{run: run, kinds: map[audit.Kind]uint64{}, policies: []replay.Policy{}}
	for row, err := range s.source.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID}) {
		if err != nil {
			return nil, err
		}
		st.rowsOf = append(st.rowsOf, row)
		st.kinds[row.Kind]++
	}
	return st, nil
}

type Verification struct {
	State string `json:"state"`
}

func (s *Server) verification(store.Run) Verification { return Verification{"unchecked"} }

var _ = slices.Contains[[]int]
