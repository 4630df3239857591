package netpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Learn returns the smallest set of rules, in their normal form and order, that allows all the questions, and the
// questions that no rule should allow (see learnable). Without any one of the rules, some question would be denied.
//
// The rules have whole names and single addresses, the ports of the questions, and their methods and paths if the
// present policy has any for the name; they have patterns only from the present policy. A rule is direct only if the
// gateway cannot carry the traffic: for UDP, for addresses without a name, for a name that the present policy has as
// direct, and for a question with Via Direct. A name that was only looked up gets tcp/443.
//
// are enforced.
func Learn(present *Policy, asked []Question) (rules []Rule, left []Question) {
	l := lesson{present: present, hosts: map[string]*host{}, addrs: map[netip.Addr]map[Port]bool{}}
	for _, q := range asked {
		l.meet(q)
	}
	for _, q := range asked {
		if !l.learn(q) {
			left = append(left, q)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.hosts)) {
		rules = append(rules, l.hosts[name].rules()...)
	}
	for _, a := range slices.SortedFunc(maps.Keys(l.addrs), netip.Addr.Compare) {
		if ports := slices.Collect(maps.Keys(l.addrs[a])); len(ports) > 0 {
			rules = append(rules, Rule{Pattern: Pattern{prefix: netip.PrefixFrom(a, a.BitLen())}, Mode: Direct, Ports: ports})
		}
	}
	return inOrder(rules), left
}

// inOrder sorts rules and normalizes them. Their parts must be well formed.
func inOrder(rules []Rule) []Rule {
	for i, r := range rules {
		n, err := r.Normal()
		if err != nil {
			panic("netpolicy: Learn made a malformed rule: " + err.Error())
		}
		rules[i] = n
	}
	slices.SortFunc(rules, func(a, b Rule) int { return cmp.Compare(a.String(), b.String()) })
	return rules
}

// LearnMore returns the rules of the present policy and the fewest additional rules that allow all the questions, with
// the questions that no rule should allow. It keeps all that the present policy allows, except for names that must
// change from gateway to direct.
func LearnMore(present *Policy, asked []Question) (rules []Rule, left []Question) {
	var denied []Question
	for _, q := range asked {
		if !Decide(present, q).Allow {
			denied = append(denied, q)
		}
	}
	more, left := Learn(present, denied)
	modes := map[string]Mode{} // of names with new separate rules
	for _, r := range more {
		if _, isRange := r.Pattern.Prefix(); isRange {
			continue
		}
		if _, again := modes[r.Pattern.name]; again {
			continue
		}
		modes[r.Pattern.name] = r.Mode
		for _, now := range present.Match(r.Pattern.name) { // would no longer apply to this name
			if own := *now; now.Pattern.below || now.Mode != r.Mode {
				own.Pattern, own.Mode, own.Line, own.Column = r.Pattern, r.Mode, 0, 0
				if own.Mode == Direct {
					own.Addresses = slices.DeleteFunc(slices.Clone(own.Addresses), inside)
				}
				more = append(more, own)
			}
		}
	}
	for _, r := range present.Rules() {
		if mode, changed := modes[r.Pattern.name]; !changed || r.Pattern.below || mode == r.Mode {
			rules = append(rules, r)
		}
	}
	p, err := New(append(rules, more...))
	if err != nil {
		panic("netpolicy: LearnMore made contradictory rules: " + err.Error())
	}
	return p.rules, left
}

type lesson struct {
	present *Policy
	hosts   map[string]*host
	addrs   map[netip.Addr]map[Port]bool
}

// host has the questions about one name.
type host struct {
	pattern Pattern
	present []*Rule
	direct  bool
	asked   []Question // the learnable ones
}

// meet finds the names that must be direct, before learn is called.
func (l *lesson) meet(q Question) {
	if q.Name == "" {
		return
	}
	h := l.hosts[q.Name]
	if h == nil {
		p, err := ParsePattern(q.Name)
		if err != nil || p.name != q.Name {
			return
		}
		h = &host{pattern: p, present: l.present.Match(q.Name)}
		h.direct = len(h.present) > 0 && h.present[0].Mode == Direct
		l.hosts[q.Name] = h
	}
	// A rule that stops the inspection of a name's requests must not be suggested because of a program's traffic.
	h.direct = h.direct || needsDirect(q) && !h.inspected()
}

func needsDirect(q Question) bool {
	return q.Via == Direct || q.Port.Proto == "udp" || q.Port == Port{"tcp", ResolverPort}
}

// inspected reports whether the present policy inspects requests to the name.
func (h *host) inspected() bool {
	return slices.ContainsFunc(h.present, func(r *Rule) bool { return r.HTTP != nil })
}

// learn adds a question, and returns false if it is not learnable.
func (l *lesson) learn(q Question) bool {
	if q.Port != (Port{}) && !q.Port.valid() || q.Addr.IsValid() && !learnableAddr(q.Addr) && !Decide(l.present, q).Allow {
		return false
	}
	if q.Name == "" {
		return l.learnAddr(q)
	}
	h := l.hosts[q.Name]
	switch {
	case h == nil,
		needsDirect(q) && !h.direct,
		h.direct && q.Via == Gateway,
		h.direct && q.Addr.IsValid() && inside(single(q.Addr)):
		return false
	}
	if q.Request != nil && (q.Port == Port{} || h.narrows(q) && !learnableRequest(*q.Request, h.closest(q))) {
		return false
	}
	h.asked = append(h.asked, q)
	return true
}

func (l *lesson) learnAddr(q Question) bool {
	if !q.Addr.IsValid() || q.Via == Gateway || inside(single(q.Addr)) {
		return false
	}
	a, port := q.Addr.Unmap(), q.Port
	if port == (Port{}) {
		port = Port{"tcp", 443}
	}
	if l.addrs[a] == nil {
		l.addrs[a] = map[Port]bool{}
	}
	l.addrs[a][port] = true
	return true
}

// learnableAddr reports whether a rule may be learned for an address. It returns false for addresses of the guest
// itself, of whole networks, and of hosts on the link, such as a cloud's metadata server; a user who needs one writes
// the rule by hand.
func learnableAddr(a netip.Addr) bool {
	a = a.Unmap()
	return a.Zone() == "" && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// learnableRequest reports whether a rule can name the method and the path, and the path is unambiguous.
func learnableRequest(r Request, by *Rule) bool {
	if CheckMethod(r.Method) != nil {
		return false
	}
	return len(by.HTTP.Paths) == 0 || r.matching(by.HTTP) != "" || ClearPath(r.Path) && CheckPath(r.Path) == nil && !strings.HasSuffix(r.Path, "*")
}

// matching returns the rule path of h that matches the request's path.
func (r Request) matching(h *HTTP) string {
	for _, p := range h.Paths {
		if (&HTTP{Paths: []string{p}}).denies(Request{Path: r.Path}) == "" {
			return p
		}
	}
	return ""
}

func single(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen())
}

// closest returns the present rule that allows a question or comes closest to it.
func (h *host) closest(q Question) *Rule {
	q.Via, q.Addr = "", netip.Addr{}
	best, so := (*Rule)(nil), Reason("")
	for _, r := range h.present {
		v := r.decide(q)
		if v.Allow {
			return r
		}
		if best == nil || depth(v.Reason) > depth(so) {
			best, so = r, v.Reason
		}
	}
	return best
}

// narrows reports whether rules for a question must restrict requests.
func (h *host) narrows(q Question) bool {
	r := h.closest(q)
	return !h.direct && r != nil && r.HTTP != nil
}

// need is the content of one rule, except for its ports.
type need struct {
	methods, paths string // separated by spaces, which neither can contain
	http           bool
	addresses      string
	credential     string
}

// rules returns the rules that the name needs.
func (h *host) rules() []Rule {
	ports := map[Port][]Question{}
	var anyPort []Question
	for _, q := range h.asked {
		if q.Port == (Port{}) {
			anyPort = append(anyPort, q)
		} else {
			ports[q.Port] = append(ports[q.Port], q)
		}
	}
	if len(ports) == 0 && len(anyPort) > 0 {
		ports[h.usualPort()] = nil
	}
	needs := map[need][]Port{}
	for p, questions := range ports {
		for _, n := range h.needs(p, append(questions, anyPort...)) {
			needs[n] = append(needs[n], p)
		}
	}
	var out []Rule
	for n, ports := range needs {
		out = append(out, h.rule(n, ports))
	}
	return h.without(inOrder(out))
}

func (h *host) usualPort() Port {
	if len(h.present) > 0 {
		return h.present[0].Ports[0]
	}
	return Port{"tcp", 443}
}

// needs returns the rules that the questions about one port need.
func (h *host) needs(port Port, questions []Question) []need {
	n := need{addresses: h.addresses(questions)}
	connection := Question{Port: port}
	if !h.narrows(connection) {
		return []need{n}
	}
	by := h.closest(connection)
	n.http = true
	if by.hasPort(port) {
		n.credential = by.Credential
	}
	paths := map[string][]string{} // by method; "" means all methods
	for _, q := range questions {
		if q.Request == nil {
			continue
		}
		by := h.closest(q)
		method, path := q.Request.Method, ""
		if len(by.HTTP.Methods) == 0 {
			method = ""
		}
		if len(by.HTTP.Paths) > 0 {
			path = cmp.Or(q.Request.matching(by.HTTP), q.Request.Path)
		}
		paths[method] = append(paths[method], path)
	}
	if len(paths) == 0 { // only connections: keep the present restrictions
		n.methods, n.paths = strings.Join(by.HTTP.Methods, " "), strings.Join(by.HTTP.Paths, " ")
		return []need{n}
	}
	return n.each(paths)
}

// each calls add with a need for all methods that have the same paths.
func (n need) each(paths map[string][]string) []need {
	methods := map[string][]string{} // by their paths
	for _, m := range slices.Sorted(maps.Keys(paths)) {
		list := sorted(paths[m], strings.Compare)
		if list[0] == "" { // all paths
			list = nil
		}
		key := strings.Join(list, " ")
		methods[key] = append(methods[key], m)
	}
	var out []need
	for key, list := range methods {
		if list[0] == "" { // all methods
			list = nil
		}
		n.methods, n.paths = strings.Join(list, " "), key
		out = append(out, n)
	}
	return out
}

// addresses returns the special addresses of the questions, each as a single address unless the present policy names a
// range with it.
func (h *host) addresses(questions []Question) string {
	var list []string
	for _, q := range questions {
		special, is := Special(q.Addr)
		if !is {
			continue
		}
		named := single(q.Addr)
		for _, r := range h.present {
			for _, p := range r.Addresses {
				if p.Contains(named.Addr()) && p.Bits() >= special.Bits() {
					named = p
				}
			}
		}
		list = append(list, named.String())
	}
	return strings.Join(sorted(list, strings.Compare), " ")
}

func (h *host) rule(n need, ports []Port) Rule {
	r := Rule{Pattern: h.pattern, Ports: ports, Mode: Gateway, Credential: n.credential}
	if h.direct {
		r.Mode = Direct
	}
	for _, a := range strings.Fields(n.addresses) {
		r.Addresses = append(r.Addresses, netip.MustParsePrefix(a))
	}
	if n.http {
		r.HTTP = &HTTP{Methods: strings.Fields(n.methods), Paths: strings.Fields(n.paths)}
	}
	return r
}

// without removes redundant rules: two present rules can allow the same request in two ways.
func (h *host) without(rules []Rule) []Rule {
	for i := 0; i < len(rules) && len(rules) > 1; {
		fewer := slices.Delete(slices.Clone(rules), i, i+1)
		if p, err := New(fewer); err == nil && p.allowsAll(h.asked) {
			rules = fewer
		} else {
			i++
		}
	}
	return rules
}

func (p *Policy) allowsAll(asked []Question) bool {
	return !slices.ContainsFunc(asked, func(q Question) bool { return !Decide(p, q).Allow })
}
