package quota

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is a host with a queue and modelled VMs in simulated time. It is the clock of the queue.
type world struct {
	now    time.Time
	queue  *Queue
	events events
	number int // of events so far
	starts []*simulated
	queued []*simulated
	spent  time.Duration // in the queue, in real time
}

// simulated is a start with a VM that ends after its life.
type simulated struct {
	tenant           string
	cpus             int64
	arrives, granted time.Time
	life             time.Duration
	place            *Place
}

type event struct {
	at     time.Time
	number int
	do     func()
}

type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(e[i].at.Compare(e[j].at), cmp.Compare(e[i].number, e[j].number)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(*event)) }
func (e *events) Pop() any {
	n := len(*e) - 1
	x := (*e)[n]
	*e = (*e)[:n]
	return x
}

// Stop implements stopper.
func (e *event) Stop() bool {
	stopped := e.do != nil
	e.do = nil
	return stopped
}

// Now implements clock.
func (w *world) Now() time.Time { return w.now }

// AfterFunc implements clock.
func (w *world) AfterFunc(d time.Duration, f func()) stopper { return w.at(w.now.Add(d), f) }

func (w *world) at(t time.Time, f func()) *event {
	w.number++
	e := &event{t, w.number, f}
	heap.Push(&w.events, e)
	return e
}

const (
	simulatedStarts  = 10_000
	simulatedTenants = 500
	backlogs         = 5 // tenants that queue 1,000 starts each in the beginning
)

// populate makes the starts: half of them at the beginning by a few tenants, with sandboxes of 1 to 4 CPUs, the others in bursts
// of 1 to 10 by all other tenants during 40 minutes. A VM lives for 60 s on average.
func populate(began time.Time) (all []*simulated) {
	r := rand.New(rand.NewPCG(20, 26))
	add := func(tenant int, cpus int64, at time.Time) {
		life := time.Duration(min(600, 5+55*r.ExpFloat64()) * float64(time.Second))
		all = append(all, &simulated{tenant: name(tenant), cpus: cpus, arrives: at, life: life})
	}
	for range simulatedStarts / 2 / backlogs {
		for tenant := range backlogs {
			add(tenant, []int64{1, 1, 2, 4, 4}[tenant], began)
		}
	}
	for burst := 0; len(all) < simulatedStarts; burst++ {
		tenant, cpus := backlogs+burst%(simulatedTenants-backlogs), int64(1)<<r.IntN(3)
		at := began.Add(time.Duration(r.Int64N(int64(40 * time.Minute))))
		for range min(1+r.IntN(10), simulatedStarts-len(all)) {
			add(tenant, cpus, at)
		}
	}
	return all
}

// simulate runs all starts through a queue of a host with 512 CPUs. Without fair all have the same tenant, so that the queue is
// first in, first out.
func simulate(tb testing.TB, fair bool) *world {
	w := &world{now: time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)}
	w.starts = populate(w.now)
	q, err := New(Config{Host: Host{CPUs: 512, Memory: 2 << 40}, Queue: Bounds{Size: simulatedStarts, PerTenant: simulatedStarts, Wait: 24 * time.Hour}})
	if err != nil {
		tb.Fatal(err)
	}
	q.clock, w.queue = w, q
	defer q.Close()
	for _, s := range w.starts {
		w.at(s.arrives, func() { w.enter(tb, s, fair) })
	}
	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(*event)
		if do := e.do; do != nil {
			w.now, e.do = e.at, nil
			began := time.Now()
			do()
			w.spent += time.Since(began)
			w.observe(tb)
		}
	}
	return w
}

func (w *world) enter(tb testing.TB, s *simulated, fair bool) {
	r := Request{CPUs: s.cpus, Memory: s.cpus << 30}
	if fair {
		r.Tenant = s.tenant
	}
	var err error
	if s.place, err = w.queue.Enter(tb.Context(), r); err != nil {
		tb.Fatal(err)
	}
	w.queued = append(w.queued, s)
}

// observe starts the VMs of the starts that were granted.
func (w *world) observe(tb testing.TB) {
	if len(w.queued) == w.queue.waiting {
		return
	}
	w.queued = slices.DeleteFunc(w.queued, func(s *simulated) bool {
		if s.place.state == waiting {
			return false
		}
		l, err := s.place.Wait(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		s.granted = w.now
		w.at(w.now.Add(s.life), l.Release)
		return true
	})
}

// wait returns percentiles of the waiting times of some tenants' starts.
func (w *world) wait(of func(tenant string) bool) (p50, p99 time.Duration) {
	var all []time.Duration
	for _, s := range w.starts {
		if of(s.tenant) {
			all = append(all, s.granted.Sub(s.arrives))
		}
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

// worst returns the highest of the p50 and of the p99 of the tenants without a backlog.
func (w *world) worst() (p50, p99 time.Duration) {
	for i := range simulatedTenants - backlogs {
		a, b := w.wait(func(tenant string) bool { return tenant == name(backlogs+i) })
		p50, p99 = max(p50, a), max(p99, b)
	}
	return p50, p99
}

// fairness returns Jain's index of the CPUs that were given to the tenants with a backlog, while all of them had starts waiting.
func (w *world) fairness() float64 {
	last := map[string]time.Time{}
	for _, s := range w.starts {
		if hasBacklog(s.tenant) {
			last[s.tenant] = later(last[s.tenant], s.granted)
		}
	}
	first := slices.MinFunc(slices.Collect(maps.Values(last)), time.Time.Compare)
	given := map[string]float64{}
	for _, s := range w.starts {
		if hasBacklog(s.tenant) && s.granted.Before(first) {
			given[s.tenant] += float64(s.cpus)
		}
	}
	return jain(slices.Collect(maps.Values(given)))
}

// speed returns Jain's index, over all tenants, of the time that their VMs ran, divided by that from the arrival to the end.
func (w *world) speed() float64 {
	ran, took := map[string]float64{}, map[string]float64{}
	for _, s := range w.starts {
		ran[s.tenant] += s.life.Seconds()
		took[s.tenant] += (s.granted.Sub(s.arrives) + s.life).Seconds()
	}
	var all []float64
	for tenant := range ran {
		all = append(all, ran[tenant]/took[tenant])
	}
	return jain(all)
}

func jain(all []float64) float64 {
	var sum, squares float64
	for _, x := range all {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(all)) * squares)
}

func hasBacklog(tenant string) bool { return tenant < name(backlogs) }

func name(tenant int) string { return fmt.Sprintf("tenant%03d", tenant) }

// BenchmarkSimulation measures how long starts wait on a busy host, in simulated time, and how long the queue takes for each. fifo is the
// same queue with all starts in one tenant.
func BenchmarkSimulation(b *testing.B) {
	for _, kind := range []string{"fair", "fifo"} {
		b.Run(kind, func(b *testing.B) {
			var w *world
			var spent time.Duration
			for b.Loop() {
				w = simulate(b, kind == "fair")
				spent += w.spent
			}
			p50, p99 := w.wait(func(tenant string) bool { return !hasBacklog(tenant) })
			b.ReportMetric(p50.Seconds(), "p50-s")
			b.ReportMetric(p99.Seconds(), "p99-s")
			p50, p99 = w.worst()
			b.ReportMetric(p50.Seconds(), "worst-p50-s")
			b.ReportMetric(p99.Seconds(), "worst-p99-s")
			p50, p99 = w.wait(hasBacklog)
			b.ReportMetric(p50.Seconds(), "backlog-p50-s")
			b.ReportMetric(p99.Seconds(), "backlog-p99-s")
			b.ReportMetric(w.fairness(), "jain-backlog")
			b.ReportMetric(w.speed(), "jain-speed")
			b.ReportMetric(float64(spent.Microseconds())/float64(b.N)/simulatedStarts, "µs/start")
		})
	}
}

// TestSimulation: the tenants with a backlog get the same share of the host within 1 %, and the others wait less than in a FIFO.
func TestSimulation(t *testing.T) {
	fair, fifo := simulate(t, true), simulate(t, false)
	_, wait := fair.wait(func(tenant string) bool { return !hasBacklog(tenant) })
	_, before := fifo.wait(func(tenant string) bool { return !hasBacklog(tenant) })
	if index := fair.fairness(); index < 0.99 || fifo.fairness() > index || fair.speed() < fifo.speed() || wait > before/10 {
		t.Errorf("fairness %.4f and %.4f, speed %.3f and %.3f, p99 %v and %v", index, fifo.fairness(), fair.speed(), fifo.speed(), wait, before)
	}
	if use := fair.queue.use; use.sandboxes != 0 || use.cpus != 0 || use.memory != 0 {
		t.Errorf("in use at the end: %+v", use)
	}
}
