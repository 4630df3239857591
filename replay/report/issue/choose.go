package issue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/store"
)

// During returns the runs of one tenant that began in a time, to exclusive. tenant is a filter as in store.Filter; with "" the tenant is
// this host's, or the only one that has runs then. omitted describes the runs of other tenants, "" if there are none.
func (s Issuer) During(ctx context.Context, from, to time.Time, tenant string) (runs []store.Run, omitted string, err error) {
	all, err := s.Source.Runs(ctx, store.Filter{Class: store.Sandboxes, Tenant: tenant, From: from, To: to})
	if err != nil {
		return nil, "", err
	}
	if len(all) == 0 {
		return nil, "", errors.New("no run began in that time")
	}
	own := s.Host.Config().Tenant
	if !slices.ContainsFunc(all, func(r store.Run) bool { return r.Tenant == own }) {
		if omit(all[0].Tenant, all) != "" {
			return nil, "", fmt.Errorf("no run of the tenant %s began in that time: %s", store.TenantFilter(own), omit(own, all))
		}
		own = all[0].Tenant // that of all
	}
	runs = slices.DeleteFunc(slices.Clone(all), func(r store.Run) bool { return r.Tenant != own })
	if omitted = omit(own, all); omitted != "" {
		omitted = fmt.Sprintf("the report is about the tenant %s; not in it: %s", store.TenantFilter(own), omitted)
	}
	return runs, omitted, nil
}

// omit describes which of the runs belong to tenants other than the given one, and how to report on them; "" if none does.
func omit(tenant string, runs []store.Run) string {
	others := map[string][]string{}
	for _, r := range runs {
		if r.Tenant != tenant {
			others[store.TenantFilter(r.Tenant)] = append(others[store.TenantFilter(r.Tenant)], r.ID)
		}
	}
	var parts []string
	for _, other := range slices.Sorted(maps.Keys(others)) {
		parts = append(parts, fmt.Sprintf("%s of the tenant %s (--tenant '%s' reports on them)", strings.Join(others[other], ", "), other, other))
	}
	return strings.Join(parts, "; ")
}
