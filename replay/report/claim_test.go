package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// made up records: host and guest are who saw them.
const host, guest = audit.Host, audit.Guest

// tape makes the rows of a run.
type tape struct {
	run  string
	seq  uint64
	step string
	rows []store.Row
}

func (p *tape) add(o audit.Observer, k audit.Kind, e audit.Event) uint64 {
	p.seq++
	e.Time, e.Observer, e.Kind, e.Step = storetest.Start().Add(time.Duration(p.seq)*time.Second), o, k, p.step
	p.put(e)
	return p.seq
}

func (p *tape) put(e audit.Event) {
	f := storetest.Frame(p.run, p.seq, e)
	head, err := store.ParseHead(f.Body)
	if err != nil {
		panic(err)
	}
	p.rows = append(p.rows, store.Row{Head: head, Body: f.Body, Salt: f.Salt})
}

func newTape(run string) *tape {
	p := &tape{run: run}
	p.add(host, audit.KindRun, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Project: "p", Tier: "qemu-kvm", Mode: "strict", PolicyDigest: "d1", RulesetDigest: "r1"}})
	return p
}

func (p *tape) done() Run {
	p.step = ""
	p.add(host, audit.KindRun, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusDone}})
	return p.all()
}

// all is the run as verification would have found it.
func (p *tape) all() Run {
	r := proof.Report{Run: p.run, Records: uint64(len(p.rows)), Last: p.seq, HoldsTo: p.seq}
	return Run{Run: summary(p.rows), Rows: asRows(p.rows), Verification: Verified(r, nil, made)}
}

func (p *tape) secret(op audit.SecretOp, ttl time.Duration) uint64 {
	return p.secretOf(audit.Secret{Name: "git", Broker: "local", Op: op, TTLNS: int64(ttl), Expires: storetest.Start().Add(time.Duration(p.seq+1)*time.Second + ttl)})
}

func (p *tape) secretOf(s audit.Secret) uint64 {
	return p.add(host, audit.KindSecret, audit.Event{Secret: &s})
}

// ask returns the claims of one query.
func ask(t testing.TB, query string, runs ...Run) []Claim {
	t.Helper()
	return askOf(t, query, input("soc2", runs...))
}

func askOf(t testing.TB, query string, in Input) []Claim {
	t.Helper()
	m := controlMap{ID: "x", Controls: []controlDef{{ID: "X1", Queries: []string{query}}}}
	b := &builder{in: in, m: m, queries: map[string]*asked{}, answers: map[string][]Claim{}}
	if err := errors.Join(b.open(t.Context()), b.ask(t.Context()), b.answer(t.Context()), b.collect(t.Context())); err != nil {
		t.Fatal(err)
	}
	return b.report.Controls[0].Claims
}

func seqs(c Claim) (list []uint64) {
	for _, r := range c.Refs {
		list = append(list, r.Seq)
	}
	return list
}

// TestContradictions: each query that can be contradicted is, by the records that do it.
func TestContradictions(t *testing.T) {
	hour := 61 * time.Second
	for _, tc := range []struct {
		query string
		tell  func(p *tape) []uint64 // what is cited
		words string
	}{
		{"credential-life", func(p *tape) []uint64 { return []uint64{p.secret(audit.SecretMint, time.Minute)} }, "NO REVOCATION IS RECORDED of 1 credential"},
		{"credential-life", func(p *tape) []uint64 {
			s := p.secret(audit.SecretMint, hour)
			p.secret(audit.SecretRevoke, 0)
			return []uint64{s}
		}, "PROMISED FOR MORE THAN 60 s"},
		{"credential-life", func(p *tape) []uint64 {
			p.secret(audit.SecretMint, time.Minute)
			s := p.secret(audit.SecretRenew, hour)
			p.secret(audit.SecretRevoke, 0)
			return []uint64{s}
		}, "PROMISED FOR MORE THAN 60 s"},
		{"credential-life", func(p *tape) []uint64 {
			p.secret(audit.SecretMint, time.Minute)
			return []uint64{p.secretOf(audit.Secret{Op: audit.SecretExpire})}
		}, "RAN OUT OR COULD NOT BE REVOKED"},
		{"credential-use", func(p *tape) []uint64 {
			p.secret(audit.SecretMint, time.Minute)
			p.secret(audit.SecretRevoke, 0)
			return []uint64{p.secret(audit.SecretUse, 0)}
		}, "USED WHILE NOT ALIVE"},
		{"credential-use", func(p *tape) []uint64 {
			p.secret(audit.SecretMint, time.Second)
			p.seq += 5
			return []uint64{p.secret(audit.SecretUse, 0)}
		}, "USED WHILE NOT ALIVE"},
		{"credential-exposure", func(p *tape) []uint64 {
			return []uint64{p.add(host, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: "placeholder-to-other-host"}})}
		}, "A CREDENTIAL TURNED UP"},
		{"findings", func(p *tape) []uint64 {
			return []uint64{p.add(host, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: "dns-sweep"}})}
		}, "TO BE LOOKED AT: 1 finding"},
		{"response", func(p *tape) []uint64 {
			return []uint64{p.add(host, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: "secret-in-dns", Action: "revoke"}})}
		}, "NO EFFECT IS RECORDED"},
		{"allowed", func(p *tape) []uint64 {
			p.add(host, audit.KindPolicy, audit.Event{Policy: &audit.Policy{Generation: 1, Digest: "d1", Rules: []audit.Text{"a.example tcp/443"}}})
			p.add(host, audit.KindFlow, audit.Event{Flow: &audit.Flow{State: audit.FlowOpen, Verdict: audit.Allow, Rule: "a.example tcp/443", Generation: 1}})
			return []uint64{p.add(host, audit.KindFlow, audit.Event{Flow: &audit.Flow{State: audit.FlowOpen, Verdict: audit.Allow, Rule: "default", Generation: 1}})}
		}, "LET OUT WITHOUT A RULE"},
		{"policy", func(p *tape) []uint64 {
			return []uint64{p.add(host, audit.KindPolicy, audit.Event{Policy: &audit.Policy{Generation: 1, Digest: "d2"}})}
		}, "A POLICY DOES NOT FOLLOW"},
		{"policy", func(p *tape) []uint64 {
			p.add(host, audit.KindPolicy, audit.Event{Policy: &audit.Policy{Generation: 1, Digest: "d1"}})
			return []uint64{p.add(host, audit.KindPolicy, audit.Event{Policy: &audit.Policy{Generation: 2, Digest: "d3", Previous: "d2"}})}
		}, "A POLICY DOES NOT FOLLOW"},
		{"losses", func(p *tape) []uint64 {
			return []uint64{p.add(guest, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: "kernel_ring", Count: 42}})}
		}, "42 events and 0 bytes are not in the record; by stage: 1 kernel_ring"},
		{"sequence", func(p *tape) []uint64 {
			p.seq += 3
			return []uint64{p.add(host, audit.KindVM, audit.Event{VM: &audit.VM{Op: "restore"}})}
		}, "3 SEQUENCE NUMBERS ARE MISSING in 1 run"},
		{"commands", func(p *tape) []uint64 {
			return []uint64{p.add(guest, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: "a"}})}
		}, "NO END IS RECORDED of 1 process"},
		{"steps", func(p *tape) []uint64 {
			return []uint64{p.add(host, audit.KindStep, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Name: "s"}})}
		}, "NO END IS RECORDED of 1 step"},
		{"probes", func(p *tape) []uint64 {
			p.add(host, audit.KindProbe, audit.Event{Probe: &audit.Probe{Name: "dns/x", Blocked: true, Recorded: true}})
			a := p.add(host, audit.KindProbe, audit.Event{Probe: &audit.Probe{Name: "dns/y", Blocked: false, Recorded: true}})
			return []uint64{a, p.add(host, audit.KindProbe, audit.Event{Probe: &audit.Probe{Name: "control/z", Blocked: true, Recorded: true}})}
		}, "OF THE RED TEAM'S ATTEMPTS 2 got out"},
		{"disagreement", func(p *tape) []uint64 {
			return []uint64{p.add(host, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: audit.RuleConnectUnseen}})}
		}, "GUEST AND HOST DISAGREE"},
	} {
		p := newTape("r-1")
		p.step = "s"
		want := tc.tell(p)
		claims := ask(t, tc.query, p.done())
		i := slices.IndexFunc(claims, func(c Claim) bool { return c.Status == Contradicts })
		if i < 0 || !strings.Contains(claims[i].Text, tc.words) || !slices.Equal(seqs(claims[i]), want) {
			t.Errorf("%s: want %q citing %v, got %+v", tc.query, tc.words, want, claims)
		}
	}
}

// TestUnobserved: what an isolation tier cannot observe is lacking evidence and no loss, but only if the host declares it.
func TestUnobserved(t *testing.T) {
	gap := audit.Event{Gap: &audit.Gap{Stage: audit.StageDriver, What: "reads of files", Cause: "no guest kernel"}}
	p := newTape("r-1")
	seq := p.add(host, audit.KindGap, gap)
	claims := ask(t, "losses", p.done())
	if len(claims) != 2 || claims[0].Status != Lacks || !slices.Equal(seqs(claims[0]), []uint64{seq}) || claims[1].Status != Supports {
		t.Errorf("declared by the host: %+v", claims)
	}
	p = newTape("r-1")
	p.add(guest, audit.KindGap, gap)
	if claims := ask(t, "losses", p.done()); len(claims) != 1 || claims[0].Status != Contradicts {
		t.Errorf("declared by the guest: %+v", claims)
	}
	p = newTape("r-1")
	p.add(host, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: "a"}})
	p.add(host, audit.KindExit, audit.Event{Exit: &audit.Exit{Proc: "a"}})
	if claims := ask(t, "commands", p.done()); claims[0].Basis != ByHost {
		t.Errorf("commands that the host observed are %s", claims[0].Basis)
	}
}

// TestHostObservesAttempts: attempts that the host observed are no claims of a sensor, and what a tier cannot observe is no declared loss.
func TestHostObservesAttempts(t *testing.T) {
	p := newTape("r-1")
	p.add(host, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: audit.StageDriver, What: "reads of files", Cause: "no guest kernel"}})
	p.add(host, audit.KindFlow, audit.Event{Flow: &audit.Flow{State: audit.FlowAttempt, Proto: "tcp", DstIP: "192.0.2.1", DstPort: 443, Proc: "a", PID: 7}})
	p.add(host, audit.KindFlow, audit.Event{Flow: &audit.Flow{State: audit.FlowDeny, Proto: "tcp", DstIP: "192.0.2.1", DstPort: 443, Verdict: audit.Deny, Rule: "default"}})
	run := p.done()
	claims := ask(t, "disagreement", run)
	if len(claims) != 1 || claims[0].Status != Supports || claims[0].Basis != ByHost || !strings.Contains(claims[0].Text, "1 attempt, and 1 beginning or denial") {
		t.Errorf("%+v", claims)
	}
	for _, l := range build(t, input("soc2", run)).Limits {
		if strings.Contains(l, "declare losses") {
			t.Errorf("a limit: %s", l)
		}
	}
}

// TestGuestCannotTell: what only the host can know is not taken from the guest's records.
func TestGuestCannotTell(t *testing.T) {
	p := newTape("r-1")
	good := p.done()
	p = newTape("r-1")
	p.add(guest, audit.KindPolicy, audit.Event{Policy: &audit.Policy{Generation: 1, Digest: "d1"}})
	p.add(guest, audit.KindSecret, audit.Event{Secret: &audit.Secret{Op: audit.SecretMint}})
	p.add(guest, audit.KindFlow, audit.Event{Flow: &audit.Flow{State: audit.FlowDeny, Verdict: audit.Deny, Rule: "default"}})
	p.add(guest, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: "dns-tunnel"}})
	p.add(guest, audit.KindProbe, audit.Event{Probe: &audit.Probe{Name: "x", Blocked: true, Recorded: true}})
	p.add(guest, audit.KindRun, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusFailed}})
	p.add(guest, audit.KindLLM, audit.Event{LLM: &audit.LLM{Model: "m"}})
	lies := p.done()
	for _, q := range []string{"policy", "allowed", "denied", "credential-life", "findings", "detection", "probes", "closed", "model-calls", "isolation", "on-failure", "recipients"} {
		a, b := ask(t, q, good), ask(t, q, lies)
		if len(a) != len(b) || a[0].Text != b[0].Text || a[0].Status != b[0].Status {
			t.Errorf("%s: %+v became %+v", q, a, b)
		}
	}
}

// TestUnproven: records that are not verified support nothing, and one that fails is shouted.
func TestUnproven(t *testing.T) {
	for _, tc := range []struct {
		name  string
		v     func(r Run) Verification
		state Status // of what verification says
		words string
	}{
		{"unchecked", func(Run) Verification { return Verification{} }, Lacks, "was not verified"},
		{"checking", func(Run) Verification { return Verification{State: "checking"} }, Lacks, "was not verified"},
		{"unknown key", func(r Run) Verification {
			return Verification{State: Cannot, Name: verdict.ErrUnknownKey.Name(), Number: 80, Report: r.Verification.Report}
		}, Lacks, "cannot be judged (key-unknown 80)"},
		{"fails", func(r Run) Verification {
			return Verification{State: Fails, Name: "record-altered", Number: 10, Text: "seq 7"}
		}, Contradicts, "THE RECORD DOES NOT HOLD (record-altered 10): seq 7"},
		{"another number of records", func(r Run) Verification {
			less := *r.Verification.Report
			less.Records--
			return Verified(less, nil, made)
		}, Contradicts, "were read for this report"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := bundled(t, "agent", nil)
			r.Verification = tc.v(r)
			for _, f := range Frameworks() {
				for _, c := range build(t, input(f.ID, r)).Controls {
					for _, claim := range c.Claims {
						switch {
						case claim.Status == Supports:
							t.Errorf("%s %s: %s", c.ID, claim.Query, claim.Text)
						case claim.Query == "verification" && (claim.Status != tc.state || !strings.Contains(claim.Text, tc.words)):
							t.Errorf("%s: %s", claim.Status, claim.Text)
						}
					}
				}
			}
		})
	}
}

// TestVerified: only what was found makes a record fail.
func TestVerified(t *testing.T) {
	held := proof.Report{Run: "r-1", HoldsTo: 9}
	for _, tc := range []struct {
		err   error
		state State
		name  string
	}{
		{nil, Holds, ""},
		{&verdict.Verdict{Outcome: verdict.ErrDoesNotHold, Finding: verdict.ErrAltered}, Fails, "record-altered"},
		{&verdict.Verdict{Outcome: verdict.ErrCannotBeJudged, Finding: verdict.ErrLive}, Cannot, "run-live"},
		{fmt.Errorf("not what the store shows: %w", &replay.Differences{Total: 1}), Fails, StoreDiffers},
		{fmt.Errorf("not what the store shows: %w", replay.Difference{Seq: 1, Err: replay.ErrAltered}), Fails, StoreDiffers},
		{fmt.Errorf("the store: %w", replay.ErrSummary), Fails, StoreDiffers},
		{context.Canceled, Cannot, ""},
		{errors.New("the store is away"), Cannot, ""},
		{store.ErrUnsigned, Fails, Unsigned},
		{&store.MarkError{Mark: store.Mark{State: store.Unsigned}}, Fails, Unsigned},
		{&store.MarkError{Mark: store.Mark{State: store.Fails}}, Fails, StoreDiffers},
	} {
		if v := Verified(held, tc.err, made); v.State != tc.state || v.Name != tc.name {
			t.Errorf("%v: %+v", tc.err, v)
		}
	}
}

// TestTampered: a report names a changed byte of a real bundle.
func TestTampered(t *testing.T) {
	r := bundled(t, "secret", func(dir string) {
		file := filepath.Join(dir, "00000000000000000001.seg")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(b, []byte(`"project":"secret"`))
		head := bytes.LastIndex(b[:at], []byte("CWF1"))
		b[at+11] = 'S'
		crc(b[head:])
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	report := build(t, input("nist80053", r))
	if s := report.Sources[0].Verification; s.State != Fails || s.Name != "record-altered" {
		t.Fatalf("%+v", s)
	}
	if len(report.Against) == 0 || !strings.Contains(report.Against[0].Text, "THE RECORD DOES NOT HOLD") || report.Tally.Supports > 0 {
		t.Errorf("%+v %+v", report.Tally, report.Against)
	}
	html, _ := contents(t, report)
	if strings.Count(html, "THE RECORD DOES NOT HOLD") < 3 {
		t.Error("the page does not say so everywhere")
	}
}

// TestLive: of a run that is going on, what was sealed counts, and no more.
func TestLive(t *testing.T) {
	p := newTape("r-1")
	p.secret(audit.SecretMint, time.Minute)
	sealed := p.seq
	p.add(host, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: "dns-tunnel"}})
	r := p.all()
	part := proof.Report{Run: p.run, Records: sealed, Last: sealed, HoldsTo: sealed}
	r.Verification = Verified(part, &verdict.Verdict{Outcome: verdict.ErrCannotBeJudged, Finding: verdict.ErrLive}, made)
	report := build(t, input("soc2", r))
	if s := report.Sources[0]; s.Records != sealed || s.LeftOut != 1 || s.End != nil {
		t.Errorf("%+v", s)
	}
	if c := ask(t, "findings", r)[0]; c.Status != NotApplicable {
		t.Errorf("%+v", c)
	}
	if c := ask(t, "credential-life", r)[0]; c.Status != Supports {
		t.Errorf("%+v", c)
	}
	if c := ask(t, "closed", r)[0]; c.Status != Lacks {
		t.Errorf("%+v", c)
	}
	if !slices.ContainsFunc(report.Limits, func(l string) bool { return strings.Contains(l, "had not ended") }) {
		t.Error("the limits do not say that it goes on")
	}
}

// TestLiveAltered: a record that no host signed, in the store of a run that goes on, is left out, and nothing of the run is evidence.
func TestLiveAltered(t *testing.T) {
	p := newTape("r-1")
	p.secret(audit.SecretMint, time.Minute)
	sealed := p.seq
	r := p.all()
	part := proof.Report{Run: p.run, Records: sealed, Last: sealed, HoldsTo: sealed}
	r.Verification = Verified(part, &verdict.Verdict{Outcome: verdict.ErrCannotBeJudged, Finding: verdict.ErrLive}, made)
	rows := r.Rows
	r.Rows = func(yield func(store.Row, error) bool) {
		for row, err := range rows {
			if row.Seq == sealed {
				row.Mark = &store.Mark{State: store.Fails, Text: "altered"}
			}
			if !yield(row, err) {
				return
			}
		}
	}
	report := build(t, input("soc2", r))
	if s := report.Sources[0]; s.Unsigned != 1 || s.Records != sealed-1 || s.Verification.State != Fails {
		t.Errorf("%+v", s)
	}
	if report.Tally.Supports > 0 || len(report.Against) == 0 {
		t.Errorf("%+v %+v", report.Tally, report.Against)
	}
	if !slices.ContainsFunc(report.Limits, func(l string) bool { return strings.Contains(l, "records that no host signed: 1") }) {
		t.Errorf("the limits do not say it: %q", report.Limits)
	}
}

// TestCredentials holds the fold against the model's, which was made by someone else.
func TestCredentials(t *testing.T) {
	for _, name := range []string{"agent", "egress", "secret", "long", "interrupted"} {
		r := bundled(t, name, nil)
		story, err := replay.Read(r.Run, r.Rows)
		if err != nil {
			t.Fatal(err)
		}
		q := newCredentialLife()
		s := newSource(r)
		if err := s.read(t.Context(), q.see); err != nil {
			t.Fatal(err)
		}
		var revoked, renewals uint64
		list := story.Credentials().All()
		for _, c := range list {
			renewals += uint64(len(c.Bars) - 1)
			if c.EndedBy == "revoke" {
				revoked++
			}
		}
		if q.minted.n != uint64(len(list)) || q.revoked != revoked || q.renewals != renewals {
			t.Errorf("%s: %d minted, %d revoked, %d renewals; the model has %d, %d, %d", name, q.minted.n, q.revoked, q.renewals, len(list), revoked, renewals)
		}
	}
}

// TestErased: what is gone is counted, cited and not shown.
func TestErased(t *testing.T) {
	p := newTape("r-1")
	p.step = "s"
	gone := p.add(host, audit.KindOutput, audit.Event{Output: &audit.Output{Stream: "stdout", Text: "forget me"}})
	r := p.done()
	leaf := p.rows[gone-1].Frame().Leaf()
	p.rows[gone-1] = store.Row{Head: store.Head{Run: p.run, Seq: gone, Time: p.rows[gone-1].Time}, Erased: &leaf}
	if c := ask(t, "erased", r)[0]; c.Status != Lacks {
		t.Errorf("without a statement: %+v", c)
	}
	r.Verification.Report.Erasures = []statement.Erasure{{Run: p.run, Seq: gone}}
	in := input("gdpr", r)
	if c := askOf(t, "erased", in)[0]; c.Status != Supports || !slices.Equal(seqs(c), []uint64{gone}) {
		t.Errorf("%+v", c)
	}
	html, json := contents(t, build(t, in))
	if strings.Contains(html+json, "forget me") || !strings.Contains(html, "erased: only its place") {
		t.Error("the page does not show it as erased")
	}
	r.Verification.Report.Asked = []statement.Erasure{{Run: p.run, Seq: 1}}
	if c := askOf(t, "erased", in)[1]; c.Status != Contradicts {
		t.Errorf("%+v", c)
	}
}

// TestDeclared: a hole that a gap of the host's declares is no undeclared one; one of the guest's is.
func TestDeclared(t *testing.T) {
	for o, want := range map[audit.Observer]Status{host: Supports, guest: Contradicts} {
		p := newTape("r-1")
		p.seq += 4
		p.add(o, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: "wal", First: 2, Last: 5, Count: 4}})
		if c := ask(t, "sequence", p.done())[0]; c.Status != want {
			t.Errorf("%s: %+v", o, c)
		}
	}
}

// TestRetained asks for more months than there are.
func TestRetained(t *testing.T) {
	in := input("soc2", bundled(t, "agent", nil))
	for query, want := range map[string]Status{"retained 0": Supports, "retained 6": Lacks} {
		if c := askOf(t, query, in)[0]; c.Status != want {
			t.Errorf("%s: %+v", query, c)
		}
	}
	in.Generated = made.AddDate(0, 6, 1)
	if c := askOf(t, "retained 6", in)[0]; c.Status != Supports {
		t.Errorf("%+v", c)
	}
}
