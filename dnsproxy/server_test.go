package dnsproxy

import (
	"testing"

	"github.com/miekg/dns"
)

func TestSmoke(t *testing.T) {
	z := newZone(t, records(t, map[string][]string{
		"db.direct.test. A": {"db.direct.test. 0 IN CNAME x.test.", "x.test. 5 IN A 93.184.216.34", "x.test. 5 IN A 10.0.0.1"},
	}))
	s := newSite(t, Config{Upstream: z.client(t)}, gatewayRule(t, "api.test"), directRule(t, "*.direct.test"))
	for _, n := range []string{"udp", "tcp"} {
		t.Log(s.askOver(t, n, "api.test", dns.TypeA))
		t.Log(s.askOver(t, n, "evil.test", dns.TypeA))
		t.Log(s.askOver(t, n, "db.direct.test", dns.TypeA))
	}
	for _, r := range s.records(t) {
		t.Logf("%+v", *r.DNS)
	}
	t.Log(s.names.all())
}
