package quota

import (
	"errors"
	"fmt"
	"time"
)

// Scope is whose limit it is.
type Scope string

// The scopes.
const (
	OfHost    Scope = "host"
	OfTenant  Scope = "tenant"
	OfProject Scope = "project"
)

// ErrClosed is the error of Enter, Acquire and Wait after Close.
var ErrClosed = errors.New("the queue of starts is closed: the host is shutting down")

// ErrLate is in the chain of the error for a start that has waited for the longest time, or that would have to.
var ErrLate = errors.New("the start cannot begin in the time that it may wait")

// Error is why a start was refused.
type Error struct {
	Quota           Quota // that is used up
	Scope           Scope // whose limit it is
	Tenant, Project string
	// Limit is the limit, InUse what is in use of it, and Want what the start needs of it. All are 0 if the scope is the host:
	// its use is that of other tenants.
	Limit, InUse, Want int64
	// Retry is when another attempt can succeed, an estimate if that depends on the end of other sandboxes. It is zero if the
	// start exceeds a limit by itself: another attempt cannot succeed.
	Retry time.Time
	// Position is the place among the waiting starts of the tenant, by arrival: 1 is the first. A start that was refused
	// before it waited has the place that it would have had. 0 if nothing was to start.
	Position int
	Err      error // ErrLate, or the cause of the context; otherwise nil
}

// Error implements error.
func (e *Error) Error() string {
	text := e.reason()
	if e.Retry.IsZero() {
		return text + ": ask for less"
	}
	if e.Err != nil && !errors.Is(e.Err, ErrLate) {
		text += ": " + e.Err.Error()
	}
	if e.Position > 0 {
		text += fmt.Sprintf("; place %d among the waiting starts of %s", e.Position, tenantText(e.Tenant))
	}
	return text + "; try again at " + e.Retry.UTC().Format(time.RFC3339)
}

func (e *Error) reason() string {
	owner := tenantText(e.Tenant)
	if e.Scope == OfProject {
		owner = fmt.Sprintf("the project %q of %s", e.Project, owner)
	}
	switch {
	case e.Scope == OfHost && e.Retry.IsZero():
		return fmt.Sprintf("the start needs more %s than this host has", e.Quota)
	case e.Scope == OfHost && e.Quota == Waiting:
		return "too many starts wait on this host"
	case e.Scope == OfHost:
		return fmt.Sprintf("this host has no room now (%s)", e.Quota)
	case e.Retry.IsZero():
		return fmt.Sprintf("the start needs %s of %s, and the limit of %s is %s", e.amount(e.Want), e.Quota, owner, e.amount(e.Limit))
	}
	return fmt.Sprintf("%s uses %s of %s of its quota %s", owner, e.amount(e.InUse), e.amount(e.Limit), e.Quota)
}

func (e *Error) amount(v int64) string {
	if e.Quota == Memory {
		return sizeText(v)
	}
	return fmt.Sprint(v)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func tenantText(name string) string {
	if name == "" {
		return "this host"
	}
	return fmt.Sprintf("the tenant %q", name)
}
