package quota_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/quota"
)

// TestThousandQueued: with 1,000 starts queued by one tenant, each start of another tenant waits for at most one start more than
// without them. All starts have the same size, and a sandbox ends after 1 to 3 s.
func TestThousandQueued(t *testing.T) {
	const longest = 3 * time.Second
	for _, c := range []struct {
		slots, others int64 // sandboxes that the host has room for; further tenants that always have starts waiting
	}{{1, 0}, {8, 0}, {1, 3}, {4, 3}} {
		t.Run(fmt.Sprintf("%d slots, %d others", c.slots, c.others), func(t *testing.T) {
			var alone, beside []time.Duration
			synctest.Test(t, func(t *testing.T) { alone = waits(t, c.slots, c.others, 0) })
			synctest.Test(t, func(t *testing.T) { beside = waits(t, c.slots, c.others, 1000) })
			for i := range alone {
				if c.others == 0 && alone[i] != 0 {
					t.Errorf("start %d waited %v on an idle host", i, alone[i])
				}
				if most := longest * time.Duration(c.others+1); beside[i] > most {
					t.Errorf("start %d waited %v, more than %d starts take", i, beside[i], c.others+1)
				}
			}
		})
	}
}

// waits starts 60 sandboxes of the tenant calm, one after the other, while others have starts waiting and the tenant busy has as
// many as queued. It returns how long each waited.
func waits(t *testing.T, slots, others int64, queued int) (all []time.Duration) {
	r := rand.New(rand.NewPCG(1, uint64(slots)))
	q := begin(t, quota.Config{Host: quota.Host{CPUs: slots, Memory: slots * gib}, Queue: quota.Bounds{Wait: time.Hour}})
	var group sync.WaitGroup
	var grants sync.Map // of each tenant
	start := func(tenant string, life time.Duration) error {
		l, err := q.Acquire(t.Context(), quota.Request{Tenant: tenant, Project: "p", CPUs: 1, Memory: gib})
		if err != nil {
			return err
		}
		n, _ := grants.LoadOrStore(tenant, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		time.AfterFunc(life, l.Release)
		return nil
	}
	background := func(tenant string, count int) {
		for range count {
			life := time.Second + time.Duration(r.IntN(2000))*time.Millisecond
			group.Go(func() {
				if err := start(tenant, life); err != nil && !errors.Is(err, quota.ErrClosed) {
					t.Error(err)
				}
			})
		}
	}
	background("busy", queued)
	for i := range others {
		background(fmt.Sprint("other", i), 800)
	}
	synctest.Wait()
	for range 60 {
		before := counts(&grants)
		began := time.Now()
		if err := start("calm", time.Second+time.Duration(r.IntN(2000))*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		all = append(all, time.Since(began))
		synctest.Wait()
		for tenant, n := range counts(&grants) {
			// With more slots some of these starts came right after the grant, in the same moment.
			if more := n - before[tenant]; tenant != "calm" && slots == 1 && more > 1 {
				t.Errorf("%s got %d starts while another tenant waited for one", tenant, more)
			}
		}
		time.Sleep(3*time.Second + time.Duration(r.IntN(4000))*time.Millisecond) // its own sandbox has ended
	}
	q.Close()
	group.Wait()
	time.Sleep(time.Minute) // the leases end
	return all
}

func counts(grants *sync.Map) map[string]int64 {
	all := map[string]int64{}
	grants.Range(func(k, v any) bool {
		all[k.(string)] = v.(*atomic.Int64).Load()
		return true
	})
	return all
}

// TestConcurrent: many goroutines use the queue, and no limit is exceeded.
func TestConcurrent(t *testing.T) {
	q := begin(t, quota.Config{Host: quota.Host{CPUs: 16, Memory: 64 * gib}, Tenant: quota.Limits{CPUs: 6}, Project: quota.Limits{Sandboxes: 2},
		Queue: quota.Bounds{Size: 40, PerTenant: 12}})
	var host atomic.Int64
	var tenants [4]atomic.Int64
	var projects [4][3]atomic.Int64
	var group sync.WaitGroup
	var granted, full atomic.Int64
	for g := range uint64(64) {
		r := rand.New(rand.NewPCG(g, 1))
		group.Go(func() {
			for range 50 {
				tenant, project, cpus := r.IntN(4), r.IntN(3), 1+r.Int64N(3)
				l, err := q.Acquire(t.Context(), quota.Request{Tenant: fmt.Sprint(tenant), Project: fmt.Sprint(project), CPUs: cpus, Memory: gib})
				if e := new(quota.Error); errors.As(err, &e) && e.Quota == quota.Waiting {
					full.Add(1)
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				granted.Add(1)
				if host.Add(cpus) > 16 || tenants[tenant].Add(cpus) > 6 || projects[tenant][project].Add(1) > 2 {
					t.Error("a limit was exceeded")
				}
				_ = l.Charge(1)
				q.Snapshot()
				host.Add(-cpus)
				tenants[tenant].Add(-cpus)
				projects[tenant][project].Add(-1)
				l.Release()
			}
		})
	}
	group.Wait()
	if s := q.Snapshot(); s.Host.Sandboxes != 0 || s.Host.Waiting != 0 || s.Host.Tokens != granted.Load() || granted.Load()+full.Load() != 64*50 {
		t.Errorf("%+v after %d grants and %d refusals", s.Host, granted.Load(), full.Load())
	}
}
