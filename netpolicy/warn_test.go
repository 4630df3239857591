package netpolicy

import (
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	cases := []struct {
		rules []string
		want  []string // one for each warning, in order
	}{
		{[]string{"github.com tcp/443", "*.files.example.com tcp/443", `api.example.com tcp/443 http methods=["POST"] credential=key`}, nil},
		{[]string{"*.github.io tcp/443"}, []string{"anyone can have a host below github.io"}},
		{[]string{"*.co.uk tcp/443"}, []string{"anyone can have a host below co.uk"}},
		{[]string{"*.s3.amazonaws.com tcp/443"}, []string{"anyone can have a host below s3.amazonaws.com"}},
		{[]string{"*.bucket.s3.amazonaws.com tcp/443"}, []string{"every host below bucket.s3"}},
		{[]string{"*.x.bucket.s3.amazonaws.com tcp/443"}, nil},
		{[]string{"*.amazonaws.com tcp/443"}, []string{"customers of amazonaws.com"}},
		{[]string{"*.us-east-1.amazonaws.com tcp/443"}, []string{"anyone can have a host"}},
		{[]string{"*.eu.azure.com tcp/443"}, []string{"customers of eu.azure.com"}},
		{[]string{"*.pypi.org tcp/443"}, []string{"every host below pypi.org"}},
		{[]string{"*.example.co.uk tcp/443"}, []string{"every host below example.co.uk"}},
		{[]string{`*.a.example.com tcp/443 http methods=["GET"] credential=key`}, []string{"the credential key is sent to any host"}},
		{[]string{`a.example.com tcp/80 http methods=["GET"] credential=key`}, []string{"without TLS"}},
		{[]string{"a.example.com tcp/443 http"}, []string{"and all allowed"}},
		{[]string{"db.example.com tcp/5432 direct"}, []string{"it is not checked that a direct stream"}},
		{[]string{"ns.example.com udp/53 direct"}, []string{"it is not checked", "can resolve any name"}},
		{[]string{"ns.example.com tcp/853"}, []string{"DNS over TLS"}},
		{[]string{"dns.google tcp/443"}, []string{"DNS over HTTPS"}},
		{[]string{"mozilla.cloudflare-dns.com tcp/443"}, []string{"DNS over HTTPS"}},
		{[]string{"8.8.8.8/32 tcp/443 direct"}, []string{"no name is checked for 8.8.8.8/32"}},
		{[]string{"8.0.0.0/8 tcp/443 direct"}, []string{"8.0.0.0/8 is a wide range"}},
		{[]string{"0.0.0.0/0 tcp/443 direct"}, []string{"0.0.0.0/0 is a wide range"}},
		{[]string{"2606::/16 tcp/443 direct"}, []string{"2606::/16 is a wide range"}},
		{[]string{"10.1.2.0/24 tcp/443 direct"}, []string{"no name", "10.1.2.0/24 is not part of"}},
		{[]string{"169.254.169.254/32 tcp/80 direct"}, []string{"no name", "metadata service, which has credentials"}},
		{[]string{`a.example.com tcp/443 addresses=["10.0.0.0/8"]`}, []string{"10.0.0.0/8 is not part of"}},
		{[]string{`a.example.com tcp/443 addresses=["100.64.0.0/10"]`}, []string{"metadata service, which has credentials"}},
		{[]string{`a.example.com tcp/443 addresses=["fc00::/7"]`}, []string{"metadata service, which has credentials"}},
		{[]string{`a.example.com tcp/443 addresses=["127.0.0.1/32"]`}, []string{"the host that custody runs on"}},
		{[]string{`a.example.com tcp/443 addresses=["0.0.0.0/0"]`}, []string{"contains no range with a special purpose"}},
		{[]string{`a.example.com tcp/443 addresses=["8.8.8.8/32"]`}, []string{"contains no range with a special purpose"}},
		{[]string{`api.example.com tcp/443 http methods=["GET"]`, "*.b.example.com tcp/443 direct"}, []string{"it is not checked"}},
		{[]string{`api.b.example.com tcp/443 http methods=["GET"]`, "*.b.example.com tcp/443 direct"}, []string{"it is not checked", "bypasses the http rule for api.b.example.com"}},
		{[]string{`api.example.com tcp/443 http methods=["GET"]`, "8.8.8.0/24 tcp/443 direct"}, []string{"no name", "bypasses the http rule"}},
		{[]string{`api.example.com tcp/443 http methods=["GET"]`, "8.8.8.0/24 tcp/22 direct"}, []string{"no name"}},
	}
	for _, c := range cases {
		got := Warnings(policy(t, c.rules...))
		for i, w := range got {
			if i >= len(c.want) || !strings.Contains(w.Message, c.want[i]) || w.Hint == "" || w.Rule == nil {
				t.Errorf("%q: warning %d: %s; %s", c.rules, i, w.Message, w.Hint)
			}
		}
		if len(got) < len(c.want) {
			t.Errorf("%q: %d warnings, not %q", c.rules, len(got), c.want)
		}
	}
	if w := Warnings(nil); w != nil {
		t.Errorf("no policy: %v", w)
	}
}
