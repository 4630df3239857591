package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/custody-project/custody/audit/store"
)

// Problem is an answer that says what is wrong (RFC 9457) and, in Hint, what to do.
type Problem struct {
	Type     string `json:"type"` // about:blank: Title says it all
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Hint     string `json:"hint,omitempty"`
	Instance string `json:"instance,omitempty"` // under which the log has more
	after    int    // seconds until it is worth another try
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

func problem(status int, detail, hint string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Hint: hint}
}

// bad is a request that cannot be answered as it stands.
func bad(hint, detail string, args ...any) *Problem {
	return problem(http.StatusBadRequest, fmt.Sprintf(detail, args...), hint)
}

// errNoRun is the one answer for a run that is not there, is another tenant's, or has no name that one could have.
func errNoRun() *Problem {
	return problem(http.StatusNotFound, "there is no such run", "GET /api/v1/runs lists the runs that you may see; names are given in full")
}

// hinted is an error that says what to do.
type hinted interface{ Hint() string }

// problemOf says what to answer after err.
func problemOf(err error) *Problem {
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrAmbiguous):
		return errNoRun()
	case errors.Is(err, store.ErrNoRecord):
		return problem(http.StatusNotFound, "the run has no such record", "last_seq of the run says how far its records go")
	case errors.Is(err, errAway), errors.Is(err, context.DeadlineExceeded):
		p = problem(http.StatusServiceUnavailable, "the store does not answer", "try again; if it lasts, `custody doctor` on the host says what is wrong")
		p.after = 5
		return p
	}
	return problem(http.StatusInternalServerError, "something went wrong here", "the server's log has more under this instance")
}

// write answers with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Disposition")
	h.Del("Content-Length")
	if p.after > 0 {
		h.Set("Retry-After", strconv.Itoa(p.after))
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // nobody is left to tell
}
