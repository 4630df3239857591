package dnsproxy

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

func random32(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// spread splits data into labels, as tunnels do.
func spread(s string, n int) string {
	var labels []string
	for len(s) > n {
		labels, s = append(labels, s[:n]), s[n:]
	}
	return strings.Join(append(labels, s), ".")
}

// TestWatch feeds names at an interval, and counts findings.
func TestWatch(t *testing.T) {
	allowed := policy(t, gatewayRule(t, "*.cdn.test"), gatewayRule(t, "exact.test"))
	for name, c := range map[string]struct {
		question func(i int) string
		n        int
		every    time.Duration
		want     audit.Rule // the finding; empty for none
		within   int        // the number of queries within which it must be raised
	}{
		// Tunnels and the like.
		"iodine, denied":           {func(int) string { return spread(random32(110), 57) + ".t.evil.example" }, 1, 0, audit.RuleDNSTunnel, 1},
		"dnscat2, denied":          {func(int) string { return spread(randomHex(50), 60) + ".evil.example" }, 1, 0, audit.RuleDNSTunnel, 1},
		"one key, denied":          {func(int) string { return randomHex(20) + ".evil.example" }, 1, 0, audit.RuleDNSTunnel, 1},
		"raw bytes, denied":        {func(int) string { return strings.Repeat(`\200\201\202`, 9) + ".evil.example" }, 1, 0, audit.RuleDNSTunnel, 1},
		"iodine, allowed":          {func(int) string { return spread(random32(110), 57) + ".cdn.test" }, 1, 0, audit.RuleDNSTunnel, 1},
		"one key, allowed":         {func(int) string { return randomHex(20) + ".cdn.test" }, 1, 0, audit.RuleDNSTunnel, 1},
		"16 digits at a time":      {func(int) string { return randomHex(8) + ".cdn.test" }, 200, time.Second, audit.RuleDNSTunnel, 120},
		"a byte at a time":         {func(i int) string { return fmt.Sprintf("%02x-%d.evil.example", i%256, i) }, 600, time.Second, audit.RuleDNSTunnel, 500},
		"words at a time, allowed": {func(i int) string { return fmt.Sprintf("apple-house-%d.cdn.test", i) }, 600, time.Second, audit.RuleDNSTunnel, 500},
		"many domains":             {func(i int) string { return fmt.Sprintf("www.domain%d.example", i) }, 600, time.Second, audit.RuleDNSSweep, 500},
		"many domains of co.uk":    {func(i int) string { return fmt.Sprintf("www.domain%d.co.uk", i) }, 600, time.Second, audit.RuleDNSSweep, 500},
		// Ordinary names.
		"one exact name":    {func(int) string { return "exact.test" }, 5000, time.Millisecond, "", 0},
		"googlevideo":       {func(i int) string { return fmt.Sprintf("rr%d---sn-4g5e6nz%d.cdn.test", i%20+1, i%10) }, 2000, time.Second, "", 0},
		"cloudfront":        {func(i int) string { return fmt.Sprintf("d%012xf8.cdn.test", i%50) }, 2000, time.Second, "", 0},
		"kubernetes on ELB": {func(i int) string { return "a1b2c3d4e5f6071829304a5b6c7d8e9f-1234567890.us-west-2.elb.cdn.test" }, 100, time.Second, "", 0},
		"uuid hosts":        {func(i int) string { return fmt.Sprintf("3f2504e0-4f89-41d3-9a0c-0305e82c%04x.cdn.test", i%300) }, 300, time.Second, "", 0},
		"s3 buckets": {func(i int) string {
			return fmt.Sprintf("my-company-production-artifacts-eu-central-1-%d.s3.dualstack.cdn.test", i%100)
		}, 1000, time.Second, "", 0},
		"long words": {func(int) string {
			return "internal-authentication-configuration-service.production.europe-west.cdn.test"
		}, 10, 0, "", 0},
		"azure blobs": {func(i int) string { return fmt.Sprintf("productionresultssa%d.blob.cdn.test", i%20) }, 1000, time.Second, "", 0},
		"telemetry, denied": {func(i int) string {
			return []string{"o1234567.ingest.us.sentry.io", "mobile.events.data.microsoft.com", "dc.services.visualstudio.com"}[i%3]
		}, 5000, time.Second, "", 0},
		"search list":      {func(i int) string { return fmt.Sprintf("host%d.svc.cluster.local", i%100) }, 3000, time.Second, "", 0},
		"reverse look-ups": {func(i int) string { return fmt.Sprintf("%d.1.168.192.in-addr.arpa", i%256) }, 256, time.Second, "", 0},
		"slow discovery":   {func(i int) string { return fmt.Sprintf("build-%d.cdn.test", i) }, 2000, 5 * time.Second, "", 0},
	} {
		w, now, raised := newWatch(), time.Unix(1e9, 0), 0
		for i := range c.n {
			q := c.question(i)
			v := netpolicy.Decide(allowed, netpolicy.Question{Name: q})
			if base := baseOf(q, v); base != "" {
				for _, f := range w.see(q, base, !v.Allow, now) {
					raised++
					if f.Rule != c.want || raised == 1 && i >= c.within || f.Detail == "" || len(f.Detail) > 500 {
						t.Errorf("%s: after %d questions: %+v", name, i+1, f)
					}
				}
			}
			now = now.Add(c.every)
		}
		if (raised > 0) != (c.want != "") || raised > 3 {
			t.Errorf("%s: %d findings, want %q", name, raised, c.want)
		}
	}
}

// TestWatchBounds: a tunnel raises findings ever less often, many domains raise no more than the limit, and memory does
// not grow.
func TestWatchBounds(t *testing.T) {
	w, now := newWatch(), time.Unix(1e9, 0)
	begin, raised := now, 0
	for now.Sub(begin) < 24*time.Hour {
		raised += len(w.see(random32(100)+".evil.example", "evil.example", true, now))
		now = now.Add(10 * time.Second)
	}
	if raised < 3 || raised > 8 {
		t.Errorf("%d findings about one domain in a day", raised)
	}
	raised = 0
	var last audit.Finding
	for i := range 100_000 {
		domain := fmt.Sprintf("evil%d.example", i)
		for _, f := range w.see(random32(100)+"."+domain, domain, true, now) {
			raised++
			last = f
		}
	}
	if raised != maxFindings || w.domains.Len() != maxDomains {
		t.Errorf("%d findings, %d domains", raised, w.domains.Len())
	}
	now = now.Add(window)
	if f := w.see(random32(100)+".other.example", "other.example", true, now); len(f) != 1 || !strings.Contains(f[0].Detail, "over the limit") {
		t.Errorf("%+v after %+v", f, last)
	}
}

// TestFindingRecorded sends a tunnel's queries through the server, for an allowed name and for a denied one. The finding
// is recorded before its query.
func TestFindingRecorded(t *testing.T) {
	s := newSite(t, Config{}, gatewayRule(t, "*.a.test"))
	for _, name := range []string{spread(random32(100), 50) + ".a.test", spread(random32(100), 50) + ".evil.test", strings.Repeat(`\200`, 40) + ".raw.test"} {
		s.ask(t, name, dns.TypeTXT)
		all := s.records(t)
		if f := all[len(all)-2].Finding; f == nil || f.Rule != audit.RuleDNSTunnel || all[len(all)-1].DNS == nil {
			t.Errorf("%s: %+v", name, all)
		}
		before := len(all)
		s.ask(t, name, dns.TypeTXT)
		if n := len(s.records(t)); n != before+1 {
			t.Errorf("%d records for the second query", n-before)
		}
	}
}
