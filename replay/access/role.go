package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/store"
)

// Role is a set of permissions. Each role includes the previous ones.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // look at runs and search them
	Auditor  Role = "auditor"  // proofs, bundles, exports, reports, notes, and accesses
	Operator Role = "operator" // run the host
	Admin    Role = "admin"    // tokens
)

// Roles are all of them, each above those before it.
func Roles() []Role { return []Role{Viewer, Auditor, Operator, Admin} }

// May reports whether r includes need. An unknown role has no permissions and is never sufficient.
func (r Role) May(need Role) bool {
	have, want := slices.Index(Roles(), r), slices.Index(Roles(), need)
	return want >= 0 && have >= want
}

func (r Role) valid() bool { return slices.Contains(Roles(), r) }

// Grant is a role in a tenant. Tenant "" is what belongs to no tenant.
type Grant struct {
	Tenant string `json:"tenant" yaml:"tenant"`
	Role   Role   `json:"role" yaml:"role"`
}

func (g Grant) check() error {
	if !validTenant(g.Tenant) {
		return fmt.Errorf("tenant %q: want at most %d letters, digits, '-', '_' or '.'", g.Tenant, store.MaxName)
	}
	if !g.Role.valid() {
		return fmt.Errorf("role %q: want viewer, auditor, operator or admin", g.Role)
	}
	return nil
}

// validTenant reports whether a tenant can have this name; "" is none.
func validTenant(s string) bool {
	return len(s) <= store.MaxName && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.", r)
	})
}

// merge returns one grant for each tenant, with the highest role, ordered by tenant.
func merge(grants []Grant) []Grant {
	best := map[string]Role{}
	for _, g := range grants {
		if have, ok := best[g.Tenant]; !ok || g.Role.May(have) {
			best[g.Tenant] = g.Role
		}
	}
	out := []Grant{}
	for t, r := range best {
		out = append(out, Grant{t, r})
	}
	slices.SortFunc(out, func(a, b Grant) int { return strings.Compare(a.Tenant, b.Tenant) })
	return out
}

// Principal is the authenticated user or program of a request.
type Principal struct {
	Name    string    `json:"name"`
	Via     string    `json:"via"`    // token, oidc or once
	Tenant  string    `json:"tenant"` // of this request; "" is what belongs to none
	Role    Role      `json:"role"`   // in Tenant
	Grants  []Grant   `json:"grants"`
	Expires time.Time `json:"expires,omitzero"` // of the credential
}

// How a Principal was authenticated. A session has the method of its login.
const (
	ViaToken = "token"
	ViaOIDC  = "oidc"
	ViaOnce  = "once"
)

// Scope is p's tenant as the store's queries take it. It is never empty, which would mean any.
func (p Principal) Scope() string {
	if p.Tenant == "" {
		return store.NoTenant
	}
	return p.Tenant
}

// in returns p with its role in a tenant, false if it has no grant.
func (p Principal) in(tenant string) (Principal, bool) {
	for _, g := range p.Grants {
		if g.Tenant == tenant {
			p.Tenant, p.Role = g.Tenant, g.Role
			return p, true
		}
	}
	return p, false
}

// From returns the principal of the request. It is there behind every route that is not public. It must come from the
// request's context, which Guard made: no other context has one.
func From(ctx context.Context) (Principal, bool) {
	c, ok := ctx.Value(credentialKey{}).(credential)
	return c.principal, ok
}
