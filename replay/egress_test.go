package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// traffic is a run that went out: an allowed fetch, requests, a direct flow,
// refusals, a change of the policy, and names that are meant to deceive a reader.
func traffic() []store.Frame {
	var events []audit.Event
	add := func(ms int, o audit.Observer, k audit.Kind, e audit.Event) {
		e.Time, e.Observer, e.Kind = storetest.Start().Add(time.Duration(ms)*time.Millisecond), o, k
		events = append(events, e)
	}
	const host, guest = audit.Host, audit.Guest
	digest := func(c string) string { return "sha256-" + strings.Repeat(c, 64) }
	exec := func(ms, pid int, argv ...audit.Text) {
		add(ms, guest, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: fmt.Sprint("b-", pid), PID: pid, PPID: 1, Exe: "/usr/bin/" + argv[0], Argv: argv}})
	}
	attempt := func(ms, pid, port int, dst string, dstPort int) {
		add(ms, guest, audit.KindFlow, audit.Event{Flow: &audit.Flow{Proc: fmt.Sprint("b-", pid), PID: pid, State: audit.FlowAttempt, Proto: "tcp",
			SrcIP: "198.18.0.2", SrcPort: port, DstIP: dst, DstPort: dstPort, Errno: 115}})
	}
	flow := func(ms int, f audit.Flow) {
		f.Proto, f.SrcIP = "tcp", "198.18.0.2"
		add(ms, host, audit.KindFlow, audit.Event{Flow: &f})
	}
	add(0, host, audit.KindRun, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Project: "shop", PolicyDigest: digest("a")}})
	add(1, host, audit.KindPolicy, audit.Event{Policy: &audit.Policy{Generation: 1, Digest: digest("a"), Rules: []audit.Text{
		"*.example.com tcp/443", `api.example.net tcp/443 http methods=["GET"] paths=["/v1/*"]`, "db.example.org tcp/5432 direct"}}})
	exec(10, 100, "curl", "https://www.example.com/x")
	add(20, host, audit.KindDNS, audit.Event{DNS: &audit.DNS{Name: "www.example.com", Type: "A", Proto: "udp", RCode: "NOERROR", Answers: []string{"198.18.1.0"},
		TTL: 60, Verdict: audit.Allow, Rule: "*.example.com tcp/443", Synthetic: true, LatencyNS: 900e3, Generation: 1}})
	add(21, host, audit.KindDNS, audit.Event{DNS: &audit.DNS{Name: "www.example.com", Type: "AAAA", Proto: "udp", RCode: "NOERROR",
		Verdict: audit.Allow, Rule: "*.example.com tcp/443", LatencyNS: 90e3, Generation: 1}})
	add(29, host, audit.KindDNS, audit.Event{DNS: &audit.DNS{Name: "www.example.com", Type: "A", RCode: "NOERROR", Answers: []string{"93.184.216.34"},
		TTL: 300, Verdict: audit.Allow, Rule: "*.example.com tcp/443", Upstream: "udp://192.0.2.53:53", LatencyNS: 8e6, Generation: 1}})
	flow(30, audit.Flow{ID: "f1", State: audit.FlowOpen, SrcPort: 40000, DstIP: "198.18.1.0", DstPort: 443, Name: "www.example.com", Verdict: audit.Allow,
		Rule: "*.example.com tcp/443", DNSSeq: 4, Generation: 1, Peer: "93.184.216.34:443"})
	attempt(38, 100, 40000, "198.18.1.0", 443) // comes after what the host saw of it
	flow(530, audit.Flow{ID: "f1", State: audit.FlowClose, SrcPort: 40000, DstIP: "198.18.1.0", DstPort: 443, Name: "www.example.com", Verdict: audit.Allow,
		Rule: "*.example.com tcp/443", DNSSeq: 4, Generation: 1, Peer: "93.184.216.34:443", BytesOut: 1800, BytesIn: 5 << 20, PacketsOut: 12, PacketsIn: 3600, DurationNS: 500e6})
	exec(540, 101, "python3", "agent.py")
	add(550, host, audit.KindDNS, audit.Event{DNS: &audit.DNS{Name: "c2VjcmV0.evil.example", Type: "TXT", Proto: "tcp", RCode: "REFUSED",
		Verdict: audit.Deny, Rule: "default", Reason: "no rule names this destination", Generation: 1}})
	add(560, host, audit.KindDNS, audit.Event{DNS: &audit.DNS{Name: "db.example.org", Type: "A", Proto: "udp", RCode: "NOERROR",
		Answers: []string{"93.184.216.40", "93.184.216.41"}, Chain: []audit.Text{"db.example.org", "a b.example\x1b[2J"}, TTL: 30, Verdict: audit.Allow,
		Rule: "db.example.org tcp/5432 direct", Dropped: []string{"10.0.0.1", "169.254.169.254"}, Upstream: "tls://9.9.9.9#dns.quad9.net", LatencyNS: 23e6, Generation: 1}})
	attempt(565, 101, 40001, "93.184.216.40", 5432)
	flow(566, audit.Flow{ID: "f2", State: audit.FlowOpen, SrcPort: 40001, DstIP: "93.184.216.40", DstPort: 5432, Name: "db.example.org", Verdict: audit.Allow,
		Rule: "db.example.org tcp/5432 direct", DNSSeq: 11, Generation: 1})
	flow(570, audit.Flow{State: audit.FlowDeny, SrcPort: 40002, DstIP: "2001:db8::1", DstPort: 443, Verdict: audit.Deny, Rule: "default",
		Reason: "no rule names this destination", Count: 41, Generation: 1})
	attempt(571, 101, 40002, "2001:db8::1", 443)
	flow(580, audit.Flow{State: audit.FlowDeny, SrcPort: 40003, DstIP: "198.18.1.0", DstPort: 443, Name: "www.example.com", SNI: "evil.example  rule *.example.com\u202e",
		Verdict: audit.Deny, Rule: "*.example.com tcp/443", Reason: "the client asked for another name", Generation: 1})
	add(585, host, audit.KindFlow, audit.Event{Flow: &audit.Flow{State: audit.FlowDeny, Verdict: audit.Deny, Rule: "default", Reason: "IP fragment", Count: 5000, Generation: 1}})
	flow(590, audit.Flow{ID: "f3", State: audit.FlowOpen, SrcPort: 40004, DstIP: "198.18.1.1", DstPort: 443, Name: "api.example.net", Verdict: audit.Allow,
		Rule: "api.example.net tcp/443 http", DNSSeq: 2, Generation: 1})
	attempt(591, 101, 40004, "198.18.1.1", 443)
	http := func(ms, status int, v audit.Verdict, reason string, method, path audit.Text) {
		add(ms, host, audit.KindHTTP, audit.Event{HTTP: &audit.HTTP{Flow: "f3", Proto: "HTTP/2.0", Method: method, Host: "api.example.net", Path: path, Status: status,
			BytesOut: 12, BytesIn: 4096, Verdict: v, Rule: "api.example.net tcp/443 http", Reason: reason, Generation: 1, DurationNS: 80e6}})
	}
	http(600, 200, audit.Allow, "", "GET", "/v1/items?q=a b")
	http(610, 403, audit.Deny, "the rule does not allow this path", "GET", "/v2/\r\nHost: \x1b]0;x\x07")
	http(620, 503, audit.Allow, "", "GET", "/v1/down")
	add(700, host, audit.KindPolicy, audit.Event{Policy: &audit.Policy{Generation: 2, Digest: digest("b"), Previous: digest("a"), Rules: []audit.Text{"*.example.com tcp/443"}}})
	flow(701, audit.Flow{ID: "f2", State: audit.FlowRevoke, SrcPort: 40001, DstIP: "93.184.216.40", DstPort: 5432, Name: "db.example.org", Verdict: audit.Deny,
		Rule: "default", Reason: "no rule names this destination", Generation: 2, BytesOut: 400, BytesIn: 900, PacketsOut: 4, PacketsIn: 5, DurationNS: 135e6})
	add(710, host, audit.KindProbe, audit.Event{Probe: &audit.Probe{Name: "quic", Family: "ipv6", Blocked: true, Recorded: true, Run: "r-2", Seq: 12}})
	add(711, host, audit.KindProbe, audit.Event{Probe: &audit.Probe{Name: "dns-tunnel", Blocked: false, Detail: "12 bytes \x1b[31marrived"}})
	add(711, host, audit.KindProbe, audit.Event{Probe: &audit.Probe{Name: "control/https", Recorded: true, Run: "r-2", Seq: 9}})
	add(711, host, audit.KindProbe, audit.Event{Probe: &audit.Probe{Name: "control/git", Blocked: true, Detail: "no answer"}})
	add(712, guest, audit.KindFlow, audit.Event{Flow: &audit.Flow{Proc: "b-101", State: audit.FlowAttempt, Proto: "udp", DstIP: "198.18.0.1", DstPort: 53}})
	return storetest.Frames("r-1", events)
}

func TestEgressTimeline(t *testing.T) {
	for name, opt := range map[string]Options{
		"egress.txt":     {},
		"egress-120.txt": {Width: 120, Relative: true, Color: true, Kinds: []audit.Kind{audit.KindFlow, audit.KindPolicy}},
	} {
		t.Run(name, func(t *testing.T) {
			got := timeline(t, traffic(), opt)
			golden(t, name, got)
			checkClean(t, got, opt)
		})
	}
}

func TestEgressState(t *testing.T) {
	frames := traffic()
	for name, after := range map[string]time.Duration{"egress-open.txt": 620 * time.Millisecond, "egress-revoked.txt": time.Second} {
		t.Run(name, func(t *testing.T) {
			s, err := StateAt(summary(frames), rowsOf(frames), storetest.Start().Add(after), 3)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := s.Write(&out, storetest.Start(), Options{}); err != nil {
				t.Fatal(err)
			}
			golden(t, name, out.Bytes())
			checkClean(t, out.Bytes(), Options{})
		})
	}
}

// TestGuestMakesNoVerdicts: flows, names and policies that a guest claims are no state of the sandbox.
func TestGuestMakesNoVerdicts(t *testing.T) {
	frames := traffic()
	var claims []audit.Event
	for _, f := range frames {
		var r audit.Record
		if err := json.Unmarshal(f.Body, &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind == audit.KindExec || r.Kind == audit.KindRun {
			continue
		}
		r.Observer = audit.Guest
		claims = append(claims, r.Event)
	}
	frames = storetest.Frames("r-1", claims)
	s, err := StateAt(store.NewRun("r-1"), rowsOf(frames), storetest.Start().Add(time.Hour), 0)
	if err != nil {
		t.Fatal(err)
	}
	if e := s.Egress; len(e.Flows)+len(e.Names) > 0 || e.Generation != 0 || e.Denied != (Denied{}) {
		t.Errorf("a guest's claims became %+v", e)
	}
}

// TestFlowsEndWithTheRun: Custody may have died before it wrote that they closed.
func TestFlowsEndWithTheRun(t *testing.T) {
	end := audit.Event{Time: storetest.Start().Add(690 * time.Millisecond), Observer: audit.Host, Kind: audit.KindRun,
		Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusInterrupted}}
	frames := traffic()
	for i, row := range rowSlice(t, frames) {
		if row.Time.After(end.Time) {
			frames = append(frames[:i], storetest.Frame("r-1", row.Seq, end))
			break
		}
	}
	at := func(d time.Duration) int {
		s, err := StateAt(summary(frames), rowsOf(frames), storetest.Start().Add(d), 0)
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Egress.Flows)
	}
	if before, after := at(650*time.Millisecond), at(time.Hour); before != 2 || after != 0 {
		t.Errorf("%d flows are open before the end and %d after it", before, after)
	}
}

// TestJoinOracle compares the join of random flows and attempts, as a printer
// makes it, with a slow answer that looks at all attempts of the same tuple.
func TestJoinOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	joined := 0
	for range 300 {
		x := newIndex()
		var claims []audit.Record
		now := storetest.Start()
		for i := range 30 {
			now = now.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
			f := randomFlow(random)
			f.State, f.Proc, f.PID = audit.FlowAttempt, fmt.Sprint("p", i), i+1
			r := audit.Record{Event: audit.Event{Time: now, Observer: audit.Guest, Kind: audit.KindFlow, Flow: &f}}
			claims = append(claims, r)
			x.flow(&r)
		}
		for range 30 {
			f, at := randomFlow(random), storetest.Start().Add(time.Duration(random.IntN(60000))*time.Millisecond)
			f.DurationNS = random.Int64N(5e9)
			distance := func(pid int) time.Duration {
				return claims[pid-1].Time.Sub(at.Add(-time.Duration(f.DurationNS))).Abs()
			}
			want := 0
			for _, c := range claims {
				same := c.Flow.Proto == f.Proto && c.Flow.SrcPort == f.SrcPort && c.Flow.DstIP == f.DstIP && c.Flow.DstPort == f.DstPort
				if same && f.SrcPort != 0 && distance(c.Flow.PID) <= joinWithin && (want == 0 || distance(c.Flow.PID) < distance(want)) {
					want = c.Flow.PID
				}
			}
			got := 0
			fmt.Sscanf(x.by(&f, at), "pid[%d]", &got)
			if got != want && (got == 0 || want == 0 || distance(got) != distance(want)) {
				t.Fatalf("%+v at %v is by %d, want %d", f, at, got, want)
			}
			if got != 0 {
				joined++
			}
		}
	}
	if joined < 1000 {
		t.Errorf("only %d flows found an attempt", joined)
	}
}

func randomFlow(random *rand.Rand) audit.Flow {
	return audit.Flow{
		Proto: []string{"tcp", "udp"}[random.IntN(2)], SrcPort: random.IntN(3),
		DstIP: []string{"192.0.2.1", "2001:db8::1"}[random.IntN(2)], DstPort: 443,
	}
}

// TestJoin: which process a flow that the host observed belongs to.
func TestJoin(t *testing.T) {
	at := func(s int) time.Time { return storetest.Start().Add(time.Duration(s) * time.Second) }
	x := newIndex()
	record := func(s int, o audit.Observer, f audit.Flow) {
		f.Proto = "tcp"
		x.flow(&audit.Record{Event: audit.Event{Time: at(s), Observer: o, Kind: audit.KindFlow, Flow: &f}})
	}
	x.exec(1, &audit.Exec{Proc: "sh", PID: 7, Argv: []audit.Text{"sh"}})
	record(1, audit.Guest, audit.Flow{State: audit.FlowAttempt, Proc: "sh", PID: 7, SrcPort: 1, DstIP: "::ffff:192.0.2.1", DstPort: 80})
	x.exec(2, &audit.Exec{Proc: "sh", PID: 7, Argv: []audit.Text{"/bin/true"}}) // the same process later
	record(2, audit.Guest, audit.Flow{State: audit.FlowAttempt, Proc: "fork", PID: 9, Parent: "sh", SrcPort: 2, DstIP: "192.0.2.1", DstPort: 80})
	record(1, audit.Host, audit.Flow{ID: "long", State: audit.FlowOpen, SrcPort: 1, DstIP: "192.0.2.1", DstPort: 80})
	record(3, audit.Guest, audit.Flow{State: audit.FlowOpen, Proc: "liar", PID: 1, SrcPort: 3, DstIP: "192.0.2.1", DstPort: 80})
	for _, tc := range []struct {
		name, want string
		s          int
		f          audit.Flow
	}{
		{"open", "sh[7]", 1, audit.Flow{ID: "long", SrcPort: 1, DstIP: "192.0.2.1", DstPort: 80}},
		{"close, by its id", "sh[7]", 500, audit.Flow{ID: "long", SrcPort: 1, DstIP: "192.0.2.1", DstPort: 80, DurationNS: 1}},
		{"by its duration", "sh[7]", 500, audit.Flow{ID: "other", SrcPort: 1, DstIP: "192.0.2.1", DstPort: 80, DurationNS: 499e9}},
		{"too late", "", 12, audit.Flow{SrcPort: 1, DstIP: "192.0.2.1", DstPort: 80}},
		{"forked", "a child of true[9]", 2, audit.Flow{SrcPort: 2, DstIP: "192.0.2.1", DstPort: 80}},
		{"other port", "", 1, audit.Flow{SrcPort: 1, DstIP: "192.0.2.1", DstPort: 81}},
		{"no port", "", 1, audit.Flow{DstIP: "192.0.2.1", DstPort: 80}},
		{"no verdict of a guest's", "", 3, audit.Flow{SrcPort: 3, DstIP: "192.0.2.1", DstPort: 80}},
		{"named by the event", "true[7]", 90, audit.Flow{Proc: "sh", SrcPort: 9, DstIP: "192.0.2.1", DstPort: 80}},
		{"the event's word before the nearest", "pid[5]", 1, audit.Flow{Proc: "unseen", PID: 5, SrcPort: 1, DstIP: "192.0.2.1", DstPort: 80}},
	} {
		tc.f.Proto = "tcp"
		if got := x.by(&tc.f, at(tc.s)); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestManyAttempts: a process that sends without end from one socket costs no memory without end.
func TestManyAttempts(t *testing.T) {
	j := newJoins()
	f := audit.Flow{Proc: "p", Proto: "udp", SrcPort: 1, DstIP: "192.0.2.1", DstPort: 53}
	for i := range 100000 {
		j.claim(&f, uint64(i), storetest.Start().Add(time.Duration(i)*time.Millisecond), culprit{pid: 1}, false)
	}
	key, _ := tupleOf(&f)
	if n := len(j.attempts[key]); n != 100 {
		t.Errorf("%d attempts are kept", n)
	}
	if _, found := j.of(&f, storetest.Start().Add(99*time.Second)); !found {
		t.Error("the last ones are not found")
	}
}

// TestAttemptsWithoutPorts: the host observes attempts without source ports. A flow is one process's only if no other process tried the
// same at the time.
func TestAttemptsWithoutPorts(t *testing.T) {
	at := storetest.Start()
	try := func(j joins, proc string, after time.Duration) {
		f := audit.Flow{Proc: proc, Proto: "tcp", DstIP: "192.0.2.1", DstPort: 443, State: audit.FlowAttempt}
		j.claim(&f, 1, at.Add(after), culprit{name: proc}, true)
	}
	flow := audit.Flow{Proto: "tcp", SrcPort: 40000, DstIP: "192.0.2.1", DstPort: 443, State: audit.FlowDeny}
	for name, tc := range map[string]struct {
		tries func(joins)
		want  string
	}{
		"one process":             {func(j joins) { try(j, "a", 0); try(j, "a", 3*time.Second) }, "a"},
		"another, long before":    {func(j joins) { try(j, "b", -time.Minute); try(j, "a", 0) }, "a"},
		"another, at this time":   {func(j joins) { try(j, "b", -time.Second); try(j, "a", 0) }, ""},
		"nobody, at this time":    {func(j joins) { try(j, "a", time.Minute) }, ""},
		"claimed by a guest only": {func(j joins) { f := flow; f.SrcPort = 0; j.claim(&f, 1, at, culprit{name: "a"}, false) }, ""},
	} {
		j := newJoins()
		tc.tries(j)
		a, found := j.of(&flow, at)
		if found != (tc.want != "") || a.by.name != tc.want {
			t.Errorf("%s: %q, found %v, want %q", name, a.by.name, found, tc.want)
		}
	}
}
