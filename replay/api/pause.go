package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/state"
)

// pauses serves what changes whether a sandbox has a machine.
type pauses struct{ *sandboxesHandler }

// pause pauses a sandbox, and answers when it is paused. A repetition waits for the same.
func (h pauses) pause(w http.ResponseWriter, r *request) error {
	return h.change(w, r, func(ctx context.Context, s *fleet.Sandbox) error {
		if over(s) {
			return errOver(s)
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return h.pending(ctx, r, s.Pause(ctx), "the sandbox is not paused yet", "try again: the request continues")
	})
}

// resume makes a sandbox live, and answers when it is.
func (h pauses) resume(w http.ResponseWriter, r *request) error {
	return h.changed(w, r, h.findOrAdopt, live)
}

// findOrAdopt returns the sandbox that the path names, or the one of another host whose last run it names and whose state is in the archive.
func (h pauses) findOrAdopt(r *request) (*fleet.Sandbox, error) {
	if err := h.here(r); err != nil {
		return nil, err
	}
	id := r.PathValue("run")
	s, err := h.fleet.Get(r.who.Tenant, id)
	if errors.Is(err, fleet.ErrUnknown) && h.fleet.Archives() {
		s, err = h.fleet.Adopt(r.Context(), r.who.Tenant, id)
	}
	return s, fleetProblem(err)
}

// change answers with the description of the sandbox that the path names, after do.
func (h pauses) change(w http.ResponseWriter, r *request, do func(context.Context, *fleet.Sandbox) error) error {
	return h.changed(w, r, h.find, do)
}

func (h pauses) changed(w http.ResponseWriter, r *request, find func(*request) (*fleet.Sandbox, error), do func(context.Context, *fleet.Sandbox) error) error {
	leave, err := h.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	s, err := find(r)
	if err != nil {
		return err
	}
	if err := do(r.Context(), s); err != nil {
		return err
	}
	return answer(w, sandboxOf(s, r.who.Role))
}

// pending returns the response to err, which is a temporary one if the time of waiting is over.
func (h pauses) pending(waiting context.Context, r *request, err error, detail, hint string) error {
	if err != nil && waiting.Err() != nil && r.Context().Err() == nil {
		return later(http.StatusServiceUnavailable, client.Pending, detail, hint, time.Second)
	}
	return fleetProblem(err)
}

// fork makes sandboxes that continue from the state of another one, and answers when they are live.
func (h pauses) fork(w http.ResponseWriter, r *request) error {
	s, err := h.find(r)
	if err != nil {
		return err
	}
	var q client.ForkRequest
	if err := r.body(&q); err != nil {
		return err
	}
	leave, err := h.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	var forks []*fleet.Sandbox
	hint := "try again with the same " + idempotencyKey + ": the request continues"
	if key := attempt(r); key != "" {
		forks, err = h.fleet.ForkOnce(ctx, key, s, q.Count, r.who.Name, q.Metadata)
	} else {
		hint = "none was made: try again with an " + idempotencyKey + ", with which a repeated request waits for the same sandboxes"
		forks, err = h.fleet.Fork(ctx, s, q.Count, r.who.Name, q.Metadata)
	}
	if err != nil {
		return h.pending(ctx, r, err, "the sandboxes are not live yet", hint)
	}
	list := []client.Sandbox{}
	for _, fork := range forks {
		list = append(list, sandboxOf(fork, r.who.Role))
	}
	return answerWith(w, http.StatusCreated, struct {
		Sandboxes []client.Sandbox `json:"sandboxes"`
	}{list})
}

// stateProblems are the responses to errors of stored states. An empty hint is replaced by that of the error.
var stateProblems = []struct {
	is         error
	status     int
	name, hint string
}{
	{state.ErrNotFound, http.StatusGone, "state-missing", "its records stay; create another sandbox"},
	{state.ErrExpired, http.StatusGone, "state-expired", "its records stay; create another sandbox"},
	{state.ErrClaimed, http.StatusConflict, "state-in-use", "try again when the other resume or fork has ended"},
	{state.ErrAltered, http.StatusConflict, "state-altered", "destroy the sandbox, and create another one"},
	{state.ErrNoKey, http.StatusConflict, "state-key", "have an administrator restore the host's key file for paused states, or destroy the sandbox"},
	{state.ErrBudget, http.StatusInsufficientStorage, "state-budget", "destroy paused sandboxes, or have an administrator raise paused.budget in host.yaml"},
	{state.ErrBound, http.StatusConflict, "state-bound", ""},
}

// stateProblem returns the response to an error of a stored state, nil if err is none.
func stateProblem(err error) *access.Problem {
	for _, p := range stateProblems {
		if !errors.Is(err, p.is) {
			continue
		}
		hint := p.hint
		if own := (interface{ Hint() string })(nil); hint == "" && errors.As(err, &own) {
			hint = own.Hint()
		}
		return access.NewProblem(p.status, p.name, err.Error(), hint)
	}
	return nil
}
