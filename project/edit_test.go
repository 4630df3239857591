package project

import (
	"reflect"
	"strings"
	"testing"

	"github.com/custody-project/custody/netpolicy"
)

func rules(t testing.TB, normal ...string) []netpolicy.Rule {
	t.Helper()
	p, err := netpolicy.Parse(strings.Join(append(normal, ""), "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p.Rules()
}

func TestWithEgress(t *testing.T) {
	const before = `# the shop
version: 1
egress: # what may leave
  # sources
  - allow: GitHub.com   # tcp/443
  - allow: b.com

  # packages
  - {allow: "*.pypi.org"}
  - mode: direct
    allow: db.example.com
    ports:
      - tcp/5432

# how much
limits: {pids: 9}
`
	cases := []struct {
		what, in, want string
		rules          []string
	}{
		{"all stay", before, before, []string{"*.pypi.org tcp/443", "b.com tcp/443", "db.example.com tcp/5432 direct", "github.com tcp/443"}},
		{"one more", before, strings.Replace(before, "      - tcp/5432\n", "      - tcp/5432\n  - allow: new.com\n", 1),
			[]string{"*.pypi.org tcp/443", "b.com tcp/443", "db.example.com tcp/5432 direct", "github.com tcp/443", "new.com tcp/443"}},
		{"some less", before, strings.Replace(strings.Replace(before, "\n  # packages\n  - {allow: \"*.pypi.org\"}\n", "", 1), "  - allow: b.com\n", "", 1),
			[]string{"db.example.com tcp/5432 direct", "github.com tcp/443"}},
		{"none", before, "# the shop\nversion: 1\n\n# how much\nlimits: {pids: 9}\n", nil},
		{"first ones", "version: 1\nlimits: {pids: 9}", "version: 1\nlimits: {pids: 9}\negress:\n  - allow: a.com\n", []string{"a.com tcp/443"}},
		{"a new file", "", "version: 1\negress:\n  - allow: a.com\n", []string{"a.com tcp/443"}},
		{"nothing at all", "", "version: 1\n", nil},
		{"in one line", "version: 1\negress: [{allow: a.com}, {allow: b.com}]\nproject: x\n", "version: 1\negress:\n  - allow: a.com\n  - allow: c.com\nproject: x\n", []string{"a.com tcp/443", "c.com tcp/443"}},
		{"at the edge", "version: 1\negress:\n- allow: a.com\n- allow: b.com\nproject: x\n", "version: 1\negress:\n- allow: b.com\n- allow: c.com\nproject: x\n", []string{"b.com tcp/443", "c.com tcp/443"}},
		{"every part", "version: 1\nsecrets: {k: {from: \"env:K\", deliver: {header: x-k}}}\n", `version: 1
secrets: {k: {from: "env:K", deliver: {header: x-k}}}
egress:
  - allow: "*.a.com"
    ports: [tcp/80, udp/53]
    mode: direct
    addresses: [10.0.0.0/8, "fd00::/8"]
  - allow: "::1/128"
    mode: direct
  - allow: b.com
    http: {methods: [GET, "NULL"], paths: [/, "/\"x\"", "/v1/*"], redact: false}
    credential: k
  - allow: c.com
    http: {}
  - allow: "null"
`, []string{`*.a.com tcp/80 udp/53 direct addresses=["10.0.0.0/8" "fd00::/8"]`, "::1/128 tcp/443 direct", `b.com tcp/443 http methods=["GET" "NULL"] paths=["/" "/\"x\"" "/v1/*"] redact=false credential=k`, "c.com tcp/443 http", "null tcp/443"}},
	}
	for _, c := range cases {
		got, err := WithEgress("c.yaml", []byte(c.in), rules(t, c.rules...))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.what, err, got, c.want)
		}
	}
	for _, in := range []string{"{version: 1, egress: [{allow: a.com}]}", "version: 2\n", "version: 1\nproject: x\n...\n"} {
		if got, err := WithEgress("c.yaml", []byte(in), rules(t, "b.com tcp/443")); err == nil {
			t.Errorf("%q became %q", in, got)
		}
	}
}

// FuzzWithEgress: a changed file has the intended rules, and everything else as before.
func FuzzWithEgress(f *testing.F) {
	for _, s := range []string{sample, "", "version: 1\negress: [{allow: a.com}]\n", "version: 1\negress:\n- allow: a.com\n- allow: b.com", "---\nversion: 1\negress:\n  -\n    allow: b.com\n  # x\n\n---\n"} {
		f.Add([]byte(s), byte(3))
	}
	some := rules(f, "10.0.0.0/8 tcp/22 direct", "a.com tcp/443", `b.com tcp/443 http methods=["GET"] paths=["/x*"]`)
	f.Fuzz(func(t *testing.T, in []byte, which byte) {
		old, err := Parse("f", in)
		if err != nil && len(in) > 0 {
			return
		}
		if len(in) == 0 {
			old = Default()
		}
		var want []netpolicy.Rule
		for i, r := range some {
			if which>>i&1 != 0 {
				want = append(want, r)
			}
		}
		for i, r := range old.Egress {
			if more := append(want[:len(want):len(want)], r); which>>(i%5+3)&1 != 0 && agree(more) {
				want = more
			}
		}
		out, err := WithEgress("f", in, want)
		if err != nil {
			return
		}
		got, err := Parse("f", out)
		if err != nil {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		if p, q := policyOf(t, got.Egress), policyOf(t, want); p != q {
			t.Fatalf("%q became %q, which allows\n%sand not\n%s", in, out, p, q)
		}
		got.SHA256, old.SHA256 = "", ""
		if got.Egress, old.Egress = nil, nil; !reflect.DeepEqual(got, old) {
			t.Fatalf("%q became %q: more changed than egress", in, out)
		}
	})
}

func agree(rules []netpolicy.Rule) bool { _, err := netpolicy.New(rules); return err == nil }

func policyOf(t *testing.T, rules []netpolicy.Rule) string {
	p, err := netpolicy.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return p.String()
}
