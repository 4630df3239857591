package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// Gate guards every route: it passes a request on to next, with the principal in
// its context, or refuses it. Mount adds its own routes, for sessions. PortTicket makes links with which browsers log in
// to ports of sandboxes, and PortLogin answers them. *access.Gate is one.
type Gate interface {
	Guard(route string, rule access.Rule, next http.Handler) http.Handler
	Mount(mux *http.ServeMux)
	PortTicket(ctx context.Context, sandbox string, port int, lives func() bool) (path string, until time.Time, err error)
	PortLogin(w http.ResponseWriter, r *http.Request)
}

// errNobody means that the Gate passed a request on without a principal.
var errNobody = errors.New("the gate names no principal")

// whoIs returns the principal, which is anonymous at a public route.
func whoIs(r *http.Request, rule access.Rule) (access.Principal, error) {
	p, ok := access.From(r.Context())
	if !rule.Public && (!ok || !p.Role.May(rule.Role)) {
		return p, errNobody
	}
	return p, nil
}

// scopeOf returns the tenant in the form of a store's queries.
func scopeOf(tenant string) string {
	if tenant == "" {
		return store.NoTenant
	}
	return tenant
}
