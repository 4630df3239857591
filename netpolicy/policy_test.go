package netpolicy

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

func pattern(t testing.TB, s string) Pattern {
	t.Helper()
	p, err := ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNewRefuses(t *testing.T) {
	a, lan := pattern(t, "a.com"), pattern(t, "10.0.0.0/8")
	udp := []Port{udp53}
	http := &HTTP{}
	cases := []struct {
		what  string
		rules []Rule
		want  string // "" for none
	}{
		{"defaults", []Rule{{Pattern: a}}, ""},
		{"nothing", []Rule{{}}, "allows nothing"},
		{"mode", []Rule{{Pattern: a, Mode: "both"}}, `"both" is not a mode`},
		{"proto", []Rule{{Pattern: a, Ports: []Port{{"sctp", 1}}}}, `"sctp/1" is not a port`},
		{"port", []Rule{{Pattern: a, Ports: []Port{{"tcp", 0}}}}, "is not a port"},
		{"range with host bits", []Rule{{Pattern: a, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}}}, "not a range"},
		{"zero range", []Rule{{Pattern: a, Addresses: []netip.Prefix{{}}}}, "not a range"},
		{"mapped range", []Rule{{Pattern: a, Addresses: []netip.Prefix{netip.MustParsePrefix("::ffff:0:0/96")}}}, "not a range"},
		{"method", []Rule{{Pattern: a, HTTP: &HTTP{Methods: []string{"get"}}}}, "capitals"},
		{"tunnel", []Rule{{Pattern: a, HTTP: &HTTP{Methods: []string{"CONNECT"}}}}, "cannot let it through"},
		{"echo", []Rule{{Pattern: a, HTTP: &HTTP{Methods: []string{"TRACE"}}}}, "cannot let it through"},
		{"path", []Rule{{Pattern: a, HTTP: &HTTP{Paths: []string{"v1"}}}}, "slash"},
		{"path with query", []Rule{{Pattern: a, HTTP: &HTTP{Paths: []string{"/a?b"}}}}, "different ways"},
		{"star within", []Rule{{Pattern: a, HTTP: &HTTP{Paths: []string{"/a*b"}}}}, "must be at its end"},
		{"two stars", []Rule{{Pattern: a, HTTP: &HTTP{Paths: []string{"/a**"}}}}, "must be at its end"},
		{"only a star", []Rule{{Pattern: a, HTTP: &HTTP{Paths: []string{"*"}}}}, "slash"},
		{"long path", []Rule{{Pattern: a, HTTP: &HTTP{Paths: []string{"/" + strings.Repeat("a", maxPath)}}}}, "too long"},
		{"credential's name", []Rule{{Pattern: a, HTTP: http, Credential: "a b"}}, "not the name of a credential"},
		{"credential without http", []Rule{{Pattern: a, Credential: "a"}}, "only to requests"},
		{"range through the gateway", []Rule{{Pattern: lan}}, "no name that a gateway"},
		{"range with addresses", []Rule{{Pattern: lan, Mode: Direct, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}, "itself names them"},
		{"direct http", []Rule{{Pattern: a, Mode: Direct, HTTP: http}}, "is not inspected"},
		{"direct credential", []Rule{{Pattern: a, Mode: Direct, Credential: "a"}}, "is not inspected"},
		{"udp through the gateway", []Rule{{Pattern: a, Ports: udp}}, "TCP only"},
		{"the resolver's port", []Rule{{Pattern: a, Ports: []Port{{"tcp", 53}}}}, "resolver"},
		{"the resolver's port directly", []Rule{{Pattern: a, Mode: Direct, Ports: []Port{{"tcp", 53}}}}, ""},
		{"our link", []Rule{{Pattern: pattern(t, "198.18.0.1"), Mode: Direct}}, "uses these addresses itself"},
		{"our addresses", []Rule{{Pattern: pattern(t, "198.18.0.0/16"), Mode: Direct}}, "uses these addresses itself"},
		{"our link's v6", []Rule{{Pattern: a, Mode: Direct, Addresses: []netip.Prefix{Link6}}}, "uses these addresses itself"},
		{"around our addresses", []Rule{{Pattern: pattern(t, "198.18.0.0/15"), Mode: Direct}}, ""},
		{"a host network of ours", []Rule{{Pattern: a, Addresses: []netip.Prefix{Synthetic}}}, ""}, // the gateway dials from outside
		{"two modes", []Rule{{Pattern: a, Mode: Direct, Line: 7}, {Pattern: a, Ports: []Port{tcp80}, Line: 3}}, "a.com is allowed both through the gateway (line 3) and directly (line 7); "},
		{"two modes of two patterns", []Rule{{Pattern: a, Mode: Direct}, {Pattern: pattern(t, "*.a.com")}}, ""},
		{"http and not", []Rule{{Pattern: a, HTTP: http, Line: 1}, {Pattern: a, Line: 2}}, "with http (line 1) and without (line 2)"},
		{"http on another port", []Rule{{Pattern: a, HTTP: http}, {Pattern: a, Ports: []Port{tcp80}}}, ""},
		{"http twice", []Rule{{Pattern: a, HTTP: &HTTP{Methods: []string{"GET"}}}, {Pattern: a, HTTP: http}}, ""},
		{"credentials", []Rule{{Pattern: a, HTTP: http, Credential: "x"}, {Pattern: a, HTTP: http}}, `and "x" on the same port`},
		{"the third", []Rule{{Pattern: a, HTTP: http}, {Pattern: a, HTTP: &HTTP{Paths: []string{"/"}}}, {Pattern: a}}, "and without"},
		{"wildcards too", []Rule{{Pattern: pattern(t, "*.a.com"), Mode: Direct}, {Pattern: pattern(t, "*.A.com.")}}, "both through"},
	}
	for _, c := range cases {
		for range 2 {
			_, err := New(c.rules)
			if e := new(RuleError); c.want == "" && err != nil || c.want != "" && (!errors.As(err, &e) || !strings.Contains(err.Error(), c.want) || e.Hint == "") {
				t.Errorf("%s: %v, want %q", c.what, err, c.want)
			}
			slices.Reverse(c.rules) // the order in a file has no meaning
		}
	}
}

func TestNormalForm(t *testing.T) {
	lan := []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	rules := []Rule{
		{Pattern: pattern(t, "*.B.com"), Ports: []Port{{"tcp", 8443}, tcp443, tcp443}, Addresses: lan},
		{Pattern: pattern(t, "a.com")},
		{Pattern: pattern(t, "a.com"), Mode: Gateway, Ports: []Port{tcp443}, Line: 9, Column: 9},
		{Pattern: pattern(t, "10.0.0.0/8"), Mode: Direct, Ports: []Port{udp53}},
		{
			Pattern: pattern(t, "c.com"), Credential: "key-1",
			HTTP: &HTTP{Methods: []string{"POST", "GET", "POST"}, Paths: []string{"/v1/*", `/"a" b`[:4], "/"}},
		},
		{Pattern: pattern(t, "d.com"), HTTP: &HTTP{}},
	}
	const want = `*.b.com tcp/443 tcp/8443 addresses=["10.0.0.0/8" "192.168.0.0/16"]
10.0.0.0/8 udp/53 direct
a.com tcp/443
c.com tcp/443 http methods=["GET" "POST"] paths=["/" "/\"a\"" "/v1/*"] credential=key-1
d.com tcp/443 http
`
	before := rules[0].String()
	var digest string
	for i := range 50 {
		p, err := New(rules)
		if err != nil {
			t.Fatal(err)
		}
		if p.String() != want {
			t.Fatalf("order %d: got\n%swant\n%s", i, p, want)
		}
		if digest == "" {
			digest = p.Digest()
		}
		if p.Digest() != digest {
			t.Fatalf("order %d: another digest", i)
		}
		rand.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
	}
	if i := slices.IndexFunc(rules, func(r Rule) bool { return len(r.Addresses) > 0 }); rules[i].String() != before {
		t.Errorf("New changed the caller's rule to %s", rules[i].String())
	}
	p, err := Parse(want)
	if err != nil || p.Digest() != digest {
		t.Errorf("%v, %v", p, err)
	}
	for i := range rules {
		more, err := New(slices.Delete(slices.Clone(rules), i, i+1))
		if err != nil {
			t.Fatal(err)
		}
		if same := rules[i].Pattern.String() == "a.com"; (more.Digest() == digest) != same {
			t.Errorf("without %s: digest the same: %v", rules[i].String(), !same)
		}
	}
}

func TestDigestOfNothing(t *testing.T) {
	const empty = "sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for _, p := range []*Policy{nil, {}, policy(t)} {
		if p.Digest() != empty || p.String() != "" || len(p.Rules()) != 0 || p.TCPPorts() != nil || p.HasDirect() || p.OpensTLS() {
			t.Errorf("%+v: %s %q", p, p.Digest(), p)
		}
	}
}

func TestPolicyFacts(t *testing.T) {
	p := policy(t, "a.com tcp/80 tcp/443", "b.com tcp/443 tcp/8443 http", "c.com tcp/22 direct")
	if got := p.TCPPorts(); !slices.Equal(got, []uint16{80, 443, 8443}) {
		t.Errorf("ports %v", got)
	}
	if !p.HasDirect() || !p.OpensTLS() || policy(t, "a.com tcp/443").HasDirect() || policy(t, "c.com tcp/22 direct").OpensTLS() {
		t.Error("direct or http")
	}
}

func TestParseRule(t *testing.T) {
	for _, s := range []string{
		"", " ", "a.com", "a.com ", "a.com  tcp/443", " a.com tcp/443", "a.com tcp/443 ", "A.com tcp/443", "a.com. tcp/443", "a.com tcp/443 tcp/443", "a.com tcp/443 tcp/80",
		"a.com tcp/+443", "a.com tcp/0443", "a.com TCP/443", "a.com tcp/65536", "a.com udp/53", "a.com tcp/443 gateway", "a.com direct tcp/443", "a.com tcp/443 direct http",
		"a.com tcp/443 http paths=[]", `a.com tcp/443 http paths=["/a" ]`, `a.com tcp/443 http paths=["/b" "/a"]`, `a.com tcp/443 http paths=["/a"`, `a.com tcp/443 http paths=["/a]`, `a.com tcp/443 http paths=[` + "`/a`]",
		`a.com tcp/443 paths=["/a"]`, `a.com tcp/443 http paths=["/a"] methods=["GET"]`, `a.com tcp/443 http paths=["/\x61"]`, `a.com tcp/443 http paths=["/a""/b"]`,
		`a.com tcp/443 addresses=["10.0.0.1/8"]`, `a.com tcp/443 addresses=["10"]`, "a.com tcp/443 http credential=", "a.com tcp/443 http credential=a b", "a.com tcp/443\n", "a.com tcp/443 x", "default",
	} {
		if r, err := ParseRule(s); err == nil {
			t.Errorf("%q was read as %s", s, r.String())
		}
	}
	for _, s := range []string{"a.com tcp/443", "a.com tcp/443\n\n", "b.com tcp/443\na.com tcp/443\n", "a.com tcp/443\na.com tcp/443\n"} {
		if _, err := Parse(s); err == nil {
			t.Errorf("%q was read as a policy", s)
		}
	}
}

func TestLive(t *testing.T) {
	var l Live
	if g := l.Current(); g.Number != 0 || g.Policy != nil || Decide(g.Policy, Question{Name: "a.com"}).Allow {
		t.Errorf("before the first generation: %+v", g)
	}
	a, b := policy(t, "a.com tcp/443"), policy(t, "b.com tcp/443")
	byNumber := func(g Generation) *Policy { return []*Policy{nil, a, b}[g.Number] }
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for g := l.Current(); g.Number < 2; g = l.Current() {
				if g.Policy != byNumber(g) {
					t.Errorf("generation %d has the policy of another generation", g.Number)
				}
			}
		})
	}
	for i, p := range []*Policy{a, b} {
		if g := l.Set(p); g.Number != uint32(i+1) || g.Policy != p || l.Current() != g {
			t.Errorf("set %d: %+v", i+1, g)
		}
	}
	readers.Wait()
	if g := l.Set(nil); g.Number != 3 || Decide(l.Current().Policy, Question{Name: "b.com"}).Allow {
		t.Errorf("no policy: %+v", g)
	}
}

// FuzzRule: a rule that is parsed from its normal form is in normal form, and parses to the same rule again.
func FuzzRule(f *testing.F) {
	for _, s := range []string{
		"a.com tcp/443", "*.a.com tcp/80 tcp/443", "10.0.0.0/8 tcp/22 udp/53 direct", "fc00::/7 udp/53 direct", `a.com tcp/443 http methods=["GET"] paths=["/\"a" "/b*"] addresses=["10.0.0.0/8"] credential=x`,
		`a.com tcp/443 http paths=["/a" `, "a.com tcp/443 http credential=", `a.com tcp/443 addresses=["::/0"]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		r, err := ParseRule(in)
		if err != nil {
			return
		}
		if r.String() != in || strings.ContainsAny(in, "\n\r\x00") {
			t.Fatalf("%q is written %q", in, r.String())
		}
		n, err := r.Normal()
		if err != nil || !reflect.DeepEqual(n, r) {
			t.Fatalf("%q: %+v is not normal: %+v, %v", in, r, n, err)
		}
		p, err := New([]Rule{r, r})
		if err != nil || p.String() != in+"\n" {
			t.Fatalf("%q: %q, %v", in, p, err)
		}
		if again, err := Parse(p.String()); err != nil || again.Digest() != p.Digest() {
			t.Fatalf("%q: %v", in, err)
		}
	})
}
