package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// question is a query of a Large store; each i is another instance of it, possibly about another run.
type question struct {
	name string
	ask  func(ctx context.Context, s store.Store, i int) (int, error)
}

func (l Large) questions() []question {
	all := slices.Concat(l.runQuestions(), l.recordQuestions())
	for _, q := range []struct {
		name string
		q    store.Search
	}{
		{"hash, rare", store.Search{Hash: rareHash()}},
		{"hash, common", store.Search{Hash: commonHash()}},
		{"hash, none", store.Search{Hash: hashOf(1<<21, 0)}},
		{"hash, none, no limit", store.Search{Hash: hashOf(1<<21, 0), Limit: -1}},
		{"host, rare", store.Search{Host: rareHost}},
		{"host, common", store.Search{Host: commonHost}},
		{"host, one of 300", store.Search{Host: "host7.example.com"}},
		{"host, common, late page", store.Search{Host: commonHost, Before: l.late()}},
		{"host, common, tenant of one run", store.Search{Host: commonHost, Tenant: "tiny"}},
		{"host, none", store.Search{Host: "nowhere.example"}},
		{"path, rare", store.Search{Path: rarePath}},
		{"path, common", store.Search{Path: commonPath}},
		{"path, common, another kind", store.Search{Path: "/workspace/LICENSE", Kinds: []audit.Kind{audit.KindExec}}},
		{"path, common, tenant of one run", store.Search{Path: commonPath, Tenant: "tiny"}},
		{"secret, rare", store.Search{Secret: rareSecret}},
		{"secret, common", store.Search{Secret: commonSecret}},
		{"findings, newest", store.Search{From: start, Kinds: []audit.Kind{audit.KindFinding}}},
		{"findings, late page", store.Search{From: start, Kinds: []audit.Kind{audit.KindFinding}, Before: l.late()}},
		{"findings of a rule", store.Search{Rule: "flow-unclaimed"}},
		{"findings of a tenant", store.Search{From: start, Kinds: []audit.Kind{audit.KindFinding}, Tenant: "globex"}},
		{"looks of a tenant", store.Search{From: start, Kinds: []audit.Kind{audit.KindAccess}, Tenant: "initech"}},
		{"all of an hour", store.Search{From: l.begin(l.Runs() / 2), To: l.begin(l.Runs()/2 + 12)}},
		{"text, common", store.Search{Text: "PKG7"}},
		{"text, in LLM calls", store.Search{Text: "TOOL_USE", Kinds: []audit.Kind{audit.KindLLM}}},
		{"text, in one run's hour", store.Search{Text: "module_7", From: l.begin(l.Runs() / 2), To: l.begin(l.Runs()/2 + 12)}},
	} {
		for _, tenant := range []string{"", "acme"} {
			about := q.q
			name := q.name
			if tenant != "" && about.Tenant == "" {
				about.Tenant, name = tenant, name+", tenant"
			} else if tenant != "" {
				continue
			}
			if about.Limit++; about.Limit > 0 {
				about.Limit = 100
			}
			all = append(all, question{name, func(ctx context.Context, s store.Store, _ int) (int, error) { return drain(s.Search(ctx, about)) }})
		}
	}
	return all
}

// late is a position after most records.
func (l Large) late() *store.Head { return &store.Head{Time: l.begin(l.Runs() / 5)} }

func (l Large) runQuestions() []question {
	late := &store.Run{ID: l.ID(l.Runs() / 10), Start: l.begin(l.Runs() / 10)}
	var all []question
	for _, q := range []struct {
		name string
		f    store.Filter
	}{
		{"runs, first page", store.Filter{}},
		{"runs, first page, tenant, sandboxes", store.Filter{Tenant: "acme", Class: store.Sandboxes}},
		{"runs, late page, tenant, sandboxes", store.Filter{Tenant: "acme", Class: store.Sandboxes, Before: late}},
		{"runs, late page, no tenant", store.Filter{Tenant: store.NoTenant, Before: late}},
		{"runs with findings, tenant", store.Filter{Tenant: "acme", Findings: true}},
		{"runs of a project, late page", store.Filter{Tenant: "acme", Project: "project-3", Before: late}},
		{"access logs, tenant", store.Filter{Tenant: "acme", Class: store.Accesses}},
		{"runs, all", store.Filter{Limit: -1}},
	} {
		if q.f.Limit++; q.f.Limit > 0 {
			q.f.Limit = 50
		}
		all = append(all, question{q.name, func(ctx context.Context, s store.Store, _ int) (int, error) {
			runs, err := s.Runs(ctx, q.f)
			return len(runs), err
		}})
	}
	find := func(name string, about func(i int) (tenant, run string)) {
		all = append(all, question{name, func(ctx context.Context, s store.Store, i int) (int, error) {
			tenant, run := about(i)
			_, err := s.Run(ctx, tenant, run)
			if errors.Is(err, store.ErrNotFound) { // in a small store
				return 0, nil
			}
			return 1, err
		}})
	}
	find("run by name", func(i int) (string, string) { return "", l.ID(i * 37 % l.Runs()) })
	find("run by name, tenant", func(i int) (string, string) {
		i = i * 37 % l.Runs()
		tenant := l.Tenant(i)
		if tenant == "" {
			tenant = store.NoTenant
		}
		return tenant, l.ID(i)
	})
	find("run by prefix", func(i int) (string, string) { // the only access log among a hundred runs
		id := l.ID(i%max(1, l.Runs()/100)*100 + 99)
		return "", id[:len(id)-1]
	})
	find("last run, tenant", func(int) (string, string) { return "acme", store.Last })
	return all
}

func (l Large) recordQuestions() []question {
	var all []question
	for _, q := range []struct {
		name string
		q    store.Query
		any  bool
	}{
		{"records, first page", store.Query{Limit: 200}, false},
		{"records, first page, any tenant", store.Query{Limit: 200}, true},
		{"records, late page", store.Query{Limit: 200, AfterSeq: 9000}, false},
		{"records of two kinds", store.Query{Limit: 200, AfterSeq: 2000, Kinds: []audit.Kind{audit.KindDNS, audit.KindFlow}}, false},
		{"records, all 10,000", store.Query{}, false},
		{"manifests", store.Query{Limit: -1}, false},
	} {
		all = append(all, question{q.name, func(ctx context.Context, s store.Store, i int) (int, error) {
			i = i * 4 * 11 % l.Runs() / 4 * 4
			about := q.q
			if about.Run = l.ID(i); !q.any {
				if about.Tenant = l.Tenant(i); about.Tenant == "" {
					about.Tenant = store.NoTenant
				}
			}
			if about.Limit < 0 {
				chain, err := s.Manifests(ctx, about.Tenant, about.Run)
				return len(chain), err
			}
			return drain(s.Records(ctx, about))
		}})
	}
	return all
}

func drain(rows iter.Seq2[store.Row, error]) (n int, err error) {
	for _, err := range rows {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// LargeOf returns a store of the size in CUSTODY_BENCH_ROWS, or else a small one.
func LargeOf(b *testing.B) Large {
	l := Large{Records: 200000}
	if text := os.Getenv("CUSTODY_BENCH_ROWS"); text != "" {
		var err error
		if l.Records, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	return l
}

// fillBatch is the approximate number of records that are ingested in one call.
const fillBatch = 80000

// Fill ingests the missing runs, so that a store that is kept is filled once.
func (l Large) Fill(b *testing.B, s store.Store) {
	b.Helper()
	began, n := time.Now(), 0
	have := map[string]bool{}
	runs, err := s.Runs(b.Context(), store.Filter{})
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range runs {
		have[r.ID] = r.Status == store.Sealed
	}
	var batch []store.Segment
	records := 0
	for i := range l.Runs() {
		if !have[l.ID(i)] {
			batch = append(batch, l.Segments(i)...)
			records += l.size(i)
		}
		if records < fillBatch && i < l.Runs()-1 || records == 0 {
			continue
		}
		if err := s.Ingest(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
		n += records
		batch, records = nil, 0
	}
	if n > 0 {
		b.Logf("%d records of %d runs taken in, %.0f a second", n, l.Runs(), float64(n)/time.Since(began).Seconds())
	}
}

// Benchmark runs each query b.N times on a filled store, and reports the median and the
// 99th percentile of its duration.
func (l Large) Benchmark(b *testing.B, s store.Store) {
	for _, q := range l.questions() {
		b.Run(q.name, func(b *testing.B) {
			var took []time.Duration
			rows := 0
			for b.Loop() {
				began := time.Now()
				n, err := q.ask(b.Context(), s, len(took))
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
				rows = n
			}
			slices.Sort(took)
			report := func(name string, d time.Duration) { b.ReportMetric(float64(d.Microseconds())/1000, name) }
			report("p50-ms", took[len(took)/2])
			report("p99-ms", took[(len(took)*99+99)/100-1])
			b.ReportMetric(float64(rows), "rows")
			b.ReportMetric(0, "ns/op")
		})
	}
	b.Run("text, none", func(b *testing.B) { l.scan(b, s, "nowhere to be found") })
	b.Run("text, rare", func(b *testing.B) { l.scan(b, s, rareText) })
}

// scan searches for a text like the API, a second at a time, to the end.
func (l Large) scan(b *testing.B, s store.Store, text string) {
	var latest time.Duration
	found, parts := 0, 0
	for b.Loop() {
		q := store.Search{Text: text, Limit: 100}
		for found, parts = 0, 1; ; parts++ {
			began := time.Now()
			n, cut, err := second(b.Context(), s, q)
			if err != nil {
				b.Fatal(err)
			}
			latest = max(latest, time.Since(began)-time.Second)
			if found += n; cut == nil {
				break
			}
			q.Before = &cut.At
		}
	}
	b.ReportMetric(float64(found), "rows")
	b.ReportMetric(float64(parts), "parts-of-1s")
	b.ReportMetric(float64(max(0, latest).Milliseconds()), "late-ms")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/scan")
	b.ReportMetric(0, "ns/op")
}

// second searches for at most a second.
func second(ctx context.Context, s store.Store, q store.Search) (n int, cut *store.CutError, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err = drain(s.Search(ctx, q))
	if errors.As(err, &cut) {
		return n, cut, nil
	}
	if err != nil {
		err = fmt.Errorf("%+v: %w", q, err)
	}
	return n, nil, err
}
