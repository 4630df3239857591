package replay

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// TestDisagreements: what is one, and all that is none.
func TestDisagreements(t *testing.T) {
	attempt := func(f audit.Flow) audit.Flow {
		f.State = audit.FlowAttempt
		if f.SrcPort == 0 {
			f.SrcPort = 1000
		}
		if f.Proc == "" {
			f.Proc = "p1"
		}
		return f
	}
	denied := audit.Flow{State: audit.FlowDeny, SrcPort: 1000, Verdict: audit.Deny}
	given := audit.Event{DNS: &audit.DNS{Name: "a.example", Proto: "udp", Answers: []string{"198.18.1.0"}, Verdict: audit.Allow, Synthetic: true}}
	pending := attempt(audit.Flow{DstIP: "198.18.1.0", DstPort: 443, Errno: 115})
	for _, tc := range []struct {
		name string
		want string // rules, and the numbers of the records that are the evidence
		tell func(r *script)
	}{
		{"both", "", func(r *script) { r.flow(audit.Guest, attempt(audit.Flow{})); r.flow(audit.Host, denied) }},
		{"both, the host first", "", func(r *script) { r.flow(audit.Host, denied); r.flow(audit.Guest, attempt(audit.Flow{})) }},
		{"the host alone", "flow-unclaimed [3]", func(r *script) { r.flow(audit.Host, denied) }},
		{"the host alone, and it was let through", "flow-unclaimed [3]", func(r *script) {
			r.flow(audit.Host, audit.Flow{ID: "f1", State: audit.FlowOpen, SrcPort: 1000, Verdict: audit.Allow})
			r.flow(audit.Host, audit.Flow{ID: "f1", State: audit.FlowClose, SrcPort: 1000, Verdict: audit.Allow})
		}},
		{"the host alone, again and again", "flow-unclaimed [3 4]", func(r *script) {
			r.flow(audit.Host, denied)
			again := denied
			again.SrcPort = 1001
			r.flow(audit.Host, again)
		}},
		{"the guest alone", "connect-unseen [3]", func(r *script) { r.flow(audit.Guest, attempt(audit.Flow{})) }},
		{"the guest alone, pending", "connect-unseen [3]", func(r *script) { r.flow(audit.Guest, attempt(audit.Flow{Errno: 115})) }},
		{"the guest alone, to a name that is allowed", "connect-unseen [4]", func(r *script) {
			r.add(audit.Host, audit.KindDNS, given)
			done := pending
			done.Errno = 0
			r.flow(audit.Guest, done)
		}},
		{"given up before the gateway took it", "", func(r *script) { r.add(audit.Host, audit.KindDNS, given); r.flow(audit.Guest, pending) }},
		{"no route", "", func(r *script) { r.flow(audit.Guest, attempt(audit.Flow{Errno: 101})) }},
		{"refused", "", func(r *script) { r.flow(audit.Guest, attempt(audit.Flow{Errno: 111})) }},
		{"loopback", "", func(r *script) {
			r.flow(audit.Guest, attempt(audit.Flow{DstIP: "127.0.0.1", DstPort: 1}))
			r.flow(audit.Guest, attempt(audit.Flow{DstIP: "::1", DstPort: 1}))
			r.flow(audit.Guest, attempt(audit.Flow{DstIP: "::ffff:127.0.0.1", DstPort: 1}))
			r.flow(audit.Guest, attempt(audit.Flow{DstIP: "0.0.0.0", DstPort: 1}))
		}},
		{"its own address", "", func(r *script) {
			r.flow(audit.Guest, attempt(audit.Flow{DstIP: "198.18.0.2", DstPort: 1}))
			r.flow(audit.Guest, attempt(audit.Flow{SrcIP: "10.0.0.1", DstIP: "10.0.0.1", DstPort: 1}))
		}},
		{"the resolver", "", func(r *script) {
			r.flow(audit.Guest, attempt(audit.Flow{DstIP: "198.18.0.1", DstPort: 53}))
			r.flow(audit.Guest, attempt(audit.Flow{Proto: "udp", DstIP: "198.18.0.1", DstPort: 53}))
		}},
		{"a socket for messages, of which none was sent", "", func(r *script) {
			r.flow(audit.Guest, attempt(audit.Flow{Proto: "udp", DstIP: "8.8.8.8", DstPort: 53}))
		}},
		{"a message that nobody sent", "flow-unclaimed [3]", func(r *script) {
			f := denied
			f.Proto = "udp"
			r.flow(audit.Host, f)
		}},
		{"what kernels send", "", func(r *script) {
			r.flow(audit.Host, audit.Flow{State: audit.FlowDeny, Proto: "icmp6", DstIP: "ff02::2", Verdict: audit.Deny})
			r.flow(audit.Host, audit.Flow{State: audit.FlowDeny, Proto: "0", Verdict: audit.Deny, Reason: "no IP packet"})
		}},
		{"late packets of a flow long after its begin", "", func(r *script) {
			r.flow(audit.Guest, attempt(audit.Flow{}))
			r.flow(audit.Host, audit.Flow{ID: "f1", State: audit.FlowOpen, SrcPort: 1000})
			for range 100 {
				r.exec("p2", "", "sleep")
			}
			r.flow(audit.Host, denied)
		}},
		{"the sensor lost something", "", func(r *script) {
			r.flow(audit.Host, denied)
			r.add(audit.Guest, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: "kernel_ring", What: "flow", Count: 3}})
		}},
		{"the sensor lost something else", "flow-unclaimed [3]", func(r *script) {
			r.flow(audit.Host, denied)
			r.add(audit.Guest, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: "kernel_ring", What: "exec", Count: 3}})
		}},
		{"the sensor lost something long before", "flow-unclaimed [24]", func(r *script) {
			r.add(audit.Guest, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: "kernel_ring", What: "flow", Count: 3}})
			for range 20 {
				r.exec("p2", "", "sleep")
			}
			r.flow(audit.Host, denied)
		}},
		{"denials that were put together", "", func(r *script) {
			r.flow(audit.Guest, attempt(audit.Flow{}))
			r.add(audit.Host, audit.KindFlow, audit.Event{Flow: &audit.Flow{State: audit.FlowDeny, Proto: "tcp", Count: 300, Verdict: audit.Deny}})
		}},
		{"the filter's ring was full", "", func(r *script) {
			r.flow(audit.Guest, attempt(audit.Flow{}))
			r.add(audit.Host, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: "flow_ring", Count: 300}})
		}},
		{"a claim without a port of its own", "", func(r *script) {
			f := attempt(audit.Flow{})
			f.SrcPort = 0
			r.flow(audit.Guest, f)
			r.flow(audit.Host, denied)
		}},
		{"the host's record has the guest's word", "", func(r *script) {
			f := denied
			f.Proc = "p1"
			r.flow(audit.Host, f)
		}},
		{"a guest that gives verdicts", "connect-unseen [3]", func(r *script) {
			r.flow(audit.Guest, attempt(audit.Flow{}))
			r.flow(audit.Guest, denied)
		}},
		{"it is recorded", "", func(r *script) {
			r.flow(audit.Host, denied)
			r.add(audit.Host, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: audit.RuleFlowUnclaimed, Seq: 3}})
		}},
		{"a guest cannot record it", "flow-unclaimed [3]", func(r *script) {
			r.flow(audit.Host, denied)
			r.add(audit.Guest, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: audit.RuleFlowUnclaimed, Seq: 3}})
		}},
	} {
		r := script{}
		r.run(audit.PhaseStart)
		r.exec("p1", "", "sh")
		tc.tell(&r)
		r.run(audit.PhaseEnd)
		if got := disputes(r.story(t)); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func disputes(s *Story) string {
	return ruled(slices.DeleteFunc(slices.Clone(s.Findings().All()), func(f Finding) bool { return !f.Derived }))
}

// ruled is each finding's rule and evidence.
func ruled(list []Finding) string {
	var names []string
	for _, f := range list {
		names = append(names, fmt.Sprint(f.Rule, " ", f.Evidence))
	}
	return strings.Join(names, ", ")
}

// TestUnsettled: nothing is said too early, nor of a run without a sensor, nor where records are not there.
func TestUnsettled(t *testing.T) {
	r := script{}
	r.run(audit.PhaseStart)
	r.exec("p1", "", "sh")
	r.flow(audit.Host, audit.Flow{State: audit.FlowDeny, SrcPort: 1000})
	if got := disputes(r.story(t)); got != "" {
		t.Errorf("while the run goes on: %s", got)
	}
	for len(r.events) < 60 {
		r.exec("p1", "", "sh")
	}
	if got := disputes(r.story(t)); got != "flow-unclaimed [3]" {
		t.Errorf("a minute later: %q", got)
	}
	frames := storetest.Frames("r-1", r.events)
	holed := append(append([]store.Frame{}, frames[:4]...), frames[7:]...)
	s, err := Read(summary(holed), rowsOf(holed))
	if err != nil {
		t.Fatal(err)
	}
	if got := disputes(s); got != "" {
		t.Errorf("beside a hole: %s", got)
	}
	deaf := script{}
	deaf.run(audit.PhaseStart)
	deaf.flow(audit.Host, audit.Flow{State: audit.FlowDeny, SrcPort: 1000})
	deaf.run(audit.PhaseEnd)
	if got := disputes(deaf.story(t)); got != "" {
		t.Errorf("without a sensor: %s", got)
	}
}

// TestDisagreementsShown: connections, timeline and state show them.
func TestDisagreementsShown(t *testing.T) {
	r := script{}
	r.run(audit.PhaseStart)
	r.exec("p1", "", "sh")
	r.flow(audit.Host, audit.Flow{State: audit.FlowDeny, SrcPort: 1000, Verdict: audit.Deny})
	r.flow(audit.Guest, audit.Flow{State: audit.FlowAttempt, Proc: "p1", PID: 7, SrcPort: 1001, DstIP: "192.0.2.2", DstPort: 80})
	r.run(audit.PhaseEnd)
	s := r.story(t)
	c := s.Connections().All()
	if len(c) != 2 || !c[0].Unclaimed || c[0].Unseen || !c[1].Unseen || c[1].State != "attempt" || c[1].Observer != audit.Guest || c[1].By.Name != "sh" {
		t.Errorf("connections: %s", toJSON(t, c))
	}
	frames := storetest.Frames("r-1", r.events)
	direct, err := Disagreements(rowsOf(frames))
	if err != nil || toJSON(t, direct) != toJSON(t, s.Findings().All()) {
		t.Errorf("from the records alone: %v %s", err, toJSON(t, direct))
	}
	for seq, want := range map[uint64]string{3: "flow-unclaimed [3]", 4: "connect-unseen [4]", 5: ""} {
		if got := ruled(s.Findings().About(seq)); got != want {
			t.Errorf("the findings about %d are %q, not %q", seq, got, want)
		}
	}
	if got, want := ruled(s.Findings().Derived()), disputes(s); got != want {
		t.Errorf("derived: %q, not %q", got, want)
	}
	var state bytes.Buffer
	if err := s.StateAt(storetest.Start().Add(time.Hour), 0).Write(&state, storetest.Start(), Options{}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"timeline": string(timeline(t, frames, Options{Width: 80})), "state": state.String()} {
		for _, want := range []string{
			"!! guest and host disagree: flow-unclaimed: the host denied tcp to 192.0.2.1:443, and no process of the guest claims it (see 3)",
			"!! guest and host disagree: connect-unseen: a process of the guest (pid 7) claims a connection over tcp to 192.0.2.2:80 that the host never saw (see 4)",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the %s lacks %q:\n%s", name, want, text)
			}
		}
	}
	if s.StateAt(storetest.Start(), 0).Findings == nil || len(s.StateAt(storetest.Start(), 0).Findings) != 0 {
		t.Error("a disagreement stands in a state before it")
	}
}

// TestRecordedDisagreement: a recorded finding names the first record that shows it, and the model the others.
func TestRecordedDisagreement(t *testing.T) {
	r := script{}
	r.run(audit.PhaseStart)
	r.exec("p1", "", "sh")
	for i := range 3 {
		r.flow(audit.Host, audit.Flow{State: audit.FlowDeny, SrcPort: 1000 + i})
	}
	r.add(audit.Host, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: audit.RuleFlowUnclaimed, Seq: 3, Detail: "as recorded"}})
	r.run(audit.PhaseEnd)
	s := r.story(t)
	if about, derived := s.Findings().About(4), s.Findings().Derived(); len(about) != 1 || about[0].Seq != 6 || len(derived) != 0 {
		t.Errorf("about a further record %s, derived %s", toJSON(t, about), toJSON(t, derived))
	}
	f := s.Findings().All()
	if len(f) != 1 || f[0].Seq != 6 || f[0].Derived || f[0].Detail != "as recorded" || fmt.Sprint(f[0].Evidence) != "[3 4 5]" {
		t.Errorf("got %s", toJSON(t, f))
	}
}

// TestManyDisagreements: a flood of them is summarized.
func TestManyDisagreements(t *testing.T) {
	r := script{}
	r.run(audit.PhaseStart)
	r.exec("p1", "", "sh")
	for i := range 3000 {
		r.flow(audit.Host, audit.Flow{State: audit.FlowDeny, SrcPort: 1 + i, DstIP: fmt.Sprint("192.0.2.", i%250), DstPort: 80})
	}
	r.run(audit.PhaseEnd)
	list := r.story(t).Findings().All()
	if len(list) != maxDisagreements || len(list[0].Evidence) != 12 || !strings.Contains(list[0].Detail, ", 12 times (and 1800 to further destinations are not listed)") {
		t.Errorf("%d findings, the first %s", len(list), toJSON(t, list[0]))
	}
}
