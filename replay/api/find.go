package api

import (
	"context"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// runFinder finds the runs that requests name, if the principal may see them.
type runFinder struct{ source Source }

// find returns the run that the path names, if the principal may see it. Access logs have events
// about other tenants: they are not found.
func (rf *runFinder) find(r *request) (store.Run, error) {
	return rf.named(r.Context(), r.who, r.PathValue("run"))
}

func (rf *runFinder) named(ctx context.Context, who access.Principal, name string) (store.Run, error) {
	if !plausible(name) {
		return store.Run{}, errNoRun()
	}
	run, err := rf.source.Run(ctx, who.Scope(), name)
	if err != nil {
		return store.Run{}, err
	}
	if run.ID != name || run.Tenant != who.Tenant || run.Class() != store.Sandboxes {
		return store.Run{}, errNoRun()
	}
	return run, nil
}

// plausible reports whether a run could have this name.
func plausible(name string) bool {
	return name != "" && len(name) <= store.MaxRunID && utf8.ValidString(name) && name != store.Last &&
		!strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '/' || c == '\\' })
}

// allNamed finds runs by their names, each once.
func (rf *runFinder) allNamed(r *request, names []string) ([]store.Run, error) {
	var runs []store.Run
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		run, err := rf.named(r.Context(), r.who, name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// during finds the runs of the principal's tenant that began within a time range, and an error if there are too many.
func (rf *runFinder) during(r *request, f store.Filter, most int) ([]store.Run, error) {
	f.Tenant, f.Class, f.Limit = r.who.Scope(), store.Sandboxes, most+1
	found, err := rf.source.Runs(r.Context(), f)
	if err != nil {
		return nil, err
	}
	if len(found) > most {
		return nil, bad("choose a shorter time", "there are more than %d runs", most)
	}
	var runs []store.Run
	for _, run := range found {
		if run.Tenant == r.who.Tenant {
			runs = append(runs, run)
		}
	}
	if len(runs) == 0 {
		return nil, access.NewProblem(http.StatusNotFound, "no-runs", "no run began in that time", "choose a longer time")
	}
	return runs, nil
}
