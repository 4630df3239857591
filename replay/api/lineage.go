package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Lineage is the tree of the runs that continue each other's state, as the store has it. GET verify checks the links of one.
type Lineage struct {
	// Runs are the root ancestor and its descendants. Each stands behind its parent, and children are in order of time.
	Runs []LineageRun `json:"runs"`
	More bool         `json:"more"` // there are more runs than an answer has
}

// LineageRun is a run of a Lineage.
type LineageRun struct {
	Run    string    `json:"run"`
	Parent string    `json:"parent,omitempty"`
	Op     string    `json:"op,omitempty"` // how it continues its parent
	Start  time.Time `json:"start,omitzero"`
	Here   bool      `json:"here"` // the store has it
}

const (
	// maxLineage bounds the runs of an answer, and maxContinued the starts that are searched for them.
	maxLineage, maxContinued = 500, 20_000
)

// lineage answers with the tree that a run belongs to.
func (h *runsHandler) lineage(w http.ResponseWriter, r *request) error {
	run, err := h.find(r)
	if err != nil {
		return err
	}
	root, began, err := h.rootOf(r, run)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(r.Context(), searchFor)
	defer stop()
	children, partial, err := h.continued(ctx, r, began)
	if err != nil {
		return err
	}
	l := Lineage{More: partial}
	due := []LineageRun{root}
	for seen := map[string]bool{}; len(due) > 0; {
		next := due[0]
		due = due[1:]
		if seen[next.Run] {
			continue
		}
		if len(l.Runs) == maxLineage {
			l.More = true
			break
		}
		seen[next.Run] = true
		l.Runs = append(l.Runs, next)
		due = slices.Concat(children[next.Run], due)
	}
	return answer(w, l)
}

// rootOf follows the parents of a run, as far as the principal may see them. The root may be a run that is not there. began
// is the start of the oldest run that is.
func (h *runsHandler) rootOf(r *request, run store.Run) (root LineageRun, began time.Time, err error) {
	seen := map[string]bool{}
	for {
		root, began, seen[run.ID] = LineageRun{Run: run.ID, Start: run.Start, Here: true}, run.Began(), true
		parent, err := h.parentOf(r.Context(), run)
		if err != nil || parent == nil || seen[parent.Run] || len(seen) == maxLineage {
			return root, began, err
		}
		older, err := h.named(r.Context(), r.who, parent.Run)
		if err != nil { // deleted, of another tenant, or of another host
			return LineageRun{Run: parent.Run}, began, r.Context().Err()
		}
		run = older
	}
}

// parentOf returns the parent that a run's start names, nil if there is none.
func (h *runsHandler) parentOf(ctx context.Context, run store.Run) (*audit.Parent, error) {
	for row, err := range h.source.Records(ctx, store.Query{Tenant: store.TenantFilter(run.Tenant), Run: run.ID, Kinds: []audit.Kind{audit.KindRun}, Limit: 1}) {
		if err != nil {
			return nil, err
		}
		return parentIn(row), nil
	}
	return nil, nil
}

// parentIn returns the parent that a record names, if it is the start of a run.
func parentIn(row store.Row) *audit.Parent {
	var rec audit.Record
	if row.Body == nil || json.Unmarshal(row.Body, &rec) != nil || rec.Kind != audit.KindRun || rec.Lifecycle == nil || rec.Lifecycle.Phase != audit.PhaseStart {
		return nil
	}
	return rec.Lifecycle.Parent
}

// continued returns the runs since a time that continue another one, by the parent and in order of time. partial means that
// there are more.
func (h *runsHandler) continued(ctx context.Context, r *request, since time.Time) (children map[string][]LineageRun, partial bool, err error) {
	children = map[string][]LineageRun{}
	n := 0
	search := store.Search{Tenant: r.who.Scope(), Kinds: []audit.Kind{audit.KindRun}, From: since, Text: `"parent":{"op":`, Limit: maxContinued}
	for row, err := range h.source.Search(ctx, search) {
		if err != nil {
			if r.Context().Err() == nil && ctx.Err() != nil {
				return children, true, nil
			}
			return nil, false, err
		}
		n++
		if p := parentIn(row); p != nil && row.Tenant == r.who.Tenant {
			child := LineageRun{Run: row.Run, Parent: p.Run, Op: p.Op, Start: row.Time, Here: true}
			children[p.Run] = slices.Insert(children[p.Run], 0, child) // the search begins with the newest
		}
	}
	return children, n == maxContinued, nil
}
