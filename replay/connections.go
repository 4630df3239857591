package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
)

// Connection is one attempt to connect, with its phases in the order in which a waterfall shows
// them: a flow with the question that it rests on and its requests, or a question alone.
type Connection struct {
	Seq      uint64         `json:"seq"` // of the first of the host's records of it, or of the guest's claim if there is no other
	ID       string         `json:"flow,omitempty"`
	Observer audit.Observer `json:"observer"`
	Step     string         `json:"step,omitempty"`
	Name     audit.Text     `json:"name"` // host name, or the address if there is none
	DstIP    string         `json:"dst_ip,omitempty"`
	DstPort  int            `json:"dst_port,omitempty"`
	Proto    string         `json:"proto"` // tcp, udp, ..., or dns for a question that no flow followed
	State    string         `json:"state"` // open, close, deny, revoke, attempt (claimed only), answered or refused (dns only)
	Verdict  audit.Verdict  `json:"verdict,omitempty"`
	Rule     string         `json:"rule,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Start    time.Time      `json:"start"`
	End      *time.Time     `json:"end"` // nil while it is open
	EndSeq   uint64         `json:"end_seq,omitempty"`
	BytesOut uint64         `json:"bytes_out"`
	BytesIn  uint64         `json:"bytes_in"`
	Count    uint64         `json:"count,omitempty"`
	Errno    int            `json:"errno,omitempty"` // of the claim
	Peer     string         `json:"peer,omitempty"`
	SNI      audit.Text     `json:"sni,omitempty"`
	DNS      *Question      `json:"dns,omitempty"`
	Requests []Request      `json:"requests"`
	By       *Actor         `json:"by,omitempty"` // as the guest claims
	Claim    uint64         `json:"claim_seq,omitempty"`
	// Unclaimed: the host observed it, and no process of the guest claims it.
	// Unseen: a process of the guest claims it, and the host did not observe it.
	Unclaimed bool `json:"unclaimed,omitempty"`
	Unseen    bool `json:"unseen,omitempty"`
}

// Question is a DNS query for a Connection.
type Question struct {
	Seq       uint64        `json:"seq"`
	Time      time.Time     `json:"time"`
	Type      string        `json:"type"`
	RCode     string        `json:"rcode"`
	Answers   []string      `json:"answers"`
	Verdict   audit.Verdict `json:"verdict"`
	Rule      string        `json:"rule"`
	Reason    string        `json:"reason,omitempty"`
	LatencyNS int64         `json:"latency_ns,omitempty"`
}

// Request is one HTTP request in a Connection.
type Request struct {
	Seq        uint64        `json:"seq"`
	Start      time.Time     `json:"start"`
	End        time.Time     `json:"end"`
	Method     audit.Text    `json:"method"`
	Path       audit.Text    `json:"path"`
	Status     int           `json:"status,omitempty"`
	Verdict    audit.Verdict `json:"verdict"`
	Rule       string        `json:"rule"`
	Reason     string        `json:"reason,omitempty"`
	Credential string        `json:"credential,omitempty"`
	LLM        string        `json:"llm,omitempty"`
	BytesOut   int64         `json:"bytes_out"`
	BytesIn    int64         `json:"bytes_in"`
}

// Connections are the attempts to connect from the sandbox of a run.
type Connections struct{ story *Story }

// Connections returns the index of the run's connections.
func (s *Story) Connections() Connections { return Connections{s} }

// All returns the connections in the order of their beginning. Callers must not change the list.
func (x Connections) All() []Connection {
	defer x.story.read()()
	return x.story.derived.connections()
}

// waterfall is a list of connections in the making.
type waterfall struct {
	r      *records
	list   []Connection
	flows  []int32         // by number of flow: 1 + index in list
	saw    map[tuple]bool  // what the host saw
	claims map[tuple]int   // 1 + index in list, of what only the guest claims
	used   map[uint64]bool // seqs of questions that a flow rests on
}

func makeConnections(r *records, disputes []disagreement) []Connection {
	w := waterfall{r: r, list: []Connection{}, flows: make([]int32, len(r.flows.numbers.names)), saw: map[tuple]bool{}, claims: map[tuple]int{}, used: map[uint64]bool{}}
	for i := range r.moments {
		w.seen(&r.moments[i])
	}
	for i := range r.moments {
		w.alone(&r.moments[i])
	}
	w.mark(disputes)
	if end, over := r.ended(); over {
		for i := range w.list {
			if c := &w.list[i]; c.State == string(audit.FlowOpen) {
				t := instantOf(max(end, nanos(c.Start)))
				c.End = &t
			}
		}
	}
	slices.SortStableFunc(w.list, func(a, b Connection) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Seq, b.Seq)) })
	return w.list
}

// seen adds a flow that the host observed.
func (w *waterfall) seen(m *moment) {
	if !m.enforced() {
		return
	}
	switch p := m.what.(type) {
	case *audit.Flow:
		w.flow(m, p)
	case *audit.HTTP:
		if n, known := w.r.flows.numbers.of[p.Flow]; known && w.flows[n] > 0 {
			c := &w.list[w.flows[n]-1]
			c.Requests = append(c.Requests, requestOf(m, p))
		}
	}
}

func requestOf(m *moment, h *audit.HTTP) Request {
	return Request{Seq: m.seq, Start: m.time().Add(-max(0, time.Duration(h.DurationNS))), End: m.time(), Method: h.Method, Path: h.Path,
		Status: h.Status, Verdict: h.Verdict, Rule: h.Rule, Reason: h.Reason, Credential: h.Credential, LLM: h.LLM,
		BytesOut: h.BytesOut, BytesIn: h.BytesIn}
}

func (w *waterfall) flow(m *moment, f *audit.Flow) {
	var c *Connection
	if m.x >= 0 && w.flows[m.x] > 0 {
		c = &w.list[w.flows[m.x]-1]
	} else {
		w.list = append(w.list, w.begin(m, f))
		c = &w.list[len(w.list)-1]
		if m.x >= 0 {
			w.flows[m.x] = int32(len(w.list))
		}
	}
	c.State, c.Verdict, c.Reason = string(f.State), f.Verdict, f.Reason
	c.Rule, c.Peer = cmp.Or(f.Rule, c.Rule), cmp.Or(f.Peer, c.Peer)
	c.BytesOut, c.BytesIn = max(c.BytesOut, f.BytesOut), max(c.BytesIn, f.BytesIn)
	if f.State != audit.FlowOpen {
		end := m.time()
		c.End, c.EndSeq = &end, m.seq
	}
	if c.By == nil {
		c.By, c.Claim = w.r.claimant(m, f)
	}
	key, ok := tupleOf(f)
	if ok {
		w.saw[key] = true
	}
	if key.srcPort = 0; w.r.known.byHost {
		w.saw[key] = true
	}
}

func (w *waterfall) begin(m *moment, f *audit.Flow) Connection {
	c := Connection{Seq: m.seq, ID: f.ID, Observer: m.observer, Step: m.step, Name: nameOf(f), DstIP: f.DstIP, DstPort: f.DstPort, Proto: f.Proto,
		Start: m.time(), Count: f.Count, SNI: f.SNI, Requests: []Request{}}
	if f.State == audit.FlowClose || f.State == audit.FlowRevoke { // its opening is not in the record
		c.Start = beganAt(f, c.Start)
	}
	if q := w.question(f.DNSSeq); q != nil {
		c.DNS = q
		w.used[q.Seq] = true
	}
	return c
}

func nameOf(f *audit.Flow) audit.Text {
	if f.Name != "" {
		return f.Name
	}
	return audit.Text(f.DstIP)
}

func (w *waterfall) question(seq uint64) *Question {
	m := w.r.at(seq)
	if m == nil || !m.host() {
		return nil
	}
	d, is := m.what.(*audit.DNS)
	if !is {
		return nil
	}
	q := questionOf(m, d)
	return &q
}

func questionOf(m *moment, d *audit.DNS) Question {
	q := Question{Seq: m.seq, Time: m.time(), Type: d.Type, RCode: d.RCode, Answers: d.Answers, Verdict: d.Verdict, Rule: d.Rule,
		Reason: d.Reason, LatencyNS: d.LatencyNS}
	if q.Answers == nil {
		q.Answers = []string{}
	}
	return q
}

// alone adds DNS queries without a flow, and claims without a flow that the host observed.
func (w *waterfall) alone(m *moment) {
	switch p := m.what.(type) {
	case *audit.DNS:
		if m.host() && asked(p) && !w.used[m.seq] {
			w.list = append(w.list, loneQuestion(m, p))
		}
	case *audit.Flow:
		if p.State == audit.FlowAttempt && !toResolver(p) {
			w.claim(m, p)
		}
	}
}

// claim adds a connection that the guest reports. Repetitions from one socket are counted.
func (w *waterfall) claim(m *moment, f *audit.Flow) {
	key, ok := tupleOf(f)
	ok = ok || m.host() && key.dst.IsValid()
	end := m.time()
	if ok && w.saw[key] {
		return
	}
	if n := w.claims[key]; ok && n > 0 && w.list[n-1].By.Proc == f.Proc {
		c := &w.list[n-1]
		c.Count, c.End, c.EndSeq = max(c.Count, 1)+1, &end, m.seq
		return
	}
	by := w.r.actor(m, f.Proc, f.PID)
	if by == nil {
		by = &Actor{}
	}
	w.list = append(w.list, Connection{Seq: m.seq, Observer: m.observer, Step: m.step, Name: audit.Text(f.DstIP), DstIP: f.DstIP, DstPort: f.DstPort,
		Proto: f.Proto, State: string(f.State), Start: end, End: &end, Errno: f.Errno, Requests: []Request{}, By: by, Claim: m.seq})
	if ok {
		w.claims[key] = len(w.list)
	}
}

func loneQuestion(m *moment, d *audit.DNS) Connection {
	q, end := questionOf(m, d), m.time()
	c := Connection{Seq: m.seq, Observer: m.observer, Step: m.step, Name: d.Name, Proto: "dns", State: "answered", Verdict: d.Verdict, Rule: d.Rule,
		Reason: d.Reason, Start: end.Add(-max(0, time.Duration(d.LatencyNS))), End: &end, EndSeq: m.seq, DNS: &q, Requests: []Request{}}
	if d.Verdict == audit.Deny {
		c.State = "refused"
	}
	return c
}

// mark marks the connections that guest and host disagree about.
func (w *waterfall) mark(list []disagreement) {
	rules := map[uint64]audit.Rule{}
	for _, d := range list {
		rules[d.seq] = d.rule
	}
	for i := range w.list {
		switch rules[w.list[i].Seq] {
		case audit.RuleFlowUnclaimed:
			w.list[i].Unclaimed = true
		case audit.RuleConnectUnseen:
			w.list[i].Unseen = true
		}
	}
}
