package api

import (
	"net/http"
	"time"

	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

const (
	// fewLines is how much of the output a state has unless asked, and maxLines at the most.
	fewLines, maxLines = 10, 1000
	// fewColumns is how wide a picture is unless asked, and maxColumns at the most.
	fewColumns, maxColumns = 1000, 8192
)

// State is a run at one moment.
type State struct {
	replay.State
	Doubt *Doubt `json:"doubt,omitempty"`
}

// Changes is what happened between two moments of a run.
type Changes struct {
	replay.Changes
	Doubt *Doubt `json:"doubt,omitempty"`
}

// Lanes is a picture of a run.
type Lanes struct {
	replay.Lanes
	Doubt *Doubt `json:"doubt,omitempty"`
}

// told is a run that was asked for, and what is known of it.
func (s *Server) told(r *request) (store.Run, *model, error) {
	run, err := s.find(r)
	if err != nil {
		return run, nil, err
	}
	m, err := s.story(r.Context(), run)
	return run, m, err
}

// end is the last moment of a run, now while it goes on.
func (s *Server) end(run store.Run) time.Time {
	if run.End != nil {
		return *run.End
	}
	return s.now()
}

func (s *Server) state(w http.ResponseWriter, r *request) error {
	run, err := s.find(r)
	if err != nil {
		return err
	}
	at, err := r.instant("at", run, s.now())
	if err != nil {
		return err
	}
	if at.IsZero() {
		at = s.end(run)
	}
	lines, err := r.number("lines", fewLines, maxLines)
	if err != nil {
		return err
	}
	m, err := s.story(r.Context(), run)
	if err != nil {
		return err
	}
	return answer(w, State{m.StateAt(at, int(lines)), m.doubt})
}

// changes answers with what happened behind one instant and until another: what the state at from
// does not have, and that at to has.
func (s *Server) changes(w http.ResponseWriter, r *request) error {
	run, err := s.find(r)
	if err != nil {
		return err
	}
	from, err := r.instant("from", run, s.now())
	if err != nil {
		return err
	}
	to, err := r.instant("to", run, s.now())
	if err != nil {
		return err
	}
	if from.IsZero() {
		from = run.Began().Add(-1)
	}
	if to.IsZero() {
		to = s.end(run)
	}
	if to.Before(from) {
		return bad("give the earlier one as from", "from is behind to")
	}
	m, err := s.story(r.Context(), run)
	if err != nil {
		return err
	}
	return answer(w, Changes{m.Changes(from, to), m.doubt})
}

func (s *Server) lanes(w http.ResponseWriter, r *request) error {
	run, err := s.find(r)
	if err != nil {
		return err
	}
	from, to, err := r.span(run, s.now())
	if err != nil {
		return err
	}
	columns, err := r.number("columns", fewColumns, maxColumns)
	if err == nil && columns == 0 {
		err = bad("give 1 at least", "columns is 0")
	}
	if err != nil {
		return err
	}
	if !from.IsZero() || !to.IsZero() { // without either it is the whole run
		if from.IsZero() {
			from = run.Began()
		}
		if to.IsZero() {
			to = s.end(run).Add(time.Millisecond)
		}
		if !from.Before(to) {
			return bad("give a time within the run", "from is not before to")
		}
	}
	m, err := s.story(r.Context(), run)
	if err != nil {
		return err
	}
	return answer(w, Lanes{m.Lanes(from, to, int(columns)), m.doubt})
}

// items answers with a list that a run's story has.
func items[T any](s *Server, w http.ResponseWriter, r *request, of func(*model) []T) error {
	_, m, err := s.told(r)
	if err != nil {
		return err
	}
	list := of(m)
	if list == nil {
		list = []T{}
	}
	return answer(w, struct {
		Items []T    `json:"items"`
		Doubt *Doubt `json:"doubt,omitempty"`
	}{list, m.doubt})
}

func (s *Server) processes(w http.ResponseWriter, r *request) error {
	return items(s, w, r, func(m *model) []replay.Proc { return m.Processes() })
}

func (s *Server) connections(w http.ResponseWriter, r *request) error {
	return items(s, w, r, func(m *model) []replay.Connection { return m.Connections() })
}

func (s *Server) files(w http.ResponseWriter, r *request) error {
	return items(s, w, r, func(m *model) []replay.FileHistory { return m.Files() })
}

func (s *Server) calls(w http.ResponseWriter, r *request) error {
	return items(s, w, r, func(m *model) []replay.Call { return m.Calls() })
}

func (s *Server) credentials(w http.ResponseWriter, r *request) error {
	return items(s, w, r, func(m *model) []replay.Credential { return m.Credentials() })
}

func (s *Server) findings(w http.ResponseWriter, r *request) error {
	return items(s, w, r, func(m *model) []replay.Finding { return m.Findings() })
}

// outputBytes bounds the text of one answer; one piece is always there.
const outputBytes = 4 << 20

// output answers with what the steps wrote, behind a record's seq.
func (s *Server) output(w http.ResponseWriter, r *request) error {
	after, err := r.number("after", 0, store.MaxSeq)
	if err != nil {
		return err
	}
	limit, err := r.limit()
	if err != nil {
		return err
	}
	_, m, err := s.told(r)
	if err != nil {
		return err
	}
	var page struct {
		Pieces []replay.Piece `json:"pieces"`
		Next   uint64         `json:"next,omitempty"` // for after; 0: there is no more now
		Doubt  *Doubt         `json:"doubt,omitempty"`
	}
	page.Doubt = m.doubt
	page.Pieces = m.Outputs(after, limit+1)
	bytes := 0
	for i, piece := range page.Pieces {
		if bytes += len(piece.Text); i > 0 && (i == limit || bytes > outputBytes) {
			page.Pieces, page.Next = page.Pieces[:i], page.Pieces[i-1].Seq
			break
		}
	}
	return answer(w, page)
}
