package api

import (
	"context"
	"net/http"

	"github.com/custody-project/custody/audit/store"
)

// Gate stands before every route: it lets a request through to next, with the principal in
// its context, or answers it. *access.Gate is one.
type Gate interface {
	Guard(route string, rule Rule, next http.Handler) http.Handler
}

type Role string

const (
	Viewer   Role = "viewer"
	Auditor  Role = "auditor"
	Operator Role = "operator"
	Admin    Role = "admin"
)

type Rule struct {
	Role   Role
	Action string
	Public bool
}

// principal is who asks.
type principal struct {
	Name, Tenant string
	Role         Role
}

// scope is how a store's queries name the tenant.
func (p principal) scope() string {
	if p.Tenant == "" {
		return store.NoTenant
	}
	return p.Tenant
}

type devKey struct{}

func With(ctx context.Context, name, tenant string) context.Context {
	return context.WithValue(ctx, devKey{}, principal{name, tenant, Admin})
}

func whoIs(r *http.Request, rule Rule) (principal, error) {
	p, ok := r.Context().Value(devKey{}).(principal)
	if !ok && !rule.Public {
		return p, problem(http.StatusInternalServerError, "nobody is known to ask", "")
	}
	return p, nil
}
