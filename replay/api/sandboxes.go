package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/replay/access"
)

// sandboxOf returns the description of a sandbox. A role that cannot use sandboxes does not get the session key.
func sandboxOf(s *fleet.Sandbox, role access.Role) client.Sandbox {
	i := s.Info()
	if !role.May(access.Operator) {
		i.Session = ""
	}
	out := client.Sandbox{
		ID: i.ID, Created: i.Created, Expires: i.Expires, Latest: i.Latest, State: string(i.State), Position: i.Position, Project: i.Project, Template: i.Template, Tier: i.Tier,
		Caller:  i.Caller,
		Session: i.Session, Metadata: i.Metadata, CPUs: i.CPUs, MemoryBytes: i.Memory, Running: i.Running, Error: i.Error,
	}
	out.Quota = string(i.Quota)
	out.Runs, out.Paused, out.StoredBytes, out.FilesOnly = i.Runs, optional(i.Paused), i.Stored, i.Files
	if out.Runs == nil {
		out.Runs = []string{}
	}
	out.IdleUntil, out.Queued, out.Expected = optional(i.Idle), optional(i.Waits), optional(i.Expected)
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	return out
}

// optional returns a time for JSON, nil if it is zero.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// sandboxesHandler serves live sandboxes.
type sandboxesHandler struct {
	fleet   *fleet.Fleet // nil: this server has none
	tenant  string       // of the host
	serves  func(tenant string) bool
	ended   <-chan struct{}
	records stateHandler // of the sandboxes
	waits   turnstile    // requests that wait for output, or for the end of a process
}

// maxWaits bounds the requests that wait, and maxWaitsOf those of one principal.
const maxWaits, maxWaitsOf = 4096, 512

// enter counts a request that waits.
func (h *sandboxesHandler) enter(r *request) (leave func(), err error) {
	return h.waits.enter(r.who.Tenant+"\x00"+r.who.Name, "requests that wait")
}

// idempotencyKey is the header with the key of an attempt.
const idempotencyKey = "Idempotency-Key"

// maxSeconds bounds times in requests.
const maxSeconds = int64(366 * 24 * time.Hour / time.Second)

func seconds(name string, n int64) (time.Duration, error) {
	if n < 0 || n > maxSeconds {
		return 0, bad("give whole seconds, up to 366 days", "%s is %d", name, n)
	}
	return time.Duration(n) * time.Second, nil
}

// here returns an error unless the server has sandboxes for the principal's tenant.
func (h *sandboxesHandler) here(r *request) error {
	if h.fleet == nil {
		return errNotHere("sandboxes")
	}
	if h.serves == nil || !h.serves(r.who.Tenant) {
		return access.NewProblem(http.StatusForbidden, "other-tenant", "this host runs no sandboxes of your tenant", "use a host of your tenant, or have an administrator name it under quotas.tenants in host.yaml")
	}
	return nil
}

// find returns the sandbox that the path names.
func (h *sandboxesHandler) find(r *request) (*fleet.Sandbox, error) {
	if err := h.here(r); err != nil {
		return nil, err
	}
	s, err := h.fleet.Get(r.who.Tenant, r.PathValue("run"))
	return s, fleetProblem(err)
}

// fleetProblem returns the response to an error of the fleet; others are returned as they are.
func fleetProblem(err error) error {
	var over *quota.Error
	if p := stateProblem(err); p != nil {
		return p
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &over):
		p := access.NewProblem(http.StatusTooManyRequests, "quota", over.Error(), "destroy a sandbox, or try again later")
		p.Quota, p.Position = string(over.Quota), over.Position
		if over.Retry.IsZero() {
			p.Hint = "ask for less, or have an administrator raise the quota"
		} else {
			p.After = max(time.Second, time.Until(over.Retry))
		}
		return p
	case errors.Is(err, quota.ErrClosed):
		return errEnding()
	case errors.Is(err, fleet.ErrUnknown):
		return access.NewProblem(http.StatusNotFound, "no-sandbox", err.Error(), "GET "+Base+"/sandboxes lists those that live")
	case errors.Is(err, fleet.ErrConflict):
		return access.NewProblem(http.StatusConflict, "conflict", err.Error(), "")
	case errors.Is(err, fleet.ErrInvalid):
		return bad("", "%v", err)
	case errors.Is(err, fleet.ErrEnded):
		return access.NewProblem(http.StatusGone, "ended", err.Error(), "its records are those of its runs, the first of which has its ID; create another sandbox")
	}
	return err
}

// errOver is the error of a request for a sandbox that has ended.
func errOver(s *fleet.Sandbox) error {
	return fleetProblem(&fleet.Error{Kind: fleet.ErrEnded, Text: "the sandbox " + s.ID + " has ended"})
}

func (h *sandboxesHandler) create(w http.ResponseWriter, r *request) error {
	if err := h.here(r); err != nil {
		return err
	}
	var q client.SandboxRequest
	if err := r.body(&q); err != nil {
		return err
	}
	idle, err := seconds("idle_seconds", q.IdleSeconds)
	if err != nil {
		return err
	}
	limit, err := seconds("time_seconds", q.TimeSeconds)
	if err != nil {
		return err
	}
	s, made, err := h.fleet.Create(r.Context(), fleet.Request{
		Tenant: r.who.Tenant, Caller: r.who.Name, Project: q.Project, Policy: q.Policy, Template: q.Template, Isolation: q.Isolation, Metadata: q.Metadata,
		Idle: idle, Time: limit, Session: q.Session, Lazy: q.Lazy, Idempotency: attempt(r),
	})
	if err != nil {
		return fleetProblem(err)
	}
	status := http.StatusOK
	if made {
		status = http.StatusCreated
	}
	return answerWith(w, status, sandboxOf(s, r.who.Role))
}

// attempt returns the idempotency key of a request, which is the principal's own.
func attempt(r *request) string {
	key := strings.TrimSpace(r.Header.Get(idempotencyKey))
	if key == "" {
		return ""
	}
	return r.who.Name + "\x00" + key
}

func (h *sandboxesHandler) list(w http.ResponseWriter, r *request) error {
	if err := h.here(r); err != nil {
		return err
	}
	list := []client.Sandbox{}
	for _, s := range h.fleet.List(r.who.Tenant) {
		list = append(list, sandboxOf(s, r.who.Role))
	}
	return answer(w, struct {
		Sandboxes []client.Sandbox `json:"sandboxes"`
	}{list})
}

func (h *sandboxesHandler) one(w http.ResponseWriter, r *request) error {
	s, err := h.find(r)
	if err != nil {
		return err
	}
	return answer(w, sandboxOf(s, r.who.Role))
}

func (h *sandboxesHandler) extend(w http.ResponseWriter, r *request) error {
	s, err := h.find(r)
	if err != nil {
		return err
	}
	var q client.ExtendRequest
	if err := r.body(&q); err != nil {
		return err
	}
	d, err := seconds("seconds", q.Seconds)
	if err != nil {
		return err
	}
	if _, err := s.Extend(d); err != nil {
		return fleetProblem(err)
	}
	return answer(w, sandboxOf(s, r.who.Role))
}

func (h *sandboxesHandler) destroy(w http.ResponseWriter, r *request) error {
	s, err := h.find(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := s.Destroy(ctx); err != nil {
		return later(http.StatusServiceUnavailable, "ending", "the sandbox ends, and its record is not closed yet", "try again", time.Second)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
