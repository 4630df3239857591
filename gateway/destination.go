package gateway

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/custody-project/custody/netpolicy"
)

// destination is the name of the host that a connection is for, with the policy decisions about it.
type destination struct {
	g    *Gateway
	name string
	port uint16
}

// question returns the question about the connection as a whole.
func (d destination) question() netpolicy.Question {
	return netpolicy.Question{Name: d.name, Port: netpolicy.Port{Proto: "tcp", Number: d.port}, Via: netpolicy.Gateway}
}

func (d destination) verdict() netpolicy.Verdict {
	return netpolicy.Decide(d.g.cfg.Live.Current().Policy, d.question())
}

// ownAddress is the reason for which a name must not resolve to the host.
const ownAddress netpolicy.Reason = "the address is the host's own, which the rule does not name"

// decidePeer decides whether the connection may go to an address.
func (d destination) decidePeer(p *netpolicy.Policy, a netip.Addr) netpolicy.Verdict {
	q := d.question()
	q.Addr = a
	v := netpolicy.Decide(p, q)
	if v.Allow && d.g.cfg.Self(a.Unmap()) && !names(v.Rule, a.Unmap()) {
		return netpolicy.Verdict{Rule: v.Rule, Reason: ownAddress}
	}
	return v
}

func names(r *netpolicy.Rule, a netip.Addr) bool {
	for _, n := range r.Addresses {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// credentials returns the names of the credentials that the connection's requests can use.
func (d destination) credentials() []string {
	var list []string
	for _, r := range d.g.cfg.Live.Current().Policy.Match(d.name) {
		if r.Credential != "" && r.HTTP != nil {
			list = append(list, r.Credential)
		}
	}
	return list
}

// find returns the secrets in the first bytes of a connection and in a name, also if one is split across labels.
func (d destination) find(raw []byte, name string) []string {
	of := d.g.cfg.Credentials
	if of == nil {
		return nil
	}
	found := slices.Concat(of.Find(raw), of.Find([]byte(name)), of.Find([]byte(strings.ReplaceAll(name, ".", ""))))
	slices.Sort(found)
	return slices.Compact(found)
}
