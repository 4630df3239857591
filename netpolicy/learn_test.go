package netpolicy

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestLearn(t *testing.T) {
	req := func(method, path string) *Request { return &Request{method, path} }
	present := []string{
		"github.com tcp/443",
		"*.pypi.org tcp/443",
		"db.example.com tcp/5432 direct",
		`lan.example.com tcp/443 tcp/8443 addresses=["10.0.0.0/8"]`,
		`api.example.com tcp/443 http methods=["POST"] paths=["/v1/*"] credential=key`,
		"open.example.com tcp/443 http",
		"192.0.2.0/24 tcp/443 direct",
		"169.254.169.0/24 tcp/22 direct",
		`meta.example.com tcp/80 addresses=["169.254.0.0/16"]`,
	}
	tcp22, tcp8443 := Port{"tcp", 22}, Port{"tcp", 8443}
	cases := []struct {
		what  string
		asked []Question
		rules []string
		left  int
	}{
		{what: "nothing"},
		{"what is allowed already, narrowed to what was asked",
			[]Question{{Name: "files.pypi.org"}, {Name: "files.pypi.org", Port: tcp443}, {Name: "github.com"}, {Addr: addr("192.0.2.9"), Port: tcp443}},
			[]string{"192.0.2.9/32 tcp/443 direct", "files.pypi.org tcp/443", "github.com tcp/443"}, 0},
		{"a new name", []Question{{Name: "new.com"}}, []string{"new.com tcp/443"}, 0},
		{"a new name's ports", []Question{{Name: "new.com"}, {Name: "new.com", Port: tcp80}, {Name: "new.com", Port: tcp443}}, []string{"new.com tcp/80 tcp/443"}, 0},
		{"a name only looked up keeps its port", []Question{{Name: "db.example.com"}}, []string{"db.example.com tcp/5432 direct"}, 0},
		{"udp", []Question{{Name: "new.com", Port: Port{"udp", 123}}, {Name: "new.com", Port: tcp443}}, []string{"new.com tcp/443 udp/123 direct"}, 0},
		{"what the gateway could not carry", []Question{{Name: "github.com", Port: tcp22, Via: Direct}}, []string{"github.com tcp/22 direct"}, 0},
		{"udp to a name whose requests are looked at", []Question{{Name: "api.example.com", Port: udp53}}, nil, 1},
		{"addresses", []Question{{Addr: addr("9.9.9.9"), Port: udp53}, {Addr: addr("::ffff:9.9.9.9"), Port: tcp443}, {Addr: addr("10.0.0.1"), Port: tcp22}},
			[]string{"10.0.0.1/32 tcp/22 direct", "9.9.9.9/32 tcp/443 udp/53 direct"}, 0},
		{"addresses that must not be learned by accident",
			[]Question{{Addr: addr("169.254.169.254"), Port: tcp80}, {Addr: addr("127.0.0.1"), Port: tcp80}, {Addr: addr("224.0.0.251"), Port: udp53}, {Addr: addr("ff02::1"), Port: udp53}, {Addr: addr("fe80::1"), Port: tcp80},
				{Addr: addr("198.18.0.1"), Port: tcp80}, {Addr: addr("fdc5:7a1c:19d2::1"), Port: tcp80}, {Addr: addr("255.255.255.255"), Port: udp53}, {Name: "new.com", Addr: addr("169.254.169.254")}}, nil, 9},
		{"such addresses that the policy names already", []Question{{Addr: addr("169.254.169.254"), Port: tcp22}, {Name: "meta.example.com", Port: tcp80, Addr: addr("169.254.169.254")}, {Addr: addr("169.254.169.254"), Port: tcp443}},
			[]string{"169.254.169.254/32 tcp/22 direct", `meta.example.com tcp/80 addresses=["169.254.0.0/16"]`}, 1},
		{"names that are none", []Question{{Name: "New.com"}, {Name: "a b.com"}, {Name: "*.com"}, {Name: "*.new.com"}, {Name: "1.2.3.4"}, {}}, nil, 6},
		{"where a name leads", []Question{{Name: "new.com", Port: tcp443, Addr: addr("10.0.0.1")}, {Name: "lan.example.com", Port: tcp443, Addr: addr("10.0.0.1")}, {Name: "github.com", Port: tcp443, Addr: addr("140.82.121.4")}},
			[]string{"github.com tcp/443", `lan.example.com tcp/443 addresses=["10.0.0.0/8"]`, `new.com tcp/443 addresses=["10.0.0.1/32"]`}, 0},
		{"another special address", []Question{{Name: "lan.example.com", Port: tcp443, Addr: addr("192.168.0.1")}, {Name: "lan.example.com", Port: tcp8443}},
			[]string{"lan.example.com tcp/8443", `lan.example.com tcp/443 addresses=["192.168.0.1/32"]`}, 0},
		{"requests that are allowed", []Question{{Name: "api.example.com"}, {Name: "api.example.com", Port: tcp443}, {Name: "api.example.com", Port: tcp443, Request: req("POST", "/v1/messages")}},
			[]string{`api.example.com tcp/443 http methods=["POST"] paths=["/v1/*"] credential=key`}, 0},
		{"requests that are not", []Question{{Name: "api.example.com", Port: tcp443, Request: req("POST", "/v1/messages")}, {Name: "api.example.com", Port: tcp443, Request: req("GET", "/v1/models")}, {Name: "api.example.com", Port: tcp443, Request: req("POST", "/v2/x")}},
			[]string{`api.example.com tcp/443 http methods=["GET"] paths=["/v1/*"] credential=key`, `api.example.com tcp/443 http methods=["POST"] paths=["/v1/*" "/v2/x"] credential=key`}, 0},
		{"requests that mean two things", []Question{{Name: "api.example.com", Port: tcp443, Request: req("POST", "/v2/../x")}, {Name: "api.example.com", Port: tcp443, Request: req("CONNECT", "/v1/x")}, {Name: "api.example.com", Port: tcp443, Request: req("POST", "/v2*")}, {Name: "api.example.com", Request: req("POST", "/v1/x")}}, nil, 4},
		{"another port is as narrow, without the credential", []Question{{Name: "api.example.com", Port: tcp8443}}, []string{`api.example.com tcp/8443 http methods=["POST"] paths=["/v1/*"]`}, 0},
		{"nothing was narrowed", []Question{{Name: "open.example.com", Port: tcp443, Request: req("GET", "/a/../b")}, {Name: "github.com", Port: tcp443, Request: req("GET", "/")}}, []string{"github.com tcp/443", "open.example.com tcp/443 http"}, 0},
	}
	p := policy(t, present...)
	for _, c := range cases {
		rules, left := Learn(p, c.asked)
		var got []string
		for _, r := range rules {
			got = append(got, r.String())
		}
		slices.Sort(c.rules)
		if !slices.Equal(got, c.rules) || len(left) != c.left {
			t.Errorf("%s: learnt\n%s\nleft %v", c.what, strings.Join(got, "\n"), left)
		}
		enough(t, rules, c.asked, left)
	}
	if rules, left := Learn(nil, []Question{{Name: "a.com", Port: tcp443}}); len(rules) != 1 || len(left) != 0 {
		t.Errorf("without a policy: %v, %v", rules, left)
	}
}

// enough checks that the rules allow all the questions but the rest, and that none is redundant.
func enough(t *testing.T, rules []Rule, asked, left []Question) {
	t.Helper()
	p, err := New(rules)
	if err != nil {
		t.Fatalf("the learned rules contradict each other: %v\n%v", err, rules)
	}
	var learnt []Question
	for _, q := range asked {
		if slices.ContainsFunc(left, func(l Question) bool { return l == q }) {
			continue
		}
		learnt = append(learnt, q)
		if v := Decide(p, q); !v.Allow {
			t.Fatalf("%+v %+v: %s under the learned rules:\n%s", q, q.Request, v.Reason, p)
		}
	}
	if len(p.Rules()) != len(rules) {
		t.Fatalf("%d rules for %d:\n%s", len(rules), len(p.Rules()), p)
	}
	for i := range rules {
		fewer, err := New(slices.Delete(slices.Clone(rules), i, i+1))
		if err != nil {
			t.Fatal(err)
		}
		if fewer.allowsAll(learnt) {
			t.Fatalf("%s is redundant in\n%sfor %+v", rules[i].String(), p, learnt)
		}
	}
}

// learnSome learns from random questions under a random policy, and checks the width of each rule.
func learnSome(t *testing.T, p *picks) (learnt int) {
	var present []Rule
	for range p.n(8) {
		if more := append(slices.Clone(present), p.rule(t)); valid(more) {
			present = more
		}
	}
	before, err := New(present)
	if err != nil {
		t.Fatal(err)
	}
	var asked []Question
	for range 1 + p.n(12) {
		asked = append(asked, p.question())
	}
	rules, left := Learn(before, asked)
	enough(t, rules, asked, left)
	for _, r := range rules {
		now := before.Match(r.Pattern.name)
		looked := slices.ContainsFunc(now, func(r *Rule) bool { return r.HTTP != nil && slices.ContainsFunc(r.Ports, r.hasPort) })
		switch _, isRange := r.Pattern.Prefix(); {
		case r.Pattern.below || isRange && r.Pattern.prefix.Bits() != r.Pattern.prefix.Addr().BitLen():
			t.Fatalf("%s is wider than any question", r.String())
		case r.Mode == Direct && looked:
			t.Fatalf("%s allows requests without inspection that are inspected now:\n%s", r.String(), before)
		}
		for _, other := range now {
			if other.HTTP != nil && r.HTTP == nil && slices.ContainsFunc(r.Ports, other.hasPort) {
				t.Fatalf("%s no longer inspects requests, as %s does", r.String(), other.String())
			}
		}
	}
	more, left := LearnMore(before, asked)
	after, err := New(more)
	if err != nil || len(after.Rules()) != len(more) {
		t.Fatalf("%v: %v", more, err)
	}
	for _, q := range asked {
		if q.Via == Gateway && Decide(before, q).Allow {
			q.Via = "" // its name may have become direct
		}
		if !Decide(after, q).Allow && !slices.Contains(left, q) {
			t.Fatalf("%+v is still denied under\n%s", q, after)
		}
	}
	for range 12 {
		q := p.question()
		if q.Via = ""; q.Addr.IsValid() && inside(single(q.Addr)) {
			continue // has another meaning for a name that has become direct
		}
		if Decide(before, q).Allow && !Decide(after, q).Allow {
			t.Fatalf("%+v %+v was allowed under\n%sand is not under\n%s", q, q.Request, before, after)
		}
	}
	if before.allowsAll(asked) && after.String() != before.String() {
		t.Fatalf("all was allowed by\n%sbut now there is\n%s", before, after)
	}
	again, _ := Learn(before, asked)
	if a, b := must(New(rules)), must(New(again)); a.String() != b.String() {
		t.Fatalf("learnt\n%sand then\n%s", a, b)
	}
	return len(rules)
}

func valid(rules []Rule) bool { _, err := New(rules); return err == nil }

func must(p *Policy, err error) *Policy {
	if err != nil {
		panic(err)
	}
	return p
}

func TestLearnRandomly(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	learnt := 0
	for range 5000 {
		b := make([]byte, 256)
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], random.Uint64())
		}
		learnt += learnSome(t, &picks{b})
	}
	if learnt < 10000 {
		t.Errorf("only %d rules were learned", learnt)
	}
}

func FuzzLearn(f *testing.F) {
	for i := range 4 {
		f.Add([]byte(strings.Repeat("custody"+string(rune('0'+i)), 40)))
	}
	f.Fuzz(func(t *testing.T, b []byte) { learnSome(t, &picks{b}) })
}
