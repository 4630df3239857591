package api

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"github.com/custody-project/custody/replay/access"
)

// Tokens administers API tokens; *access.Tokens implements it.
type Tokens interface {
	New(ctx context.Context, name, tenant string, role access.Role, ttl time.Duration) (text string, err error)
	List() ([]access.Token, error)
	Remove(ctx context.Context, id string) (access.Token, error)
}

// TokenRequest is a token to be made, in the principal's tenant.
type TokenRequest struct {
	Name string      `json:"name"`
	Role access.Role `json:"role"`
	// TTLSeconds is its lifetime; 0: 90 days.
	TTLSeconds int64 `json:"ttl_seconds"`
}

// tokensHandler administers tokens.
type tokensHandler struct{ all Tokens } // nil: there are none

// ofTenant returns the tokens of the principal's tenant.
func (h *tokensHandler) ofTenant(r *request) ([]access.Token, error) {
	if h.all == nil {
		return nil, errNotHere("tokens of its own")
	}
	all, err := h.all.List()
	if err != nil {
		return nil, err
	}
	list := []access.Token{}
	for _, t := range all {
		if t.Tenant == r.who.Tenant {
			list = append(list, t)
		}
	}
	return list, nil
}

func (h *tokensHandler) list(w http.ResponseWriter, r *request) error {
	list, err := h.ofTenant(r)
	if err != nil {
		return err
	}
	return answer(w, struct {
		Tokens []access.Token `json:"tokens"`
	}{list})
}

func (h *tokensHandler) create(w http.ResponseWriter, r *request) error {
	if h.all == nil {
		return errNotHere("tokens of its own")
	}
	var q TokenRequest
	if err := r.body(&q); err != nil {
		return err
	}
	if q.TTLSeconds < 0 || q.TTLSeconds > int64(access.MaxTTL/time.Second) {
		return bad("give seconds, up to 366 days", "ttl_seconds is %d", q.TTLSeconds)
	}
	text, err := h.all.New(r.Context(), q.Name, r.who.Tenant, q.Role, time.Duration(q.TTLSeconds)*time.Second)
	var file *fs.PathError
	switch {
	case errors.As(err, &file):
		return err
	case err != nil:
		return bad("a token has a name that no other of the tenant has, and a role", "%v", err)
	}
	return answerWith(w, http.StatusCreated, struct {
		Token string `json:"token"` // shown once
	}{text})
}

func (h *tokensHandler) remove(w http.ResponseWriter, r *request) error {
	list, err := h.ofTenant(r)
	if err != nil {
		return err
	}
	for _, t := range list {
		if t.ID != r.PathValue("id") {
			continue
		}
		if _, err := h.all.Remove(r.Context(), t.ID); err != nil && !errors.Is(err, access.ErrNoToken) {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return access.NewProblem(http.StatusNotFound, "no-token", "there is no such token", "GET "+Base+"/tokens lists them")
}
