package report

import (
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// looked is an access log in which several tenants' people looked at several runs.
func looked() Run {
	p := newTape("a-1")
	look := func(tenant, who, about string, v audit.Verdict) {
		p.add(host, audit.KindAccess, audit.Event{Access: &audit.Access{Who: who, Tenant: tenant, Action: "view", Route: "GET /api/v1/runs/{run}", About: audit.Text(about), Verdict: v}})
	}
	look("shop", "ann", "r-1", audit.Allow)
	look("bank", "secret-bob", "r-1", audit.Allow)
	look("shop", "eve\u202e", "r-1", audit.Deny)
	look("shop", "ann", "r-2", audit.Allow)
	look("bank", "secret-bob", "r-9", audit.Deny)
	return p.all()
}

func shopRun() Run {
	p := newTape("r-1")
	p.rows[0].Tenant = "shop"
	r := p.done()
	r.Run.Tenant = "shop"
	return r
}

// TestAccess: a report speaks of looks at its own tenant's runs, and of no others.
func TestAccess(t *testing.T) {
	in := input("pci", shopRun())
	in.Tenant, in.Access = "shop", []Run{looked()}
	if c := askOf(t, "access", in)[0]; c.Status != Supports || !strings.Contains(c.Text, "1 look (1 view) by 1 principal (ann)") {
		t.Errorf("by name: %+v", c)
	}
	if c := askOf(t, "access-refused", in)[0]; c.Status != Supports || !strings.Contains(c.Text, `1 attempt in 1 record (1 view) by 1 principal (eve\u{202e})`) {
		t.Errorf("refused: %+v", c)
	}
	html, json := contents(t, build(t, in))
	if strings.Contains(html+json, "secret-bob") || strings.Contains(html+json, "r-2\"") {
		t.Error("the report shows what another tenant's people did, or looks at another run")
	}
	in.From, in.To = storetest.Start(), storetest.Start().Add(time.Hour)
	if c := askOf(t, "access", in)[0]; !strings.Contains(c.Text, "2 looks") {
		t.Errorf("by time: %+v", c)
	}
	in.To = storetest.Start().Add(3 * time.Second)
	if c := askOf(t, "access", in)[0]; !strings.Contains(c.Text, "1 look ") {
		t.Errorf("by a shorter time: %+v", c)
	}
	in.Access = nil
	if c := askOf(t, "access", in)[0]; c.Status != Lacks || !strings.Contains(c.Text, "No access log") {
		t.Errorf("without a log: %+v", c)
	}
}

// TestNoTenant: what belongs to no tenant can be asked for by either name.
func TestNoTenant(t *testing.T) {
	in := input("soc2", bundled(t, "agent", nil))
	a, _ := contents(t, build(t, in))
	in.Tenant = store.NoTenant
	if b, _ := contents(t, build(t, in)); a != b {
		t.Error("the reports differ")
	}
}

// TestRefusedInput: what cannot be in one report is an error.
func TestRefusedInput(t *testing.T) {
	empty := shopRun()
	empty.Rows = nil
	for words, in := range map[string]Input{
		"no runs":                 {},
		"about one tenant":        {Runs: []Run{shopRun()}},
		"is an access log":        {Runs: []Run{looked()}},
		"is a run, not an access": {Runs: []Run{bundled(t, "agent", nil)}, Access: []Run{bundled(t, "agent", nil)}},
		"no records were given":   {Tenant: "shop", Runs: []Run{empty}},
	} {
		in.Framework = "soc2"
		if _, err := Build(t.Context(), in); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q, got %v", words, err)
		}
	}
}
