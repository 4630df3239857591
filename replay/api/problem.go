package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// bad is the error of an invalid request.
func bad(hint, detail string, args ...any) *access.Problem {
	return access.NewProblem(http.StatusBadRequest, "parameter", fmt.Sprintf(detail, args...), hint)
}

// later is a temporary error.
func later(status int, name, detail, hint string, after time.Duration) *access.Problem {
	p := access.NewProblem(status, name, detail, hint)
	p.After = after
	return p
}

// errNoRun is the error for a run that does not exist, is another tenant's, or has an invalid name.
func errNoRun() *access.Problem {
	return access.NewProblem(http.StatusNotFound, "no-run", "there is no such run", "GET /api/v1/runs lists the runs that you may see; names are given in full")
}

func errEnding() *access.Problem {
	return later(http.StatusServiceUnavailable, "ending", "the server ends", "try again in a moment", 5*time.Second)
}

// errNotHere is the error of a route whose part is not configured.
func errNotHere(what string) *access.Problem {
	return access.NewProblem(http.StatusNotImplemented, "not-here", "this server has no "+what, "ask its operator")
}

// problemOf returns the response to err. Details of a store or a part are logged only.
func problemOf(err error) *access.Problem {
	var p *access.Problem
	var finding *verdict.Verdict
	var wrong *store.MarkError
	var deleted *store.DeletedError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &deleted):
		return access.NewProblem(http.StatusGone, "deleted", deleted.Error(), "the host's signed statement is left of it, and nothing of its record")
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrAmbiguous):
		return errNoRun()
	case errors.Is(err, store.ErrNoRecord):
		return access.NewProblem(http.StatusNotFound, "no-record", "the run has no such record", "last_seq of the run is the seq of its last record")
	case errors.As(err, &finding):
		return access.NewProblem(http.StatusConflict, finding.Name(), "the record does not allow it: "+finding.Error(), "GET verify of the run returns the result of its verification")
	case errors.As(err, &wrong):
		return access.NewProblem(http.StatusConflict, "not-signed", "the store has records that no host signed: "+wrong.Error(),
			"this form cannot show it; ndjson, ocsf, ecs, cef and native mark such records, and custody fsck on the host names all")
	case errors.Is(err, errAway):
		return later(http.StatusServiceUnavailable, "store-away", "the store does not answer",
			"try again; if it lasts, custody doctor on the host shows the cause", 5*time.Second)
	case errors.Is(err, context.DeadlineExceeded):
		return later(http.StatusServiceUnavailable, "too-slow", "the answer took too long", "ask for less: a shorter time, fewer kinds", 5*time.Second)
	}
	return access.NewProblem(http.StatusInternalServerError, "internal", "something went wrong here", "the server's log has more under the id in this answer's header Custody-Error")
}

// errorID is the header with the ID under which the log has the details of a response from 500 on.
const errorID = "Custody-Error"

// fail answers err, and logs the details that the client must not see.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	known := errors.As(err, new(*access.Problem)) // it has all details itself
	if r.Context().Err() != nil && !known {
		// The client has gone, its credential was withdrawn, or its body cannot be read: what it may still get must not be taken for a success.
		known, p = true, access.NewProblem(http.StatusServiceUnavailable, "interrupted", "the request ended before its answer", "try again")
	}
	if p.Status >= http.StatusInternalServerError && !known {
		id := newID()
		w.Header().Set(errorID, id)
		s.log.Error("a request failed", "id", id, "route", r.Pattern, "err", err)
	}
	w.Header().Del("Content-Disposition")
	p.Write(w, r)
}
