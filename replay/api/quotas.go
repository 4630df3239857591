package api

import (
	"net/http"
	"time"

	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/replay/access"
)

// Quotas is what is in use of quotas at one time, and the starts that wait.
type Quotas struct {
	Time    time.Time     `json:"time"`           // of the server
	Host    []QuotaUse    `json:"host,omitempty"` // only for an admin of the host's own tenant
	Tenants []TenantUse   `json:"tenants"`
	Queue   []QueuedStart `json:"queue"` // the first to arrive first, at most maxQueued
}

// TenantUse is what a tenant uses of its quotas.
type TenantUse struct {
	Tenant   string       `json:"tenant"`
	Quotas   []QuotaUse   `json:"quotas"`
	Waiting  int          `json:"waiting"`  // number of starts
	Projects []ProjectUse `json:"projects"` // those that use something
}

// ProjectUse is what a project uses of its quotas.
type ProjectUse struct {
	Project string     `json:"project"`
	Quotas  []QuotaUse `json:"quotas"`
	Waiting int        `json:"waiting"`
}

// QuotaUse is what is in use of a quota.
type QuotaUse struct {
	Quota string `json:"quota"`
	Used  *int64 `json:"used,omitempty"`  // nil for rates
	Limit *int64 `json:"limit,omitempty"` // nil: there is none
}

// QueuedStart is a start that waits.
type QueuedStart struct {
	Tenant   string     `json:"tenant"`
	Project  string     `json:"project"`
	ID       string     `json:"id,omitempty"` // of the sandbox, if it is the principal's tenant's
	Position int        `json:"position"`     // among the tenant's starts
	Queued   time.Time  `json:"queued"`       // since when it waits
	Quota    string     `json:"quota"`        // that is used up, for which it waits
	Expected *time.Time `json:"expected,omitempty"`
}

// maxQueued bounds the starts in an answer.
const maxQueued = 200

// quotas returns the numbers of the principal's tenant. Those of other tenants and of the host are for its administrators: the
// admins of its own tenant.
func (h *sandboxesHandler) quotas(w http.ResponseWriter, r *request) error {
	if err := h.here(r); err != nil {
		return err
	}
	all := r.who.Tenant == h.tenant && r.who.Role.May(access.Admin)
	s := h.fleet.Use()
	out := Quotas{Time: time.Now().UTC(), Tenants: []TenantUse{tenantUse(s.Of(r.who.Tenant))}, Queue: []QueuedStart{}}
	if all {
		out.Host = quotaUses(s.Host, quota.Limits{Sandboxes: s.Size.Sandboxes, CPUs: s.Size.CPUs, Memory: s.Size.Memory}, quota.Sandboxes, quota.CPUs, quota.Memory)
		for _, t := range s.Tenants {
			if t.Tenant != r.who.Tenant {
				out.Tenants = append(out.Tenants, tenantUse(t))
			}
		}
	}
	for _, i := range h.fleet.Waiting(maxQueued, func(tenant string) bool { return all || tenant == r.who.Tenant }) {
		s := QueuedStart{Tenant: i.Tenant, Project: i.Project, Position: i.Position, Queued: i.Waits.UTC(), Quota: string(i.Quota), Expected: optional(i.Expected)}
		if i.Tenant == r.who.Tenant {
			s.ID = i.ID
		}
		out.Queue = append(out.Queue, s)
	}
	return answer(w, out)
}

func tenantUse(t quota.TenantUse) TenantUse {
	out := TenantUse{Tenant: t.Tenant, Quotas: quotaUses(t.Use, t.Limits, quota.Quotas()...), Waiting: t.Waiting, Projects: []ProjectUse{}}
	for _, p := range t.Projects {
		out.Projects = append(out.Projects, ProjectUse{Project: p.Project, Quotas: quotaUses(p.Use, p.Limits, quota.Quotas()...), Waiting: p.Waiting})
	}
	return out
}

// quotaUses returns the use of those quotas that count something, or have a limit.
func quotaUses(u quota.Use, l quota.Limits, names ...quota.Quota) []QuotaUse {
	used, limits := u.Used(), l.Set()
	list := []QuotaUse{}
	for _, name := range names {
		q := QuotaUse{Quota: string(name)}
		if n, counts := used[name]; counts {
			q.Used = &n
		}
		if n, is := limits[name]; is {
			q.Limit = &n
		}
		if q.Used != nil || q.Limit != nil {
			list = append(list, q)
		}
	}
	return list
}
