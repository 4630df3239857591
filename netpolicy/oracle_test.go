package netpolicy

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// The slow decision checks every rule each time. It follows only the package's documentation.

// slowDecide returns the verdict and whether any rule names the destination.
func slowDecide(rules []Rule, q Question) (allow, named bool) {
	if q.Name == "" {
		return slowAddr(rules, q)
	}
	closest := -1
	var deciding []Rule
	for _, r := range rules {
		if n := closeness(r.Pattern.String(), q.Name); n > closest {
			closest, deciding = n, []Rule{r}
		} else if n >= 0 && n == closest {
			deciding = append(deciding, r)
		}
	}
	for _, r := range deciding {
		if slowRule(r, q) {
			return true, true
		}
	}
	return false, len(deciding) > 0
}

// closeness is -1 if the pattern does not match, else greater for a closer match.
func closeness(pattern, name string) int {
	switch rest, below := strings.CutPrefix(pattern, "*"); {
	case below && len(name) > len(rest) && name[len(name)-len(rest):] == rest:
		return len(rest)
	case pattern == name:
		return 1000
	case pattern == "**":
		return 0
	}
	return -1
}

func slowRule(r Rule, q Question) bool {
	ways := map[Mode]bool{"": true, r.Mode: true}
	ports := map[Port]bool{{}: true}
	for _, p := range r.Ports {
		ports[p] = true
	}
	if !ways[q.Via] || !ports[q.Port] {
		return false
	}
	if q.Addr.IsValid() && !slowSpecial(r.Addresses, q.Addr) {
		return false
	}
	if r.HTTP == nil || q.Request == nil {
		return true
	}
	methods, paths := len(r.HTTP.Methods) == 0, len(r.HTTP.Paths) == 0
	for _, m := range r.HTTP.Methods {
		methods = methods || m == q.Request.Method
	}
	for _, want := range r.HTTP.Paths {
		begin := strings.TrimSuffix(want, "*")
		whole := begin == want
		paths = paths || ClearPath(q.Request.Path) && strings.HasPrefix(q.Request.Path, begin) && (!whole || len(begin) == len(q.Request.Path))
	}
	return methods && paths && q.Request.Method != "CONNECT" && q.Request.Method != "TRACE" && q.Request.Method != "TRACK"
}

// slowSpecial reports whether some named range contains the address and is no wider than any special range that contains
// it.
func slowSpecial(named []netip.Prefix, a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	var around []netip.Prefix
	for _, s := range specialRanges {
		if has(s, a) {
			around = append(around, s)
		}
	}
	return len(around) == 0 || slices.ContainsFunc(named, func(n netip.Prefix) bool {
		return has(n, a) && !slices.ContainsFunc(around, func(s netip.Prefix) bool { return s.Bits() > n.Bits() })
	})
}

// has compares bit by bit.
func has(p netip.Prefix, a netip.Addr) bool {
	if a = a.Unmap(); a.Is4() != p.Addr().Is4() || a.Zone() != "" {
		return false
	}
	x, y := p.Addr().AsSlice(), a.AsSlice()
	for i := range p.Bits() {
		if (x[i/8]^y[i/8])>>(7-i%8)&1 != 0 {
			return false
		}
	}
	return true
}

func slowAddr(rules []Rule, q Question) (allow, named bool) {
	if !q.Addr.IsValid() || q.Via == Gateway {
		return false, false
	}
	for _, r := range rules {
		prefix, ok := r.Pattern.Prefix()
		if !ok || !has(prefix, q.Addr) {
			continue
		}
		named = true
		port := q.Port == Port{}
		for _, p := range r.Ports {
			port = port || p == q.Port
		}
		if port && slowSpecial([]netip.Prefix{prefix}, q.Addr) {
			allow = true
		}
	}
	return allow, named
}

// Parts of random policies and questions: few words, so that they match often.
var (
	someNames    = []string{"a.com", "b.a.com", "c.b.a.com", "aa.com", "a.com.b.com", "b.com", "xa.com"}
	someRanges   = []string{"10.0.0.0/8", "10.0.0.0/16", "10.1.0.0/16", "0.0.0.0/0", "8.0.0.0/8", "8.8.8.8", "::/0", "fc00::/7", "fd00::1", "64:ff9b::/96", "64:ff9b::a00:0/104", "2002::/16", "2606::/16", "169.254.0.0/16", "198.18.0.0/15", "198.18.0.0/16"}
	someAddrs    = []string{"10.0.0.1", "10.1.2.3", "8.8.8.8", "8.8.4.4", "1.1.1.1", "::ffff:10.1.2.3", "::ffff:8.8.8.8", "fd00::1", "fd00::2", "fe80::1", "64:ff9b::a01:203", "64:ff9b::808:808", "2002:a00:1::1", "2002:808:808::1", "2606::1", "169.254.169.254", "198.18.1.0", "198.19.0.1", "fdc5:7a1c:19d2::1", "::1", "2606::1%e"}
	somePorts    = []Port{tcp443, tcp80, {"tcp", 22}, {"udp", 443}, udp53}
	someMethods  = []string{"GET", "POST", "PUT"}
	somePaths    = []string{"/", "/*", "/a", "/a*", "/a/*", "/a/b"}
	someRequests = []string{"/", "/a", "/ab", "/a/b", "/a/../b", "/a/%2e", "*", ""}
)

// picks chooses from a stream of bytes, so that a fuzzer can control it.
type picks struct{ rest []byte }

func (p *picks) n(most int) int {
	if len(p.rest) == 0 {
		return 0
	}
	b := p.rest[0]
	p.rest = p.rest[1:]
	return int(b) % most
}

func pick[T any](p *picks, list []T) T { return list[p.n(len(list))] }

func some[T any](p *picks, list []T) []T {
	var out []T
	for range p.n(3) {
		out = append(out, pick(p, list))
	}
	return out
}

func (p *picks) rule(t testing.TB) Rule {
	r := Rule{Mode: []Mode{"", Gateway, Direct}[p.n(3)], Ports: some(p, somePorts)}
	switch p.n(3) {
	case 0:
		r.Pattern = pattern(t, pick(p, someRanges))
		r.Mode = Direct
	case 1:
		r.Pattern = pattern(t, "*."+pick(p, someNames))
	default:
		r.Pattern = pattern(t, pick(p, someNames))
	}
	if p.n(3) == 0 {
		r.HTTP = &HTTP{Methods: some(p, someMethods), Paths: some(p, somePaths)}
	}
	if p.n(2) == 0 {
		r.Addresses = p.ranges(t)
	}
	return r
}

func (p *picks) ranges(t testing.TB) (list []netip.Prefix) {
	for _, s := range some(p, someRanges) {
		prefix, _ := pattern(t, s).Prefix()
		list = append(list, prefix)
	}
	return list
}

func (p *picks) question() Question {
	var q Question
	if p.n(4) > 0 {
		q.Name = []string{"", "x.", "x.y."}[p.n(3)] + pick(p, someNames)
	}
	if p.n(2) == 0 || q.Name == "" {
		q.Addr = addr(pick(p, someAddrs))
	}
	if p.n(4) > 0 {
		q.Port = pick(p, somePorts)
	}
	q.Via = []Mode{"", Gateway, Direct}[p.n(3)]
	if p.n(2) == 0 {
		q.Request = &Request{pick(p, append(someMethods, "CONNECT", "TRACE")), pick(p, someRequests)}
	}
	return q
}

// compare makes a policy of the rules that are valid, and compares both decisions on some questions.
func compare(t testing.TB, p *picks) (allowed, denied int) {
	var rules []Rule
	for range 1 + p.n(8) {
		more := append(slices.Clone(rules), p.rule(t))
		if _, err := New(more); err == nil {
			rules = more
		}
	}
	pol, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(pol.String())
	if err != nil || again.Digest() != pol.Digest() {
		t.Fatalf("%v\n%s", err, pol)
	}
	for range 24 {
		q := p.question()
		v := Decide(pol, q)
		allow, named := slowDecide(pol.Rules(), q)
		if v.Allow != allow || (v.Rule != nil) != named || v.Allow != (v.Reason == "") {
			t.Fatalf("%+v %+v: %+v by %q, want %v, named %v, under\n%s", q, q.Request, v, v.RuleName(), allow, named, pol)
		}
		if other := Decide(again, q); other.Allow != v.Allow || other.Reason != v.Reason || other.RuleName() != v.RuleName() {
			t.Fatalf("%+v: read back: %+v, was %+v", q, other, v)
		}
		if v.Allow {
			allowed++
		} else if named {
			denied++
		}
	}
	return allowed, denied
}

func TestDecideAgainstOracle(t *testing.T) {
	random := rand.NewChaCha8([32]byte{})
	allowed, denied := 0, 0
	for range 5000 {
		b := make([]byte, 256)
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], random.Uint64())
		}
		a, d := compare(t, &picks{b})
		allowed, denied = allowed+a, denied+d
	}
	if allowed < 3000 || denied < 3000 { // otherwise the questions miss the rules
		t.Errorf("%d allowed, %d denied by a rule", allowed, denied)
	}
	t.Logf("%d allowed, %d denied by a rule", allowed, denied)
}

func FuzzDecide(f *testing.F) {
	for i := range 4 {
		f.Add([]byte(strings.Repeat("custody"+string(rune('0'+i)), 40)))
	}
	f.Fuzz(func(t *testing.T, b []byte) { compare(t, &picks{b}) })
}
