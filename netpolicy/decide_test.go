package netpolicy

import (
	"net/netip"
	"net/url"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// policy parses rules in their normal form, in any order.
func policy(t testing.TB, rules ...string) *Policy {
	t.Helper()
	var list []Rule
	for _, s := range rules {
		r, err := ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	p, err := New(list)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var (
	tcp443 = Port{"tcp", 443}
	tcp80  = Port{"tcp", 80}
	udp53  = Port{"udp", 53}
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestDecide(t *testing.T) {
	p := policy(t,
		"github.com tcp/443",
		"*.pypi.org tcp/443",
		"*.files.pypi.org tcp/80",
		"www.pypi.org tcp/80",
		`api.anthropic.com tcp/443 http methods=["POST"] paths=["/v1/*" "/v2"]`,
		`api.anthropic.com tcp/8443 http methods=["GET"]`,
		"db.example.com tcp/5432 udp/53 direct",
		`lan.example.com tcp/443 addresses=["10.0.0.0/8"]`,
		"192.0.2.0/24 tcp/443 direct",
		"192.0.0.0/8 tcp/80 tcp/443 direct",
		"2606::/16 udp/53 direct",
		"10.1.0.0/16 tcp/22 direct",
	)
	req := func(method, path string) *Request { return &Request{method, path} }
	cases := []struct {
		q    Question
		rule string // the start of the expected rule
		why  Reason
	}{
		{Question{Name: "github.com"}, "github.com", ""},
		{Question{Name: "github.com", Port: tcp443}, "github.com", ""},
		{Question{Name: "github.com", Port: tcp443, Via: Gateway}, "github.com", ""},
		{Question{Name: "github.com", Port: tcp443, Via: Direct}, "github.com", WrongMode},
		{Question{Name: "github.com", Port: tcp80}, "github.com", WrongPort},
		{Question{Name: "github.com", Port: Port{"udp", 443}}, "github.com", WrongPort},
		{Question{Name: "github.com", Port: tcp443, Addr: addr("140.82.121.4")}, "github.com", ""},
		{Question{Name: "github.com", Port: tcp443, Addr: addr("169.254.169.254")}, "github.com", SpecialRange},
		{Question{Name: "github.com", Port: tcp443, Addr: addr("::ffff:10.0.0.1")}, "github.com", SpecialRange},
		{Question{Name: "api.github.com"}, "", NoRule},
		{Question{Name: "agithub.com"}, "", NoRule},
		{Question{Name: "github.com.evil.com"}, "", NoRule},
		{Question{Name: "GitHub.com"}, "", NoName},
		{Question{Name: "github.com."}, "", NoName},
		{Question{Name: "a b.pypi.org"}, "", NoName},
		{Question{Name: "..pypi.org"}, "", NoName},
		{Question{}, "", NoRule},
		// Only the most specific pattern decides.
		{Question{Name: "pypi.org"}, "", NoRule},
		{Question{Name: "x.pypi.org", Port: tcp443}, "*.pypi.org", ""},
		{Question{Name: "a.b.pypi.org", Port: tcp443}, "*.pypi.org", ""},
		{Question{Name: "files.pypi.org", Port: tcp443}, "*.pypi.org", ""},
		{Question{Name: "x.files.pypi.org", Port: tcp443}, "*.files.pypi.org", WrongPort},
		{Question{Name: "x.files.pypi.org", Port: tcp80}, "*.files.pypi.org", ""},
		{Question{Name: "www.pypi.org", Port: tcp443}, "www.pypi.org", WrongPort},
		// Requests.
		{Question{Name: "api.anthropic.com", Port: tcp443}, "api.anthropic.com tcp/443", ""},
		{Question{Name: "api.anthropic.com", Port: tcp443, Request: req("POST", "/v1/messages")}, "api.anthropic.com tcp/443", ""},
		{Question{Name: "api.anthropic.com", Port: tcp443, Request: req("POST", "/v2")}, "api.anthropic.com tcp/443", ""},
		{Question{Name: "api.anthropic.com", Port: tcp443, Request: req("POST", "/v2/x")}, "api.anthropic.com tcp/443", WrongPath},
		{Question{Name: "api.anthropic.com", Port: tcp443, Request: req("POST", "/v1")}, "api.anthropic.com tcp/443", WrongPath},
		{Question{Name: "api.anthropic.com", Port: tcp443, Request: req("POST", "/v1/../admin")}, "api.anthropic.com tcp/443", UnclearPath},
		{Question{Name: "api.anthropic.com", Port: tcp443, Request: req("post", "/v1/messages")}, "api.anthropic.com tcp/443", WrongMethod},
		{Question{Name: "api.anthropic.com", Port: tcp443, Request: req("GET", "/v1/messages")}, "api.anthropic.com tcp/443", WrongMethod},
		{Question{Name: "api.anthropic.com", Port: Port{"tcp", 8443}, Request: req("GET", "/any;thing/..")}, "api.anthropic.com tcp/8443", ""},
		{Question{Name: "api.anthropic.com", Port: Port{"tcp", 8443}, Request: req("POST", "/v1/x")}, "api.anthropic.com tcp/8443", WrongMethod},
		{Question{Name: "github.com", Port: tcp443, Request: req("ANY", "*")}, "github.com", ""},
		// Direct names, and names that resolve to special addresses.
		{Question{Name: "db.example.com", Port: udp53, Via: Direct}, "db.example.com", ""},
		{Question{Name: "db.example.com", Port: udp53, Via: Gateway}, "db.example.com", WrongMode},
		{Question{Name: "db.example.com", Port: udp53, Via: Direct, Addr: addr("10.0.0.1")}, "db.example.com", SpecialRange},
		{Question{Name: "lan.example.com", Port: tcp443, Addr: addr("10.0.0.1")}, "lan.example.com", ""},
		{Question{Name: "lan.example.com", Port: tcp443, Addr: addr("172.16.0.1")}, "lan.example.com", SpecialRange},
		// Addresses without a name.
		{Question{Addr: addr("192.0.2.1"), Port: tcp443}, "192.0.2.0/24", ""},
		{Question{Addr: addr("::ffff:192.0.2.1"), Port: tcp443, Via: Direct}, "192.0.2.0/24", ""},
		{Question{Addr: addr("192.0.2.1"), Port: tcp443, Via: Gateway}, "", NoRule},
		{Question{Addr: addr("192.0.2.1"), Port: tcp80}, "192.0.0.0/8", SpecialRange}, // the wide rule has the port and names no special range
		{Question{Addr: addr("192.0.2.1"), Port: udp53}, "192.0.2.0/24", WrongPort},
		{Question{Addr: addr("192.9.0.1"), Port: tcp80}, "192.0.0.0/8", ""},
		{Question{Addr: addr("192.168.0.1"), Port: tcp80}, "192.0.0.0/8", SpecialRange},
		{Question{Addr: addr("192.9.0.1")}, "192.0.0.0/8", ""},
		{Question{Addr: addr("2606::1"), Port: udp53}, "2606::/16", ""},
		{Question{Addr: addr("2606::1%eth0"), Port: udp53}, "", NoRule},
		{Question{Addr: addr("10.1.2.3"), Port: Port{"tcp", 22}}, "10.1.0.0/16", ""},
		{Question{Addr: addr("64:ff9b::10.1.2.3"), Port: Port{"tcp", 22}}, "", NoRule},
		{Question{Addr: addr("8.8.8.8"), Port: udp53}, "", NoRule},
	}
	for _, c := range cases {
		v := Decide(p, c.q)
		if v.Allow != (c.why == "") || v.Reason != c.why || (v.Rule == nil) != (c.rule == "") || v.Rule != nil && !strings.HasPrefix(v.Rule.String(), c.rule) {
			t.Errorf("%+v: %+v by %q, want %q by %q", c.q, v, v.RuleName(), c.why, c.rule)
		}
		if v.Rule == nil && v.RuleName() != Default {
			t.Errorf("%+v: no rule is named %q", c.q, v.RuleName())
		}
	}
	for _, none := range []*Policy{nil, {}, policy(t)} {
		for _, c := range cases {
			if v := Decide(none, c.q); v.Allow || v.Rule != nil {
				t.Errorf("no policy: %+v: %+v", c.q, v)
			}
		}
	}
}

// TestNeverMethods: no rule with http allows methods for tunnels and echoes.
func TestNeverMethods(t *testing.T) {
	p := policy(t, "a.com tcp/443 http")
	for _, m := range neverMethods {
		if v := Decide(p, Question{Name: "a.com", Port: tcp443, Request: &Request{m, "/"}}); v.Reason != WrongMethod {
			t.Errorf("%s: %+v", m, v)
		}
	}
}

func TestClearPath(t *testing.T) {
	clear := []string{
		"/", "/a", "/a/", "/v1/messages", "/a.b/c..d/...e/.well-known/x", "/a-b_c~d!$&'()*+,=:@|\"<>^`{}", "/a%20b", "/a%20", "/%41%7e%2a%2b%26%3d%40%3A", "/a/b.git/info",
		"/v1/caf%C3%A9.txt", "/v1/cafe%cc%81", "/%c3%a9", "/%E6%96%87%E4%BB%B6/%D1%84%D0%B0%D0%B9%D0%BB", "/%d8%a7/%e0%a4%85%e0%a4%bf", "/%F0%9F%93%84.md", "/Bob%e2%80%99s%20%e2%80%93%20x", "/%ef%bc%a1",
	}
	unclear := []string{
		"", "a", "*", "//", "//a", "/a//b", "/a//", "/.", "/..", "/a/.", "/a/..", "/a/./b", "/a/../b", "/../a", "/a/../", "/.../a", "/a/..../",
		"/%2e%2e/a", "/%2E./a", "/.%2e/a", "/a%2fb", "/a%2Fb", "/a%5cb", `/a\b`, "/%252e%252e/", "/a%25", "/a%", "/a%4", "/a%zz", "/a%u002f", "/a%c0%afb", "/%c0%ae%c0%ae/",
		"/a%ef%bc%8fb", "/%e2%80%a5/", "/café", "/a%c3", "/a%c3b", "/a%c3%", "/a%a9", "/a%c3%c3%a9", "/a%e2%80", "/a%ed%a0%80", "/a%f4%90%80%80", "/a%c3%2f%a9", "/a%c1%81", "/a%e0%80%af", "/a%f0%80%80%af",
		"/a%e2%88%95b", "/a%e2%81%84b", "/a%c2%bcb", "/a%ef%bc%bcb", "/a%e2%88%96b", "/%ef%bc%8e%ef%bc%8e/", "/%e2%80%a4%e2%80%a4/", "/a%e2%80%a6", "/a%cd%beb", "/a%ef%bc%85b", "/a%ef%bc%9fb", "/a%ef%bc%83b", "/a%e2%84%80b", "/a%e3%8f%82b", "/a%c2%a5b", "/a%e2%82%a9b",
		"/.%e2%80%8b./a", "/a%e2%80%8bb", "/a%c2%adb", "/a%ef%bb%bfb", "/a%e2%80%aeb", "/a%c2%85b", "/a%c2%a0b", "/a%e3%80%80b", "/a%ef%b8%8fb", "/a%cd%8fb", "/a%e3%85%a4b", "/a%ef%bf%bdb", "/a%cd%b8b", "/a%f3%a0%80%a0b", "/a;b", "/..;/a", "/a%3bb", "/a?b", "/a#b", "/a%3fb", "/a%23b", "/a b", "/a\tb", "/a\rb", "/a\nb", "/a%00", "/a%0a", "/a%0d%0aHost:x",
		"/a%7f", "/a\x7f", "/a\x00b", "/%20", "/..%20/a", "/.%20./a", "/a/%20./b", "http://a.com/", "/a%e3%80%82",
	}
	for _, s := range clear {
		if !ClearPath(s) {
			t.Errorf("%q is clear", s)
		}
	}
	for _, s := range unclear {
		if ClearPath(s) {
			t.Errorf("%q is not clear", s)
		}
	}
}

// FuzzClearPath: however often a server decodes a clear path, and however it cleans it, the path keeps its segments.
func FuzzClearPath(f *testing.F) {
	for _, s := range []string{"/v1/caf%c3%a9.txt", "/%e6%96%87/a", "/a%ef%bc%8fb", "/.%e2%80%8b./", "/a%cd%beb", "/", "/v1/a%20b/", "/%2e%2e/", "/..%20", "/a//b", "/%252e", `/a\..\b`, "/a;b/..", "/%c0%ae", "/..."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if !ClearPath(in) {
			return
		}
		shape := strings.Count(in, "/")
		for s, i := in, 0; i < 3; i++ {
			if strings.Count(s, "/") != shape || strings.ContainsAny(s, "\\;?#\x00") {
				t.Fatalf("%q is read as %q", in, s)
			}
			for segment := range strings.SplitSeq(strings.Trim(s, "/"), "/") {
				if s != "/" && strings.TrimRight(segment, ". ") == "" {
					t.Fatalf("%q is read as %q, with a segment %q", in, s, segment)
				}
			}
			if clean := path.Clean(s); clean != s && clean+"/" != s {
				t.Fatalf("%q is read as %q, cleaned to %q", in, s, clean)
			}
			folded := norm.NFKC.String(s)
			if strings.Count(folded, "/") != shape || strings.ContainsAny(folded, "\\;?#\x00") || strings.Count(folded, ".") != strings.Count(s, ".") {
				t.Fatalf("%q is read as %q, and folded to %q", in, s, folded)
			}
			if !utf8.ValidString(s) {
				t.Fatalf("%q is read as %q", in, s)
			}
			next, err := url.PathUnescape(s)
			if err != nil {
				t.Fatalf("%q is read as %q: %v", in, s, err)
			}
			s = next
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	p := policy(b, "*.example.com tcp/443", `api.example.com tcp/443 http methods=["POST"] paths=["/v1/*"]`)
	for name, q := range map[string]Question{
		"name":    {Name: "a.b.c.example.com"},
		"denied":  {Name: "a.b.c.example.org"},
		"address": {Name: "a.example.com", Port: tcp443, Addr: addr("2606:4700::1"), Via: Gateway},
		"request": {Name: "api.example.com", Port: tcp443, Request: &Request{"POST", "/v1/messages"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Decide(p, q)
			}
		})
	}
}
