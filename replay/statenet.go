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
	// Claim is that process, and ClaimSeq the record in which the guest said so; 0 where the host's own record repeats it.
	Claim    *Actor `json:"claim,omitempty"`
	ClaimSeq uint64 `json:"claim_seq,omitempty"`
	Seq      uint64 `json:"seq"` // of its first record
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
	Seq   uint64    `json:"seq"`
}

// Denied is how much was denied up to the instant.
type Denied struct {
	Questions uint64 `json:"questions"`
	Flows     uint64 `json:"flows"`
	Requests  uint64 `json:"requests"`
}

// maxAddrs of a name are kept; the oldest go first.
const maxAddrs = 16

// answers are the places of the answers about one name.
type answers []int32

// add takes a host's answer into account.
func (n *scene) dns(place int32, d *audit.DNS) {
	switch {
	case d.Verdict == audit.Deny && asked(d):
		n.st.Egress.Denied.Questions++
	case d.Verdict == audit.Allow && len(d.Answers) > 0:
		n.names[d.Name] = append(n.names[d.Name], place)
	}
}

// nameAt gathers what the answers about a name say, the latest first.
func (n *scene) nameAt(name audit.Text, all answers) NameAt {
	m := &n.r.moments[all[len(all)-1]]
	at := NameAt{Name: name, Rule: m.what.(*audit.DNS).Rule, Time: m.time(), Addrs: []string{}, Seq: m.seq}
	for i := len(all) - 1; i >= 0 && (len(at.Addrs) < maxAddrs || len(at.Found) < maxAddrs); i-- {
		d := n.r.moments[all[i]].what.(*audit.DNS)
		for _, a := range d.Answers {
			switch {
			case asked(d):
				at.Addrs = further(at.Addrs, a)
			case !slices.Contains(d.Dropped, a): // all that was found, without what was not used
				at.Found = further(at.Found, a)
			}
		}
	}
	return at
}

func further(known []string, addr string) []string {
	if len(known) < maxAddrs && !slices.Contains(known, addr) {
		return append(known, addr)
	}
	return known
}

func (n *scene) flow(m *moment, place int32, f *audit.Flow) {
	switch f.State {
	case audit.FlowOpen:
		if m.x < 0 {
			return
		}
		if n.flows[m.x].latest == 0 { // else a further address is tried
			n.flows[m.x].first = place
		}
		n.flows[m.x].latest = place + 1
	case audit.FlowClose, audit.FlowRevoke:
		if m.x >= 0 {
			n.flows[m.x].latest = 0
		}
	case audit.FlowDeny:
		n.st.Egress.Denied.Flows += max(f.Count, 1)
	}
}

// openFlow is a flow's first record, and 1 + its latest; 0: it is not open.
type openFlow struct{ first, latest int32 }

func (n *scene) egress() Egress {
	e := n.st.Egress
	e.Flows, e.Names = []FlowAt{}, []NameAt{}
	for _, o := range n.flows {
		if o.latest == 0 {
			continue
		}
		m, first := &n.r.moments[o.latest-1], &n.r.moments[o.first]
		f := FlowAt{Flow: *m.what.(*audit.Flow), Opened: first.time(), Seq: first.seq}
		f.By = n.r.known.by(&f.Flow, f.Opened)
		f.Claim, f.ClaimSeq = n.r.claimant(first, first.what.(*audit.Flow))
		e.Flows = append(e.Flows, f)
	}
	slices.SortFunc(e.Flows, func(a, b FlowAt) int { return cmp.Or(a.Opened.Compare(b.Opened), cmp.Compare(a.ID, b.ID)) })
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		e.Names = append(e.Names, n.nameAt(name, n.names[name]))
	}
	return e
}
