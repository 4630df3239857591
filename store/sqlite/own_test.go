package sqlite

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// TestSmallTenant searches for a tenant that has few records among many of another: all
// results are those of the oracle.
func TestSmallTenant(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	s, o := newStore(t), &storetest.Oracle{}
	for _, segs := range [][]store.Segment{
		mixed(random, "large", "r-large", 9000), mixed(random, "large", "r-later", 1500),
		mixed(random, "small", "r-small", 120), mixed(random, "small", "a-small", 90), mixed(random, "", "r-none", 60),
	} {
		storetest.Ingest(t, s, segs)
		storetest.Ingest(t, o, segs)
	}
	for _, st := range []store.Store{s, o} {
		if err := st.Erase(t.Context(), "small", "r-small", 40); err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	for i := range 300 {
		if i%50 == 0 { // altered summaries
			if _, err := s.db.Exec("UPDATE runs SET events = ? WHERE tenant <> ''", []any{120, math.MaxInt64, math.MinInt64, -1, "many", 0}[i/50]); err != nil {
				t.Fatal(err)
			}
		}
		q := randomSearch(random)
		want, got := storetest.Collect(t, o.Search(t.Context(), q)), storetest.Collect(t, s.Search(t.Context(), q))
		if len(want) != len(got) {
			t.Fatalf("%+v: %d rows, want %d", q, len(got), len(want))
		}
		for i := range want {
			if !reflect.DeepEqual(got[i].Frame(), want[i].Frame()) || got[i].Run != want[i].Run || got[i].Tenant != want[i].Tenant || !got[i].SameColumns(want[i].Head) {
				t.Fatalf("%+v: row %d is %s %d, want %s %d", q, i, got[i].Run, got[i].Seq, want[i].Run, want[i].Seq)
			}
		}
		found += len(got)
	}
	if found == 0 {
		t.Error("nothing was found at all")
	}
}

// mixed is a run of n records within the same hour as all others, in any order of time.
func mixed(random *rand.Rand, tenant, run string, n int) []store.Segment {
	events := make([]audit.Event, n)
	for i := range events {
		at := storetest.Start().Add(time.Duration(random.IntN(3600)) * time.Second)
		host := audit.Text(fmt.Sprintf("host%d", random.IntN(2)))
		events[i] = audit.Event{Time: at, Observer: audit.Host, Kind: audit.KindDNS, DNS: &audit.DNS{Name: host}}
		switch random.IntN(4) {
		case 0:
			events[i].Kind, events[i].DNS, events[i].HTTP = audit.KindHTTP, nil, &audit.HTTP{Host: host, Credential: "token"}
		case 1:
			events[i].Kind, events[i].DNS, events[i].LLM = audit.KindLLM, nil, &audit.LLM{Host: host}
		}
	}
	segs := storetest.Segments(run, storetest.Frames(run, events), 500)
	for i := range segs {
		segs[i].Tenant, segs[i].Host = tenant, "h"
	}
	return segs
}

func randomSearch(random *rand.Rand) store.Search {
	at := func() time.Time { return storetest.Start().Add(time.Duration(random.IntN(3600)) * time.Second) }
	q := store.Search{Tenant: []string{"small", "small", "large", store.NoTenant, "nobody"}[random.IntN(5)]}
	switch random.IntN(4) {
	case 0:
		q.Secret = "token"
	case 1:
		q.From, q.Kinds = storetest.Start(), []audit.Kind{audit.KindLLM}
	case 2:
		q.From = storetest.Start()
	default:
		q.Host = fmt.Sprintf("host%d", random.IntN(2))
	}
	if random.IntN(3) == 0 {
		q.From = at()
	}
	if random.IntN(3) == 0 {
		q.To = at()
	}
	if random.IntN(3) == 0 {
		q.Before = &store.Head{Time: at(), Run: "r-small", Seq: uint64(random.IntN(120))}
	}
	if random.IntN(4) == 0 {
		q.Kinds = []audit.Kind{audit.KindHTTP, audit.KindLLM}
	}
	q.Limit = []int{0, 1, 7, 100}[random.IntN(4)]
	return q
}

// TestSmallTenantPlan checks that a small tenant's records are read by its runs.
func TestSmallTenantPlan(t *testing.T) {
	q := store.Search{Tenant: "small", Host: "a", From: time.Unix(1e9, 0), Limit: 10}
	s := newStore(t)
	storetest.Ingest(t, s, mixed(rand.New(rand.NewPCG(1, 1)), "small", "r-1", 20))
	w := walk{store: s, ctx: t.Context(), q: q, way: wayOf(q), at: newest}
	got := plan(t, s, w.own(w.rest()))
	if !strings.Contains(got, "runs_by_tenant (tenant=?") || !strings.Contains(got, "SEARCH records USING PRIMARY KEY (run=?)") || strings.Contains(got, "SCAN") {
		t.Error(got)
	}
	for _, tc := range []struct {
		q    store.Search
		none bool
		own  bool
	}{{q, false, true}, {store.Search{Host: "a"}, false, false}, {store.Search{Tenant: "other"}, true, false}, {store.Search{Tenant: "small", Text: "a"}, false, false}} {
		w.q = tc.q
		none, own, err := w.tenant()
		if err != nil || none != tc.none || !none && (own == 20) != tc.own {
			t.Errorf("%+v: %v, %d, %v", tc.q, none, own, err)
		}
	}
}
