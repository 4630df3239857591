package api

import (
	"context"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"

	"github.com/custody-project/custody/replay/access"
)

// RunItem is a run in a list.
type RunItem struct {
	store.Run
	Class        store.Class  `json:"class"`
	Live         bool         `json:"live"` // it has not ended
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

func (s *Server) item(run store.Run) RunItem {
	return RunItem{Run: run, Class: run.Class(), Live: run.End == nil, Verification: s.verification(run)}
}

// runMark is where a page of runs ended.
type runMark struct {
	ID    string    `json:"i"`
	Start time.Time `json:"s"`
}

func (s *Server) runs(w http.ResponseWriter, r *request) error {
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
		if err := s.cursors.read(r.scope(), cursor, &m); err != nil {
			return err
		}
		f.Before = &store.Run{ID: m.ID, Start: m.Start}
	}
	runs, err := s.source.Runs(r.Context(), f)
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
			page.Next = s.cursors.make(r.scope(), runMark{last.ID, last.Start})
			break
		}
		if run.Tenant == r.who.Tenant {
			page.Runs = append(page.Runs, s.item(run))
		}
	}
	return answer(w, page)
}

// find returns the run that the path names, if it is the asker's to see. Access logs have events
// about other tenants: they are no runs here.
func (s *Server) find(r *request) (store.Run, error) {
	return s.named(r.Context(), r.who, r.PathValue("run"))
}

func (s *Server) named(ctx context.Context, who access.Principal, name string) (store.Run, error) {
	if !plausible(name) {
		return store.Run{}, errNoRun()
	}
	run, err := s.source.Run(ctx, who.Scope(), name)
	if err != nil {
		return store.Run{}, err
	}
	if run.ID != name || run.Tenant != who.Tenant || run.Class() != store.Sandboxes {
		return store.Run{}, errNoRun()
	}
	return run, nil
}

// plausible reports whether a run could have that name.
func plausible(name string) bool {
	return name != "" && len(name) <= store.MaxRunID && utf8.ValidString(name) && name != store.Last &&
		!strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '/' || c == '\\' })
}

func (s *Server) run(w http.ResponseWriter, r *request) error {
	run, err := s.find(r)
	if err != nil {
		return err
	}
	st, err := s.story(r.Context(), run)
	if err != nil {
		return err
	}
	detail := RunDetail{RunItem: s.item(run), Facts: st.facts, Kinds: st.kinds, Policies: st.policies}
	detail.Doubt = st.doubt
	detail.Steps = st.steps()
	if detail.Steps == nil {
		detail.Steps = []replay.StepState{}
	}
	for _, f := range st.Findings() {
		if f.Derived {
			detail.Derived++
		}
	}
	return answer(w, detail)
}
