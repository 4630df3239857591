package netpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Learn returns the smallest set of rules under which all that was asked is
// allowed, in their normal form and order, and the questions that no rule should answer (see
// learnable). Without any one of the rules some of the rest would be denied.
//
// The rules have whole names and single addresses, the ports asked for, and the methods and paths asked for where the
// present policy has any; never a pattern that the present policy has not. A rule is direct only where the gateway
// cannot carry what was asked: for UDP, for addresses that no name led to, for a name that the present policy has as
// direct, and for a question with Via Direct. A name that was only looked up gets tcp/443.
//
// Questions come from a record: what a program inside a sandbox asked for. So
// the answer is for people to read, and nothing that may be put into force unread.
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

// inOrder brings rules whose parts were all looked at into their normal form and order.
func inOrder(rules []Rule) []Rule {
	for i, r := range rules {
		n, err := r.Normal()
		if err != nil {
			panic("netpolicy: a malformed rule was learnt: " + err.Error())
		}
		rules[i] = n
	}
	slices.SortFunc(rules, func(a, b Rule) int { return cmp.Compare(a.String(), b.String()) })
	return rules
}

// LearnMore returns the rules of the present policy and as few more as it takes
// to allow all that was asked, with the questions that no rule should answer. What the present
// policy allows stays allowed, but for names that have to change from the gateway to direct.
func LearnMore(present *Policy, asked []Question) (rules []Rule, left []Question) {
	var denied []Question
	for _, q := range asked {
		if !Decide(present, q).Allow {
			denied = append(denied, q)
		}
	}
	more, left := Learn(present, denied)
	modes := map[string]Mode{} // of names with new rules of their own
	for _, r := range more {
		if _, isRange := r.Pattern.Prefix(); isRange {
			continue
		}
		if _, again := modes[r.Pattern.name]; again {
			continue
		}
		modes[r.Pattern.name] = r.Mode
		for _, now := range present.Match(r.Pattern.name) { // would no longer hold for this name
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
		panic("netpolicy: contradictory rules were learnt: " + err.Error())
	}
	return p.rules, left
}

type lesson struct {
	present *Policy
	hosts   map[string]*host
	addrs   map[netip.Addr]map[Port]bool
}

// host is what was asked of one name.
type host struct {
	pattern Pattern
	present []*Rule
	direct  bool
	asked   []Question // that are learnt
}

// meet takes note of which names must be direct, before anything is learnt.
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
	// Opening a name's requests to no one's eyes is not for a program to suggest.
	h.direct = h.direct || needsDirect(q) && !h.inspected()
}

func needsDirect(q Question) bool {
	return q.Via == Direct || q.Port.Proto == "udp" || q.Port == Port{"tcp", ResolverPort}
}

// inspected reports whether the present policy looks into requests to the name.
func (h *host) inspected() bool {
	return slices.ContainsFunc(h.present, func(r *Rule) bool { return r.HTTP != nil })
}

// learn takes a question, and returns false if it is not learnable.
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

// learnableAddr reports whether a rule may be learned for an address: not for one that means the guest itself, a whole
// network or a host on the link, such as a cloud's metadata server. A user who means such an address writes the rule by
// hand.
func learnableAddr(a netip.Addr) bool {
	a = a.Unmap()
	return a.Zone() == "" && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// learnableRequest: methods and paths that a rule can name and that mean one thing.
func learnableRequest(r Request, by *Rule) bool {
	if CheckMethod(r.Method) != nil {
		return false
	}
	return len(by.HTTP.Paths) == 0 || r.matching(by.HTTP) != "" || ClearPath(r.Path) && CheckPath(r.Path) == nil && !strings.HasSuffix(r.Path, "*")
}

// matching returns the path of h that the request has.
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

// closest returns the present rule that allows a question or comes nearest to it.
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

// narrows reports whether rules for a question have to look into requests.
func (h *host) narrows(q Question) bool {
	r := h.closest(q)
	return !h.direct && r != nil && r.HTTP != nil
}

// need is what one rule has to say beside its ports.
type need struct {
	methods, paths string // joined by blanks, which neither can hold
	http           bool
	addresses      string
	credential     string
}

// rules are the rules that the name needs.
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

// needs are the rules that the questions about one port need.
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
	paths := map[string][]string{} // by method; "" stands for all methods
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
	if len(paths) == 0 { // only the connection was asked for: as narrow as it is now
		n.methods, n.paths = strings.Join(by.HTTP.Methods, " "), strings.Join(by.HTTP.Paths, " ")
		return []need{n}
	}
	return n.each(paths)
}

// each makes a need of all methods that have the same paths.
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

// addresses are the special addresses that were asked for, each by itself
// unless the present policy names a range with it.
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

// without leaves out rules that the others make needless: two present rules
// can allow the same request in two ways.
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
