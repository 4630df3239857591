// Package learn finds the smallest policy that would have allowed a run's traffic, and presents it as a change of
// a project file. Code in a sandbox, good or bad, caused the traffic: users must review the change before they
// apply it.
package learn

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// maxQuestions bounds the questions of one run. It is more than people read.
const maxQuestions = 1000

// Traffic is the network traffic of a run, as questions to its policy without duplicates. The zero value is not usable; see
// [NewTraffic].
type Traffic struct {
	questions []netpolicy.Question
	seen      map[asked]bool
	flows     map[string]flowEnd // by id
	requests  []*audit.HTTP      // until all flows are known
	more      int                // number of questions beyond the bound
	reasons   map[string]int     // of denials that rules cannot change
	quic      int                // UDP to port 443, for which clients can use TCP
}

// asked is a question as a map key.
type asked struct {
	q netpolicy.Question // without its request
	r netpolicy.Request
}

type flowEnd struct {
	name string
	port netpolicy.Port
}

// NewTraffic returns a Traffic without questions.
func NewTraffic() *Traffic {
	return &Traffic{seen: map[asked]bool{}, flows: map[string]flowEnd{}, reasons: map[string]int{}}
}

// Add adds a record, as JSON. Only host events count: a guest can claim anything.
func (t *Traffic) Add(body []byte) error {
	var r audit.Record
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	switch {
	case r.Observer != audit.Host:
	case r.DNS != nil:
		t.addDNS(r.DNS)
	case r.Flow != nil:
		t.addFlow(r.Flow)
	case r.HTTP != nil:
		t.requests = append(t.requests, r.HTTP)
	}
	return nil
}

func (t *Traffic) ask(q netpolicy.Question) {
	key := asked{q: q}
	if key.q.Request = nil; q.Request != nil {
		key.r = *q.Request
	}
	switch {
	case t.seen[key]:
	case len(t.questions) == maxQuestions:
		t.more++
	default:
		t.seen[key] = true
		t.questions = append(t.questions, q)
	}
}

// otherReason counts a denial that no rule would change, and reports whether it was one.
func (t *Traffic) otherReason(v audit.Verdict, reason string) bool {
	if v != audit.Deny || netpolicy.IsReason(reason) || wantsDirect(reason) {
		return false
	}
	t.reasons[reason]++
	return true
}

// wantsDirect reports whether the gateway denied a flow because it cannot carry its protocol.
func wantsDirect(reason string) bool { return strings.Contains(reason, "mode: direct") }

func (t *Traffic) addDNS(d *audit.DNS) {
	if t.otherReason(d.Verdict, d.Reason) {
		return
	}
	name, ok := netpolicy.Name(string(d.Name))
	if !ok {
		t.reasons["not a host name"]++
		return
	}
	t.ask(netpolicy.Question{Name: name})
	if d.Verdict != audit.Deny {
		return
	}
	for _, s := range d.Dropped { // the name had no other address
		if a, err := netip.ParseAddr(s); err == nil {
			t.ask(netpolicy.Question{Name: name, Addr: a.Unmap()})
		}
	}
}

func (t *Traffic) addFlow(f *audit.Flow) {
	port := netpolicy.Port{Proto: f.Proto, Number: uint16(f.DstPort)}
	if f.State == audit.FlowAttempt || f.State != audit.FlowRevoke && t.otherReason(f.Verdict, f.Reason) {
		return
	}
	if f.Proto != "tcp" && f.Proto != "udp" || f.DstPort < 1 || f.DstPort > 0xffff {
		t.reasons["neither TCP nor UDP"]++
		return
	}
	q := netpolicy.Question{Port: port}
	if wantsDirect(f.Reason) {
		q.Via = netpolicy.Direct
	}
	if name, ok := netpolicy.Name(string(f.Name)); ok {
		q.Name = name
		if f.ID != "" {
			t.flows[f.ID] = flowEnd{name, port}
		}
		q.Addr = reached(f)
	} else if a, err := netip.ParseAddr(f.DstIP); err == nil {
		q.Addr = a.Unmap()
	} else {
		return
	}
	if port == (netpolicy.Port{Proto: "udp", Number: 443}) && f.Verdict == audit.Deny {
		t.quic++
		if q.Name != "" {
			t.ask(netpolicy.Question{Name: q.Name})
		}
		return
	}
	t.ask(q)
}

// reached returns the special address that a name resolved to, if any.
func reached(f *audit.Flow) netip.Addr {
	at := netip.Addr{}
	if peer, err := netip.ParseAddrPort(f.Peer); err == nil {
		at = peer.Addr().Unmap()
	} else if a, err := netip.ParseAddr(f.DstIP); err == nil && !netpolicy.Synthetic.Contains(a) {
		at = a.Unmap()
	}
	if _, special := netpolicy.Special(at); !special {
		return netip.Addr{} // an interchangeable public address
	}
	return at
}

// notes ends the collection and describes what is not among the questions.
func (t *Traffic) notes() []string {
	for _, h := range t.requests {
		if !t.otherReason(h.Verdict, h.Reason) {
			t.addRequest(h)
		}
	}
	t.requests = nil
	var notes []string
	for _, reason := range slices.Sorted(maps.Keys(t.reasons)) {
		notes = append(notes, fmt.Sprintf("denied under any rules, %s: %s", times(t.reasons[reason]), reason))
	}
	if t.quic > 0 {
		notes = append(notes, "QUIC (udp/443) was left out, "+times(t.quic)+": clients fall back to TCP")
	}
	if t.more > 0 {
		notes = append(notes, fmt.Sprintf("only the first %d different questions were examined; %d records had others", maxQuestions, t.more))
	}
	return notes
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// addRequest adds a request, whose port is that of its flow.
func (t *Traffic) addRequest(h *audit.HTTP) {
	flow, ok := t.flows[h.Flow]
	if !ok {
		host, port, err := netpolicy.SplitPort(string(h.Host))
		name, isName := netpolicy.Name(host)
		if err != nil || !isName {
			return
		}
		if port == 0 {
			port = 443
		}
		flow = flowEnd{name, netpolicy.Port{Proto: "tcp", Number: port}}
	}
	path, _, _ := strings.Cut(string(h.Path), "?")
	t.ask(netpolicy.Question{Name: flow.name, Port: flow.port, Request: &netpolicy.Request{Method: string(h.Method), Path: path}})
}
