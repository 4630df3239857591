package replay

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
)

// Egress is what could leave the sandbox at the instant, and what did. All of it
// was seen by the host, but for the processes.
type Egress struct {
	Generation uint32       `json:"generation"` // of the policy in force; 0 when none was recorded
	Digest     string       `json:"digest,omitempty"`
	Rules      []audit.Text `json:"rules,omitempty"`
	Flows      []FlowAt     `json:"flows"` // open ones
	Names      []NameAt     `json:"names"` // with their latest answer
	Denied     Denied       `json:"denied"`
}

// FlowAt is a flow that was open.
type FlowAt struct {
	audit.Flow
	Opened time.Time `json:"opened"`
	// By is the process that the guest's sensor named, as in "curl[102]"; empty if none.
	By string `json:"by,omitempty"`
}

// NameAt is a name that the guest got an answer for.
type NameAt struct {
	Name audit.Text `json:"name"`
	// Addrs are those that the guest was given so far, the latest first, and Found
	// those that the gateway found for the name on the host.
	Addrs []string  `json:"addrs"`
	Found []string  `json:"found,omitempty"`
	Rule  string    `json:"rule"`
	Time  time.Time `json:"time"` // of the latest answer
}

// Denied is how much was denied up to the instant.
type Denied struct {
	Questions uint64 `json:"questions"`
	Flows     uint64 `json:"flows"`
	Requests  uint64 `json:"requests"`
}

// maxAddrs of a name are kept; the oldest go first.
const maxAddrs = 16

// netFold is an Egress in the making.
type netFold struct {
	e     Egress
	flows map[string]FlowAt // by id
	names map[audit.Text]NameAt
}

func newNetFold() *netFold {
	return &netFold{flows: map[string]FlowAt{}, names: map[audit.Text]NameAt{}}
}

// add takes a record of the host's.
func (n *netFold) add(r audit.Record) {
	switch {
	case r.Kind == audit.KindRun && r.Lifecycle != nil && r.Lifecycle.Phase == audit.PhaseEnd:
		clear(n.flows) // they ended with the sandbox
	case r.Kind == audit.KindFlow && r.Flow != nil:
		n.flow(r.Time, *r.Flow)
	case r.Kind == audit.KindDNS && r.DNS != nil:
		n.dns(r.Time, r.DNS)
	case r.Kind == audit.KindHTTP && r.HTTP != nil && r.HTTP.Verdict == audit.Deny:
		n.e.Denied.Requests++
	case r.Kind == audit.KindPolicy && r.Policy != nil:
		n.e.Generation, n.e.Digest, n.e.Rules = r.Policy.Generation, r.Policy.Digest, r.Policy.Rules
	}
}

func (n *netFold) flow(t time.Time, f audit.Flow) {
	switch f.State {
	case audit.FlowOpen:
		opened := t
		if known, again := n.flows[f.ID]; again { // a further address is tried
			opened = known.Opened
		}
		n.flows[f.ID] = FlowAt{Flow: f, Opened: opened}
	case audit.FlowClose, audit.FlowRevoke:
		delete(n.flows, f.ID)
	case audit.FlowDeny:
		n.e.Denied.Flows += max(f.Count, 1)
	}
}

func (n *netFold) dns(t time.Time, d *audit.DNS) {
	switch {
	case d.Verdict == audit.Deny && asked(d):
		n.e.Denied.Questions++
	case d.Verdict == audit.Allow && len(d.Answers) > 0:
		at := n.names[d.Name]
		at.Name, at.Rule, at.Time = d.Name, d.Rule, t
		if asked(d) {
			at.Addrs = latest(at.Addrs, d.Answers)
		} else { // all that was found, with what was not used
			at.Found = latest(at.Found, slices.DeleteFunc(slices.Clone(d.Answers), func(a string) bool { return slices.Contains(d.Dropped, a) }))
		}
		n.names[d.Name] = at
	}
}

// latest puts new addresses before those that were known.
func latest(known, fresh []string) []string {
	all := slices.Clone(fresh)
	for _, a := range known {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all[:min(len(all), maxAddrs)]
}

func (n *netFold) state(known *index) Egress {
	e := n.e
	e.Flows = slices.SortedFunc(maps.Values(n.flows), func(a, b FlowAt) int {
		return cmp.Or(a.Opened.Compare(b.Opened), cmp.Compare(a.ID, b.ID))
	})
	for i := range e.Flows {
		e.Flows[i].By = known.by(&e.Flows[i].Flow, e.Flows[i].Opened)
	}
	e.Names = slices.SortedFunc(maps.Values(n.names), func(a, b NameAt) int { return cmp.Compare(a.Name, b.Name) })
	return e
}
