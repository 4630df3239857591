package netpolicy

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// bound makes a policy from rules in their normal form, with "**" as a possible pattern.
func bound(t testing.TB, rules ...string) *Policy {
	t.Helper()
	var list []Rule
	for _, s := range rules {
		rest, any := strings.CutPrefix(s, "** ")
		if any {
			s = "any.test " + rest
		}
		r, err := ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		if any {
			r.Pattern = anyName
		}
		list = append(list, r)
	}
	return must(New(list))
}

func TestWithin(t *testing.T) {
	all := func(s ...string) []string { return s }
	for name, c := range map[string]struct {
		project, bound []string
		says           string // of the first excess; empty: it is within
	}{
		"nothing":                         {nil, nil, ""},
		"the same":                        {all("a.com tcp/443"), all("a.com tcp/443"), ""},
		"no rules in the bound":           {all("a.com tcp/443"), nil, "a.com tcp/443: no rule allows this destination"},
		"a name below":                    {all("x.a.com tcp/443"), all("*.a.com tcp/443"), ""},
		"the name itself is not below":    {all("a.com tcp/443"), all("*.a.com tcp/443"), "no rule"},
		"deeper below":                    {all("*.x.a.com tcp/443"), all("*.a.com tcp/443"), ""},
		"wider":                           {all("*.a.com tcp/443"), all("*.x.a.com tcp/443"), "*.a.com tcp/443: no rule"},
		"not a label's end":               {all("xa.com tcp/443"), all("*.a.com tcp/443"), "no rule"},
		"any name":                        {all("a.com tcp/443", "*.b.com tcp/443"), all("** tcp/443"), ""},
		"any name is no address":          {all("8.8.8.8/32 tcp/443 direct"), all("** tcp/443 direct"), "no rule"},
		"a rule of the bound within":      {all("*.a.com tcp/443"), all("*.a.com tcp/443", "x.a.com tcp/80"), "*.a.com tcp/443, for x.a.com: the closest rule does not allow tcp/443"},
		"the project says less there":     {all("*.a.com tcp/443", "x.a.com tcp/80"), all("*.a.com tcp/443", "x.a.com tcp/80"), ""},
		"below a rule within":             {all("*.a.com tcp/443"), all("** tcp/443", "*.x.a.com tcp/80"), "for *.x.a.com"},
		"ports":                           {all("a.com tcp/80 tcp/443"), all("a.com tcp/443"), "does not allow tcp/80"},
		"ports of two rules":              {all("a.com tcp/80 tcp/443"), all("a.com tcp/443", "a.com tcp/80"), ""},
		"directly":                        {all("a.com tcp/443 direct"), all("a.com tcp/443"), "has the other mode"},
		"through the gateway":             {all("a.com tcp/443"), all("a.com tcp/443 direct"), "has the other mode"},
		"unread":                          {all("a.com tcp/443"), all("a.com tcp/443 http"), "requires http"},
		"read":                            {all("a.com tcp/443 http"), all("a.com tcp/443"), ""},
		"methods":                         {all(`a.com tcp/443 http methods=["GET"]`), all(`a.com tcp/443 http methods=["GET" "HEAD"]`), ""},
		"more methods":                    {all(`a.com tcp/443 http methods=["GET" "PUT"]`), all(`a.com tcp/443 http methods=["GET" "HEAD"]`), "methods and paths"},
		"every method":                    {all(`a.com tcp/443 http`), all(`a.com tcp/443 http methods=["GET"]`), "methods and paths"},
		"paths":                           {all(`a.com tcp/443 http paths=["/a" "/a/b" "/a/c*"]`), all(`a.com tcp/443 http paths=["/a*"]`), ""},
		"a shorter path":                  {all(`a.com tcp/443 http paths=["/a*"]`), all(`a.com tcp/443 http paths=["/a/*"]`), "methods and paths"},
		"an open path":                    {all(`a.com tcp/443 http paths=["/a*"]`), all(`a.com tcp/443 http paths=["/a"]`), "methods and paths"},
		"every path":                      {all(`a.com tcp/443 http`), all(`a.com tcp/443 http paths=["/*"]`), "methods and paths"},
		"credentials play no part":        {all("a.com tcp/443 http redact=false credential=c"), all("a.com tcp/443 http"), ""},
		"a range":                         {all("8.8.0.0/16 udp/53 direct"), all("8.0.0.0/8 udp/53 direct"), ""},
		"a wider range":                   {all("8.0.0.0/8 udp/53 direct"), all("8.8.0.0/16 udp/53 direct"), "no rule"},
		"the beginning of a range":        {all("8.0.0.0/8 udp/53 direct"), all("8.0.0.0/16 udp/53 direct"), "no rule"},
		"a range that is not special":     {all("10.0.0.0/8 udp/53 direct"), all("0.0.0.0/0 udp/53 direct"), "no rule"},
		"a special range":                 {all("10.1.0.0/16 udp/53 direct"), all("10.0.0.0/8 udp/53 direct"), ""},
		"special within special":          {all("fc00::/8 udp/53 direct"), all("8000::/1 udp/53 direct"), "no rule"},
		"the other family":                {all("64:ff9b::a00:0/104 udp/53 direct"), all("10.0.0.0/8 udp/53 direct"), "no rule"},
		"addresses":                       {all(`a.com tcp/443 addresses=["10.1.0.0/16"]`), all(`a.com tcp/443 addresses=["10.0.0.0/8"]`), ""},
		"addresses that are not named":    {all(`a.com tcp/443 addresses=["10.1.0.0/16"]`), all(`a.com tcp/443`), "does not name these addresses"},
		"addresses in what names nothing": {all(`a.com tcp/443 addresses=["10.1.0.0/16"]`), all(`a.com tcp/443 addresses=["0.0.0.0/0"]`), "does not name these addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			got := bound(t, c.project...).Within(bound(t, c.bound...))
			switch {
			case c.says == "" && len(got) > 0:
				t.Errorf("beyond: %v", got[0])
			case c.says != "" && (len(got) == 0 || !strings.Contains(got[0].Error(), c.says)):
				t.Errorf("got %v, want %q", got, c.says)
			}
		})
	}
	if _, err := ParsePattern("**"); err == nil {
		t.Error("a project file can allow every name")
	}
	var none *Policy
	if got := none.Within(nil); got != nil {
		t.Error(got)
	}
	if got := bound(t, "a.com tcp/443", "a.com tcp/80 tcp/8080").Within(nil); len(got) != 2 {
		t.Errorf("%v: want each rule once", got)
	}
}

func TestNarrows(t *testing.T) {
	all := func(s ...string) []string { return s }
	const carries = "a.com tcp/443 http credential=c"
	for name, c := range map[string]struct {
		project, bound []string
		says           string // of the first excess; empty: it is within
	}{
		"the same":                    {all(carries), all(carries), ""},
		"wider":                       {all("a.com tcp/443"), nil, "no rule allows this destination"},
		"fewer requests":              {all(`a.com tcp/443 http methods=["GET"] credential=c`), all(carries), ""},
		"no credential":               {all("a.com tcp/443 http redact=true"), all(carries), "another credential, or none (" + carries},
		"a credential that is new":    {all(carries), all("a.com tcp/443 http"), "another credential, or none"},
		"another credential":          {all("a.com tcp/443 http credential=d"), all(carries), "another credential, or none"},
		"another name":                {all("b.com tcp/443 http", carries), all("b.com tcp/443 http", carries), ""},
		"another port":                {all("a.com tcp/8443 http"), all("a.com tcp/8443 http", carries), ""},
		"unmasked":                    {all("a.com tcp/443 http redact=false credential=c"), all(carries), "masks credentials in responses (" + carries},
		"masked":                      {all("a.com tcp/443 http redact=true"), all("a.com tcp/443 http"), ""},
		"below a name":                {all("x.a.com tcp/443 http"), all("*.a.com tcp/443 http credential=c"), "x.a.com tcp/443 http: the closest rule has another credential"},
		"a rule of the bound within":  {all("*.a.com tcp/443 http"), all("*.a.com tcp/443 http", "x.a.com tcp/443 http credential=c"), "*.a.com tcp/443 http, for x.a.com: "},
		"as mixed as the bound":       {all(`a.com tcp/443 http paths=["/a"]`, `a.com tcp/443 http redact=true`), all(`a.com tcp/443 http paths=["/a"]`, `a.com tcp/443 http redact=true`), ""},
		"one of two that mask or not": {all(`a.com tcp/443 http paths=["/a"]`), all(`a.com tcp/443 http paths=["/a"]`, `a.com tcp/443 http redact=true`), "masks credentials"},
		"a range":                     {all("8.8.0.0/16 udp/53 direct"), all("8.0.0.0/8 udp/53 direct"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := bound(t, c.project...).Narrows(bound(t, c.bound...))
			switch {
			case c.says == "" && len(got) > 0:
				t.Errorf("beyond: %v", got[0])
			case c.says != "" && (len(got) == 0 || !strings.Contains(got[0].Error(), c.says)):
				t.Errorf("got %v, want %q", got, c.says)
			}
		})
	}
}

// carried returns, by the slow decision, the credential that a request gets and whether its response is masked, under the
// first of the rules that allow it.
func carried(rules []Rule, q Question) (credential string, masked bool) {
	closest := -1
	for _, r := range rules {
		closest = max(closest, closeness(r.Pattern.String(), q.Name))
	}
	for _, r := range rules {
		if closeness(r.Pattern.String(), q.Name) == closest && slowRule(r, q) {
			return r.Credential, r.Redacts()
		}
	}
	return "", false
}

// wider makes a rule that allows what r does, or nearly so.
func (p *picks) wider(t testing.TB, r Rule) Rule {
	w := r
	w.Ports, w.Addresses = append(some(p, somePorts), r.Ports...), append(p.ranges(t), r.Addresses...)
	if name, _ := r.Pattern.Name(); name != "" {
		switch p.n(4) {
		case 0:
			w.Pattern = anyName
		case 1:
			if _, parent, ok := strings.Cut(name, "."); ok && strings.Contains(parent, ".") {
				w.Pattern = pattern(t, "*."+parent)
			}
		}
	} else if p.n(2) == 0 {
		w.Pattern = pattern(t, pick(p, someRanges))
	}
	switch {
	case p.n(3) == 0:
		w.HTTP, w.Credential = nil, ""
	case r.HTTP == nil && r.Mode != Direct && p.n(3) == 0:
		w.HTTP = &HTTP{}
	case r.HTTP != nil && p.n(2) == 0:
		w.HTTP = &HTTP{Methods: append(some(p, someMethods), r.HTTP.Methods...), Paths: r.HTTP.Paths, Redact: r.HTTP.Redact}
		if p.n(4) == 0 {
			w.HTTP.Redact = new(bool)
			*w.HTTP.Redact = !r.Redacts()
		}
	}
	return w
}

// credential gives a rule for requests a credential, or a setting of its own for masking.
func (p *picks) credential(r Rule) Rule {
	if r.HTTP == nil || r.Mode == Direct {
		return r
	}
	if masks := p.n(6); masks < 2 {
		redact := masks == 0
		r.HTTP.Redact = &redact
	}
	r.Credential = []string{"", "", "c", "d"}[p.n(4)]
	return r
}

// gathered makes a policy of the rules that do not contradict each other.
func gathered(rules ...Rule) *Policy {
	var list []Rule
	for _, r := range rules {
		if more := append(slices.Clone(list), r); valid(more) {
			list = more
		}
	}
	return must(New(list))
}

// opaque returns the rules that apply to a stream that cannot be inspected: those without http.
func opaque(rules []Rule) []Rule {
	rules = slices.Clone(rules)
	for i, r := range rules {
		if r.HTTP != nil {
			rules[i].Ports = nil
		}
	}
	return rules
}

// within makes a project's policy and a bound. If the policy is within the bound, the bound must allow, by the slow
// decision, all sampled traffic that the project allows.
func within(t testing.TB, p *picks) (accepted, asked bool) {
	var mine, theirs []Rule
	for range 1 + p.n(3) {
		r := p.credential(p.rule(t))
		mine = append(mine, r)
		if p.n(8) > 0 {
			theirs = append(theirs, p.wider(t, r))
		}
	}
	for range p.n(3) {
		theirs = append(theirs, p.credential(p.rule(t)))
	}
	project, limit := gathered(mine...), gathered(theirs...)
	if excess := project.Within(project); excess != nil {
		t.Fatalf("a policy is not within itself: %v\n%s", excess, project)
	}
	if excess := project.Narrows(project); excess != nil {
		t.Fatalf("a policy does not narrow itself: %v\n%s", excess, project)
	}
	if project.Narrows(limit) == nil && project.Within(limit) != nil {
		t.Fatalf("\n%s\nnarrows, and is not within\n%s", project, limit)
	}
	if project.Within(limit) != nil {
		return false, false
	}
	strict := project.Narrows(limit) == nil
	check := func(q Question, rules, limits []Rule) {
		if allow, _ := slowDecide(rules, q); !allow {
			return
		}
		asked = true
		if allow, _ := slowDecide(limits, q); !allow {
			t.Fatalf("%+v %+v is allowed by\n%s\nand not by\n%s", q, q.Request, project, limit)
		}
		if !strict || q.Name == "" || q.Request == nil {
			return
		}
		got, masked := carried(rules, q)
		if want, must := carried(limits, q); got != want || must && !masked {
			t.Fatalf("%+v %+v carries %q, masked %v, by\n%s\nand %q, masked %v, by\n%s", q, q.Request, got, masked, project, want, must, limit)
		}
	}
	for range 200 {
		q := p.question()
		if q.Port == (Port{}) {
			q.Port = tcp443
		}
		if q.Via == "" {
			q.Via = Gateway
		}
		if q.Request != nil {
			check(q, project.Rules(), limit.Rules())
		}
		q.Request = nil
		check(q, opaque(project.Rules()), opaque(limit.Rules()))
	}
	return true, asked
}

func TestWithinAgainstOracle(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	accepted, asked := 0, 0
	for range 20000 {
		b := make([]byte, 4096)
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], random.Uint64())
		}
		ok, met := within(t, &picks{b})
		if ok {
			accepted++
		}
		if met {
			asked++
		}
	}
	t.Logf("%d accepted, of which %d allow some destination that was asked for", accepted, asked)
	if accepted < 3000 || accepted > 17000 || asked < 2000 {
		t.Error("the policies do not meet")
	}
}

func FuzzWithin(f *testing.F) {
	for i := range 4 {
		f.Add([]byte(strings.Repeat("custody"+string(rune('0'+i)), 200)))
	}
	f.Fuzz(func(t *testing.T, b []byte) { within(t, &picks{b}) })
}
