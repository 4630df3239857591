package api

import (
	"net/http"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// RunItem is a run in a list.
type RunItem struct {
	store.Run
	Class        store.Class  `json:"class"`
	Live         bool         `json:"live"` // the run has not ended
	Verification Verification `json:"verification"`
	Doubt        *Doubt       `json:"doubt,omitempty"` // of a run by itself and of runs that are compared
}

// RunDetail is a run by itself.
type RunDetail struct {
	RunItem
	Facts    audit.Lifecycle       `json:"facts"` // of its start
	Steps    []replay.StepState    `json:"steps"`
	Kinds    map[audit.Kind]uint64 `json:"kinds"` // how many records of each
	Policies []replay.Policy       `json:"policy"`
	Derived  int                   `json:"derived_findings"`
}

// runsHandler lists and compares runs.
type runsHandler struct {
	runFinder
	stories *stories
	checks  *checks
	cursors cursors
}

// runMark is the end of a page of runs.
type runMark struct {
	ID    string    `json:"i"`
	Start time.Time `json:"s"`
}

func (h *runsHandler) list(w http.ResponseWriter, r *request) error {
	f := store.Filter{Tenant: r.who.Scope(), Class: store.Sandboxes, Project: r.str("project")}
	var err error
	var status string
	if status, err = r.oneOf("status", "", string(store.Running), string(store.Sealed), string(store.Interrupted)); err != nil {
		return err
	}
	f.Status = store.Status(status)
	if f.Findings, err = r.flag("findings"); err != nil {
		return err
	}
	if f.From, f.To, err = r.dates(); err != nil {
		return err
	}
	limit, err := r.limit()
	if err != nil {
		return err
	}
	f.Limit = limit + 1
	if cursor := r.str("cursor"); cursor != "" {
		var m runMark
		if err := h.cursors.read(r.scope(), cursor, &m); err != nil {
			return err
		}
		f.Before = &store.Run{ID: m.ID, Start: m.Start}
	}
	runs, err := h.source.Runs(r.Context(), f)
	if err != nil {
		return err
	}
	var page struct {
		Runs []RunItem `json:"runs"`
		Next string    `json:"next,omitempty"`
	}
	page.Runs = []RunItem{}
	for i, run := range runs {
		if i == limit {
			last := runs[i-1]
			page.Next = h.cursors.make(r.scope(), runMark{last.ID, last.Start})
			break
		}
		if run.Tenant == r.who.Tenant {
			page.Runs = append(page.Runs, h.checks.item(run))
		}
	}
	return answer(w, page)
}

func (h *runsHandler) one(w http.ResponseWriter, r *request) error {
	run, err := h.find(r)
	if err != nil {
		return err
	}
	st, err := h.stories.model(r.Context(), run)
	if err != nil {
		return err
	}
	detail := RunDetail{RunItem: h.checks.item(run), Facts: st.facts, Kinds: st.kinds, Policies: st.policies}
	detail.Doubt = st.doubt
	detail.Steps = st.steps()
	if detail.Steps == nil {
		detail.Steps = []replay.StepState{}
	}
	detail.Derived = len(st.Findings().Derived())
	return answer(w, detail)
}
