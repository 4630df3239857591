package api

import (
	"net/http"
	"time"

	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

const (
	// fewLines is the default number of lines of output in a state, and maxLines the maximum.
	fewLines, maxLines = 10, 1000
	// fewColumns is the default width of lanes, and maxColumns the maximum.
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

// stateHandler serves what is derived from a run's records.
type stateHandler struct {
	runFinder
	stories *stories
	now     func() time.Time
}

// model returns the run that the path names, with its model.
func (h *stateHandler) model(r *request) (*model, error) {
	run, err := h.find(r)
	if err != nil {
		return nil, err
	}
	return h.stories.model(r.Context(), run)
}

// endOf is the end of a run, or now if it is live.
func endOf(run store.Run, now time.Time) time.Time {
	if run.End != nil {
		return *run.End
	}
	return now
}

func (h *stateHandler) state(w http.ResponseWriter, r *request) error {
	run, err := h.find(r)
	if err != nil {
		return err
	}
	at, err := r.instant("at", run, h.now())
	if err != nil {
		return err
	}
	if at.IsZero() {
		at = endOf(run, h.now())
	}
	lines, err := r.number("lines", fewLines, maxLines)
	if err != nil {
		return err
	}
	m, err := h.stories.model(r.Context(), run)
	if err != nil {
		return err
	}
	return answer(w, State{m.StateAt(at, int(lines)), m.doubt})
}

// changes answers with what happened after from, up to and including to.
func (h *stateHandler) changes(w http.ResponseWriter, r *request) error {
	run, err := h.find(r)
	if err != nil {
		return err
	}
	from, err := r.instant("from", run, h.now())
	if err != nil {
		return err
	}
	to, err := r.instant("to", run, h.now())
	if err != nil {
		return err
	}
	if from.IsZero() {
		from = run.Began().Add(-1)
	}
	if to.IsZero() {
		to = endOf(run, h.now())
	}
	if to.Before(from) {
		return bad("give the earlier one as from", "from is behind to")
	}
	m, err := h.stories.model(r.Context(), run)
	if err != nil {
		return err
	}
	return answer(w, Changes{m.Changes(from, to), m.doubt})
}

func (h *stateHandler) lanes(w http.ResponseWriter, r *request) error {
	run, err := h.find(r)
	if err != nil {
		return err
	}
	from, to, err := r.span(run, h.now())
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
			to = endOf(run, h.now()).Add(time.Millisecond)
		}
		if !from.Before(to) {
			return bad("give a time within the run", "from is not before to")
		}
	}
	m, err := h.stories.model(r.Context(), run)
	if err != nil {
		return err
	}
	return answer(w, Lanes{m.Lanes(from, to, int(columns)), m.doubt})
}

// items answers with a list of a run's story.
func items[T any](h *stateHandler, w http.ResponseWriter, r *request, of func(*model) []T) error {
	m, err := h.model(r)
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

func (h *stateHandler) processes(w http.ResponseWriter, r *request) error {
	return items(h, w, r, func(m *model) []replay.Proc { return m.Processes().All() })
}

func (h *stateHandler) connections(w http.ResponseWriter, r *request) error {
	return items(h, w, r, func(m *model) []replay.Connection { return m.Connections().All() })
}

func (h *stateHandler) files(w http.ResponseWriter, r *request) error {
	return items(h, w, r, func(m *model) []replay.FileHistory { return m.Files().All() })
}

func (h *stateHandler) calls(w http.ResponseWriter, r *request) error {
	return items(h, w, r, func(m *model) []replay.Call { return m.Calls().All() })
}

func (h *stateHandler) credentials(w http.ResponseWriter, r *request) error {
	return items(h, w, r, func(m *model) []replay.Credential { return m.Credentials().All() })
}

func (h *stateHandler) findings(w http.ResponseWriter, r *request) error {
	return items(h, w, r, func(m *model) []replay.Finding { return m.Findings().All() })
}

// outputBytes bounds the text of one response, which has at least one piece.
const outputBytes = 4 << 20

// output answers with the output of the steps after a seq.
func (h *stateHandler) output(w http.ResponseWriter, r *request) error {
	after, err := r.number("after", 0, store.MaxSeq)
	if err != nil {
		return err
	}
	limit, err := r.limit()
	if err != nil {
		return err
	}
	m, err := h.model(r)
	if err != nil {
		return err
	}
	var page struct {
		Pieces []replay.Piece `json:"pieces"`
		Next   uint64         `json:"next,omitempty"` // for after; 0: there is no more now
		Doubt  *Doubt         `json:"doubt,omitempty"`
	}
	page.Doubt = m.doubt
	page.Pieces = m.Output().Pieces(after, limit+1)
	bytes := 0
	for i, piece := range page.Pieces {
		if bytes += len(piece.Text); i > 0 && (i == limit || bytes > outputBytes) {
			page.Pieces, page.Next = page.Pieces[:i], page.Pieces[i-1].Seq
			break
		}
	}
	return answer(w, page)
}
