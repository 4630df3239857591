package fleet

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/custody-project/custody/quota"
)

// Meter counts what happens to the sandboxes of a Fleet. It is safe for concurrent use.
type Meter interface {
	Wait(took time.Duration) // a start has got its turn
	Refuse(quota string)     // a start was refused because of a quota
	Save(d time.Duration)    // a promised sandbox had no VM for so long
}

type noMeter struct{}

func (noMeter) Wait(time.Duration) {}
func (noMeter) Refuse(string)      {}
func (noMeter) Save(time.Duration) {}

// TenantStats is what a tenant has and uses.
type TenantStats struct {
	Tenant string
	States map[State]int // number of sandboxes
	Use    quota.Use
	Limits quota.Limits
}

// Stats returns what each tenant has and uses, by name. Tenants that have and use nothing are not there.
func (f *Fleet) Stats() []TenantStats {
	if f == nil {
		return nil // it is about to be opened
	}
	all := map[string]*TenantStats{}
	of := func(tenant string) *TenantStats {
		if all[tenant] == nil {
			all[tenant] = &TenantStats{Tenant: tenant, States: map[State]int{}}
		}
		return all[tenant]
	}
	f.mu.Lock()
	for _, s := range f.sandboxes {
		s.mu.Lock()
		of(s.request.Tenant).States[s.state]++
		s.mu.Unlock()
	}
	f.mu.Unlock()
	for _, t := range f.config.Queue.Snapshot().Tenants {
		of(t.Tenant).Use, of(t.Tenant).Limits = t.Use, t.Limits
	}
	var list []TenantStats
	for _, t := range all {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b TenantStats) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return list
}

// refused counts a start that was refused because of a quota.
func (f *Fleet) refused(err error) {
	if over := new(quota.Error); errors.As(err, &over) {
		f.config.Meter.Refuse(string(over.Quota))
	}
}
