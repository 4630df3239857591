package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// script is a run as a test writes it: each event is a second after the one before.
type script struct{ events []audit.Event }

func (r *script) now() time.Time {
	return storetest.Start().Add(time.Duration(len(r.events)) * time.Second)
}

func (r *script) add(o audit.Observer, k audit.Kind, e audit.Event) uint64 {
	e.Time, e.Observer, e.Kind = r.now(), o, k
	if e.Step == "" && k != audit.KindRun {
		e.Step = "agent"
	}
	r.events = append(r.events, e)
	return uint64(len(r.events))
}

func (r *script) run(p audit.Phase) uint64 {
	return r.add(audit.Host, audit.KindRun, audit.Event{Lifecycle: &audit.Lifecycle{Phase: p, Status: audit.StatusDone}})
}

func (r *script) exec(proc, parent string, argv ...audit.Text) uint64 {
	return r.add(audit.Guest, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: proc, Parent: parent, PID: len(r.events), Exe: "/bin/" + argv[0], Argv: argv}})
}

func (r *script) exit(proc string, code int) uint64 {
	return r.add(audit.Guest, audit.KindExit, audit.Event{Exit: &audit.Exit{Proc: proc, Code: code}})
}

func (r *script) file(proc string, op audit.FileOp, path, to audit.Text, hash string) uint64 {
	return r.add(audit.Guest, audit.KindFile, audit.Event{File: &audit.File{Proc: proc, Op: op, Path: path, To: to, SHA256: hash, Size: int64(len(hash))}})
}

// flow adds a flow to 192.0.2.PORT.
func (r *script) flow(o audit.Observer, f audit.Flow) uint64 {
	if f.Proto == "" {
		f.Proto = "tcp"
	}
	if f.DstIP == "" {
		f.DstIP, f.DstPort = "192.0.2.1", 443
	}
	return r.add(o, audit.KindFlow, audit.Event{Flow: &f})
}

func (r *script) secret(s audit.Secret) uint64 {
	return r.add(audit.Host, audit.KindSecret, audit.Event{Secret: &s})
}

func (r *script) story(t testing.TB) *Story {
	t.Helper()
	frames := storetest.Frames("r-1", r.events)
	s, err := Read(summary(frames), rowsOf(frames))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// agent is a run in which a model asks for a command, which fetches something and writes it down.
func agent() (r script, seqs map[string]uint64) {
	seqs = map[string]uint64{}
	code := 0
	seqs["start"] = r.run(audit.PhaseStart)
	seqs["policy"] = r.add(audit.Host, audit.KindPolicy, audit.Event{Policy: &audit.Policy{Generation: 1, Digest: "sha256-aa"}})
	seqs["mint"] = r.secret(audit.Secret{Name: "key", Op: audit.SecretMint, Broker: "vault", Expires: r.now().Add(time.Minute)})
	seqs["deliver"] = r.secret(audit.Secret{Name: "key", Op: audit.SecretDeliver, Broker: "vault", Via: "header"})
	seqs["step"] = r.add(audit.Host, audit.KindStep, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Name: "agent"}})
	seqs["python"] = r.exec("p1", "", "python3", "agent.py")
	ask := func(name audit.Text, addr string) uint64 {
		return r.add(audit.Host, audit.KindDNS, audit.Event{DNS: &audit.DNS{Name: name, Type: "A", Proto: "udp", RCode: "NOERROR", Answers: []string{addr}, Verdict: audit.Allow, Rule: string(name) + " tcp/443", Synthetic: true, Generation: 1}})
	}
	seqs["ask model"] = ask("llm.example", "198.18.1.0")
	model := audit.Flow{SrcPort: 1000, DstIP: "198.18.1.0", DstPort: 443}
	claim := model
	claim.State, claim.Proc, claim.PID = audit.FlowAttempt, "p1", 5
	seqs["claim model"] = r.flow(audit.Guest, claim)
	model.ID, model.State, model.Name, model.Verdict, model.Rule, model.DNSSeq, model.Generation = "f1", audit.FlowOpen, "llm.example", audit.Allow, "llm.example tcp/443", seqs["ask model"], 1
	seqs["open model"] = r.flow(audit.Host, model)
	seqs["use"] = r.secret(audit.Secret{Name: "key", Op: audit.SecretUse, Via: "header", Flow: "f1", Host: "llm.example"})
	seqs["post"] = r.add(audit.Host, audit.KindHTTP, audit.Event{HTTP: &audit.HTTP{Flow: "f1", Method: "POST", Host: "llm.example", Path: "/v1", Status: 200, Verdict: audit.Allow, Rule: "llm.example tcp/443", Credential: "key", LLM: "m1", DurationNS: 5e8, Generation: 1}})
	seqs["call"] = r.add(audit.Host, audit.KindLLM, audit.Event{LLM: &audit.LLM{ID: "m1", Flow: "f1", Provider: "anthropic", Model: "claude", Status: 200, DurationNS: 5e8, ToolCalls: []audit.ToolCall{{ID: "t0", Name: "read"}, {ID: "t1", Name: "bash"}}}})
	seqs["sh"] = r.add(audit.Guest, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: "p2", Parent: "p1", PID: 9, Exe: "/bin/sh", Argv: []audit.Text{"sh", "-c", "curl"}, LLM: "m1", ToolCall: "t1"}})
	seqs["curl"] = r.exec("p3", "p2", "curl", "https://data.example")
	seqs["ask data"] = ask("data.example", "198.18.1.1")
	data := audit.Flow{SrcPort: 2000, DstIP: "198.18.1.1", DstPort: 443}
	claim = data
	claim.State, claim.Proc, claim.PID = audit.FlowAttempt, "p3", 11
	seqs["claim data"] = r.flow(audit.Guest, claim)
	data.ID, data.State, data.Name, data.Verdict, data.Rule, data.DNSSeq, data.Generation = "f2", audit.FlowOpen, "data.example", audit.Allow, "data.example tcp/443", seqs["ask data"], 1
	seqs["open data"] = r.flow(audit.Host, data)
	data.State, data.BytesOut, data.BytesIn, data.DurationNS = audit.FlowClose, 100, 2000, 1e9
	seqs["close data"] = r.flow(audit.Host, data)
	seqs["write"] = r.file("p3", audit.FileWrite, "/w/part", "", "aa")
	seqs["rename"] = r.file("p3", audit.FileRename, "/w/part", "/w/data", "")
	seqs["bad claim"] = r.flow(audit.Guest, audit.Flow{State: audit.FlowAttempt, Proc: "p3", PID: 11, SrcPort: 3000, Errno: 111})
	seqs["deny"] = r.flow(audit.Host, audit.Flow{State: audit.FlowDeny, SrcPort: 3000, Verdict: audit.Deny, Rule: "default", Reason: "no rule names this destination", Generation: 1})
	seqs["exit curl"] = r.exit("p3", 7)
	seqs["revoke"] = r.secret(audit.Secret{Op: audit.SecretRevoke, Broker: "vault"})
	seqs["step end"] = r.add(audit.Host, audit.KindStep, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Name: "agent", ExitCode: &code, Status: audit.StatusDone}})
	seqs["end"] = r.run(audit.PhaseEnd)
	return r, seqs
}

func TestWhy(t *testing.T) {
	r, seqs := agent()
	s := r.story(t)
	for _, tc := range []struct{ of, causes, effects string }{
		{"write", "curl sh call open model step", "rename"},
		{"curl", "sh call open model step", "claim data|open data|write|rename|bad claim|deny|exit curl"},
		{"sh", "call open model step", "curl"},
		{"open data", "policy ask data claim data curl sh call open model step", "close data"},
		{"close data", "policy ask data open data claim data curl sh call open model step", ""},
		{"claim data", "curl sh call open model step", "open data|close data"},
		{"deny", "policy bad claim curl sh call open model step", ""},
		{"ask data", "policy claim data curl sh call open model step", "open data|close data"},
		{"post", "policy open model ask model claim model python step use", "call"},
		{"use", "open model ask model claim model python step mint deliver", "revoke"},
		{"call", "open model ask model claim model python step", "sh"},
		{"python", "step", "claim model|open model|sh"},
	} {
		w, err := s.Why(seqs[tc.of])
		if err != nil {
			t.Fatal(err)
		}
		if got := names(seqs, w.Causes); got != fields(seqs, tc.causes) {
			t.Errorf("why %s: causes\n got %s\nwant %s", tc.of, got, fields(seqs, tc.causes))
		}
		if got := names(seqs, w.Effects); tc.effects != "" && got != strings.ReplaceAll(tc.effects, "|", ", ") {
			t.Errorf("why %s: effects\n got %s\nwant %s", tc.of, got, strings.ReplaceAll(tc.effects, "|", ", "))
		}
	}
	if w, _ := s.Why(seqs["deny"]); w.Verdict != audit.Deny || w.Rule != "default" || w.Policy == nil || w.Policy.Digest != "sha256-aa" || !strings.Contains(w.Text, "denied tcp to 192.0.2.1:443") {
		t.Errorf("why it was denied: %+v", w)
	}
	if _, err := s.Why(9999); !errors.Is(err, store.ErrNoRecord) {
		t.Errorf("why of no record: %v", err)
	}
	w, _ := s.Why(seqs["write"])
	if !w.Causes[0].Claimed || w.Causes[0].Relation != "written by" || w.Causes[2].Claimed {
		t.Errorf("what is claimed: %+v", w.Causes)
	}
}

// names are those of the records that links lead to.
func names(seqs map[string]uint64, links []Link) string {
	var list []string
	for _, l := range links {
		for name, seq := range seqs {
			if seq == l.Seq {
				list = append(list, name)
			}
		}
	}
	return strings.Join(list, ", ")
}

// fields splits names that may have spaces in them.
func fields(seqs map[string]uint64, text string) string {
	var list []string
	for words := strings.Fields(text); len(words) > 0; {
		n := 1
		for m := 2; m <= min(3, len(words)); m++ {
			if seqs[strings.Join(words[:m], " ")] != 0 {
				n = m
			}
		}
		list = append(list, strings.Join(words[:n], " "))
		words = words[n:]
	}
	return strings.Join(list, ", ")
}

func TestAnswers(t *testing.T) {
	r, seqs := agent()
	s := r.story(t)
	procs := s.Processes().All()
	if len(procs) != 3 || procs[2].Above != seqs["sh"] || *procs[2].Code != 7 || procs[2].Files != 2 || procs[2].Flows != 2 || procs[2].ExitSeq != seqs["exit curl"] {
		t.Errorf("processes: %s", toJSON(t, procs))
	}
	if !procs[0].Synthetic || procs[0].End == nil || procs[0].Code != nil {
		t.Errorf("a process whose exit nobody saw: %s", toJSON(t, procs[0]))
	}
	connections := s.Connections().All()
	if len(connections) != 3 {
		t.Fatalf("connections: %s", toJSON(t, connections))
	}
	if c := connections[0]; c.Name != "llm.example" || len(c.Requests) != 1 || c.Requests[0].Credential != "key" || c.DNS.Seq != seqs["ask model"] || c.By.Name != "python3" || c.End == nil {
		t.Errorf("the model's: %s", toJSON(t, c))
	}
	if c := connections[1]; c.State != "close" || c.BytesIn != 2000 || c.By.Name != "curl" || c.Claim != seqs["claim data"] || c.EndSeq != seqs["close data"] {
		t.Errorf("the data's: %s", toJSON(t, c))
	}
	if c := connections[2]; c.State != "deny" || c.Verdict != audit.Deny || c.By.Name != "curl" || c.Unclaimed {
		t.Errorf("the denied one: %s", toJSON(t, c))
	}
	files := s.Files().All()
	if len(files) != 2 || files[0].Path != "/w/data" || files[0].SHA256 != "aa" || files[0].By.Name != "curl" || files[0].Changes[0].From != "/w/part" || files[1].MovedTo != "/w/data" {
		t.Errorf("files: %s", toJSON(t, files))
	}
	calls := s.Calls().All()
	if len(calls) != 1 || !slices.Equal(calls[0].Tools[1].Execs, []uint64{seqs["sh"]}) || len(calls[0].Tools[0].Execs) != 0 || calls[0].By.Name != "python3" || calls[0].End.Sub(calls[0].Start) != 500*time.Millisecond {
		t.Errorf("calls: %s", toJSON(t, calls))
	}
	creds := s.Credentials().All()
	if len(creds) != 1 || len(creds[0].Bars) != 1 || creds[0].Bars[0].To.Sub(creds[0].Bars[0].From) != time.Minute || len(creds[0].Uses) != 1 || creds[0].EndedBy != "revoke" || creds[0].Via != "header" {
		t.Errorf("credentials: %s", toJSON(t, creds))
	}
	if f := s.Findings().All(); len(f) != 0 {
		t.Errorf("findings: %s", toJSON(t, f))
	}
}

// TestChanges: what is between two instants is what the states before and after differ in.
func TestChanges(t *testing.T) {
	r, seqs := agent()
	s := r.story(t)
	at := func(name string) time.Time { return r.events[seqs[name]-1].Time }
	c := s.Changes(at("call"), at("exit curl"))
	if c.Events != seqs["exit curl"]-seqs["call"] || len(c.Started) != 2 || len(c.Ended) != 1 || len(c.Opened) != 1 || len(c.Closed) != 1 || len(c.Denied) != 1 || len(c.Files) != 2 || len(c.Minted)+len(c.Over)+len(c.Calls) != 0 {
		t.Errorf("got %s", toJSON(t, c))
	}
	all := s.Changes(time.Time{}, storetest.Start().Add(time.Hour))
	if all.Events != uint64(len(r.events)) || len(all.Minted) != 1 || len(all.Over) != 1 || len(all.Calls) != 1 {
		t.Errorf("of the whole run: %s", toJSON(t, all))
	}
	if c := s.Changes(at("call"), at("step")); c.Events != 0 || c.Started == nil {
		t.Errorf("backwards: %s", toJSON(t, c))
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 30 {
		a, b := storetest.Start().Add(time.Duration(random.IntN(30))*time.Second), storetest.Start().Add(time.Duration(random.IntN(30))*time.Second)
		if b.Before(a) {
			a, b = b, a
		}
		before, after, c := s.StateAt(a, 0), s.StateAt(b, 0), s.Changes(a, b)
		if c.Events != after.Events-before.Events {
			t.Errorf("%v to %v: %d events, the states differ in %d", a, b, c.Events, after.Events-before.Events)
		}
		if len(after.Egress.Flows)-len(before.Egress.Flows) != len(c.Opened)-len(c.Closed) {
			t.Errorf("%v to %v: %d opened and %d closed, %d and %d were open", a, b, len(c.Opened), len(c.Closed), len(before.Egress.Flows), len(after.Egress.Flows))
		}
	}
}

func TestCompareRuns(t *testing.T) {
	r, _ := agent()
	a := r.story(t)
	r.events = slices.Clone(r.events[:len(r.events)-1])
	r.exec("p9", "", "nmap")
	r.file("p9", audit.FileWrite, "/w/data", "", "bb")
	r.flow(audit.Host, audit.Flow{State: audit.FlowDeny, Verdict: audit.Deny, DstIP: "192.0.2.7", DstPort: 22})
	r.secret(audit.Secret{Name: "git", Op: audit.SecretMint})
	r.add(audit.Host, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: "dns-tunnel", Detail: "x"}})
	b := r.story(t)
	c := Compare(a, b)
	if len(c.OnlyA.Files) != 1 || c.OnlyA.Files[0].SHA256 != "aa" || len(c.OnlyA.Programs)+len(c.OnlyA.Hosts)+len(c.OnlyA.Secrets)+len(c.OnlyA.Findings) != 0 {
		t.Errorf("only in the first: %s", toJSON(t, c.OnlyA))
	}
	if o := c.OnlyB; len(o.Programs) != 1 || o.Programs[0].Argv[0] != "nmap" || len(o.Files) != 1 || o.Files[0].SHA256 != "bb" || len(o.Hosts) != 1 || o.Hosts[0].Port != 22 || len(o.Secrets) != 1 || len(o.Findings) != 1 {
		t.Errorf("only in the second: %s", toJSON(t, o))
	}
	if c.Both.Programs != 3 || c.Both.Hosts != 3 || c.Both.Secrets != 1 {
		t.Errorf("in both: %+v", c.Both)
	}
	back := Compare(b, a)
	if toJSON(t, back.OnlyA) != toJSON(t, c.OnlyB) || toJSON(t, back.OnlyB) != toJSON(t, c.OnlyA) {
		t.Error("the other way round it is not the same")
	}
}

func TestOutputs(t *testing.T) {
	r := script{}
	r.run(audit.PhaseStart)
	for i := range 5 {
		r.add(audit.Host, audit.KindOutput, audit.Event{Output: &audit.Output{Stream: "tty", Text: audit.Text(fmt.Sprint(i))}})
	}
	r.add(audit.Guest, audit.KindOutput, audit.Event{Output: &audit.Output{Stream: "tty", Text: "a guest cannot say that"}})
	s := r.story(t)
	text := ""
	for after := uint64(0); ; {
		pieces := s.Output().Pieces(after, 2)
		for _, p := range pieces {
			text, after = text+string(p.Text), p.Seq
		}
		if len(pieces) == 0 {
			break
		}
	}
	if text != "01234" {
		t.Errorf("got %q", text)
	}
	if p := s.Output().Pieces(0, 0); len(p) != 5 || p[4].At != 5000 {
		t.Errorf("all: %+v", p)
	}
	if p := s.Output().Pieces(^uint64(0), 1); len(p) != 0 {
		t.Errorf("behind the last: %+v", p)
	}
}

func TestMatch(t *testing.T) {
	at := storetest.Start()
	row := func(o audit.Observer, k audit.Kind, e audit.Event) store.Row {
		e.Time, e.Observer, e.Kind = at, o, k
		f := storetest.Frame("r-1", 7, e)
		head, err := store.ParseHead(f.Body)
		if err != nil {
			t.Fatal(err)
		}
		return store.Row{Head: head, Body: f.Body}
	}
	exec := row(audit.Guest, audit.KindExec, audit.Event{Step: "agent", Exec: &audit.Exec{Proc: "p1", Exe: "/bin/sh", Argv: []audit.Text{"Grüße", "\xff\xfeBinary", "a\nb\"c", "<b>"}, PID: 4711}})
	deny := row(audit.Host, audit.KindFlow, audit.Event{Flow: &audit.Flow{State: audit.FlowDeny, Verdict: audit.Deny}})
	gone := store.Row{Head: store.Head{Run: "r-1", Seq: 7, Time: at}, Erased: new([32]byte)}
	for _, tc := range []struct {
		name string
		f    Filter
		row  store.Row
		want bool
	}{
		{"nothing asked", Filter{}, exec, true},
		{"nothing asked of an erased one", Filter{}, gone, true},
		{"kind", Filter{Kinds: []audit.Kind{audit.KindFile, audit.KindExec}}, exec, true},
		{"other kind", Filter{Kinds: []audit.Kind{audit.KindFile}}, exec, false},
		{"step", Filter{Steps: []string{"agent"}}, exec, true},
		{"other step", Filter{Steps: []string{"x"}}, exec, false},
		{"observer", Filter{Observer: audit.Host}, exec, false},
		{"process", Filter{Proc: "p1"}, exec, true},
		{"other process", Filter{Proc: "p"}, exec, false},
		{"verdict", Filter{Verdict: audit.Deny}, deny, true},
		{"other verdict", Filter{Verdict: audit.Allow}, deny, false},
		{"no verdict", Filter{Verdict: audit.Deny}, exec, false},
		{"from is in", Filter{From: at}, exec, true},
		{"to is out", Filter{To: at}, exec, false},
		{"behind", Filter{AfterSeq: 6}, exec, true},
		{"not behind", Filter{AfterSeq: 7}, exec, false},
		{"text", Filter{Text: "BIN/SH"}, exec, true},
		{"text beyond ASCII", Filter{Text: "GRÜSSE"}, exec, false},
		{"text beyond ASCII, other case", Filter{Text: "GRÜ"}, exec, true},
		{"text of bytes", Filter{Text: "binary"}, exec, true},
		{"text with a line end", Filter{Text: "A\nB"}, exec, true},
		{"text with a quote", Filter{Text: `b"c`}, exec, true},
		{"text that JSON escapes", Filter{Text: "<B>"}, exec, true},
		{"its escape is not its text", Filter{Text: `\u003c`}, exec, false},
		{"number", Filter{Text: "4711"}, exec, true},
		{"no such text", Filter{Text: "curl"}, exec, false},
		{"text of an erased one", Filter{Text: "r-1"}, gone, false},
		{"text of what cannot be read", Filter{Text: "ROKE"}, store.Row{Head: gone.Head, Body: []byte(`{"broken`)}, true},
	} {
		if got := Match(tc.f, tc.row); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// TestGrowWhileRead: a live run's story is read by many while it grows.
func TestGrowWhileRead(t *testing.T) {
	rows := benchRows(storetest.Frames("r-1", busy(600)))
	run := store.NewRun("r-1")
	s, err := Read(run, asRows(nil))
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ask(s, s.Last())
			}
		})
	}
	for len(rows) > 0 {
		n := min(50, len(rows))
		if err := s.Add(run, asRows(rows[:n])); err != nil {
			t.Error(err)
		}
		rows = rows[n:]
	}
	close(stop)
	readers.Wait()
	run, all := busyRows(600)
	whole, err := Read(run, all)
	if err := errors.Join(err, s.Add(run, asRows(nil))); err != nil {
		t.Fatal(err)
	}
	if got, want := toJSON(t, s.Processes().All()[:20]), toJSON(t, whole.Processes().All()[:20]); got != want {
		t.Errorf("grown:\n%s\nread:\n%s", got, want)
	}
}

// ask asks a story everything.
func ask(s *Story, seq uint64) []any {
	at := storetest.Start().Add(time.Second)
	why, _ := s.Why(seq)
	return []any{s.StateAt(at, 5), s.Changes(storetest.Start(), at), s.Lanes(time.Time{}, time.Time{}, 20), s.Lanes(storetest.Start(), at, 1500),
		s.Processes().All(), s.Connections().All(), s.Files().All(), s.Calls().All(), s.Credentials().All(), s.Findings().All(), s.Output().Pieces(0, 10),
		s.Steps().At(at), s.Findings().About(seq), s.Findings().Derived(), why, Compare(s, s)}
}

// FuzzStory reads any row between valid rows, and calls every method:
// none panics, each result can be encoded, and no list is null.
func FuzzStory(f *testing.F) {
	r, _ := agent()
	known := storetest.Frames("r-1", r.events)
	for _, frame := range slices.Concat(story(), traffic(), known) {
		f.Add(frame.Body, uint64(0), int64(0))
	}
	f.Add([]byte(`{"run":"r-1","time":"2026-11-03T12:00:00Z","kind":"exec","exec":{"proc":"p1","parent":"p3","argv":null}}`), uint64(3), int64(-1<<62))
	f.Add([]byte(`{"run":"r-1","time":"2026-11-03T12:00:00Z","kind":"flow","observer":"host","flow":{"id":"f1","state":"close","duration_ns":-9223372036854775808,"proto":"tcp","src_port":-1,"dst_ip":"::1","dst_port":99999999}}`), uint64(1<<63), int64(1<<62))
	f.Add([]byte(`{"run":"r-1","time":"2026-11-03T12:00:00Z","kind":"llm","observer":"host","llm":{"id":"","duration_ns":-9223372036854775808}}`), uint64(0), int64(9223372036854775807))
	f.Add([]byte(`{"run":"r-1","time":"2026-11-03T12:00:00Z","kind":"secret","observer":"host","secret":{"op":"mint","expires":"9999-12-31T23:59:59Z"}}`), uint64(0), int64(5))
	run := summary(known)
	f.Fuzz(func(t *testing.T, body []byte, jump uint64, shift int64) {
		rows := func(yield func(store.Row, error) bool) {
			for row := range fuzzRows(slices.Concat(known[:20], []store.Frame{{Seq: 1000 + jump, Body: body}, {Seq: 2000 + jump, Body: body}}, known[20:])) {
				if row.Seq >= 1000 && !row.Time.IsZero() && row.Time.Year() < 3000 {
					row.Time = row.Time.Add(time.Duration(shift))
				}
				if !yield(row, nil) {
					return
				}
			}
		}
		s, err := Read(run, rows)
		if err != nil {
			t.Fatal(err)
		}
		for _, answer := range ask(s, 1000+jump) {
			b, err := json.Marshal(answer)
			if err != nil {
				t.Fatalf("%T: %v", answer, err)
			}
			for _, list := range []string{"items", "changes", "requests", "evidence", "bars", "uses", "execs", "tools", "causes", "effects", "argv", "answers", "output", "files", "processes"} {
				if bytes.Contains(b, []byte(`"`+list+`":null`)) && list != "argv" {
					t.Errorf("%T: the list %s is null", answer, list)
				}
			}
		}
		if _, err := Disagreements(rows); err != nil {
			t.Fatal(err)
		}
		for row := range rows {
			Match(Filter{Text: "p1", Verdict: audit.Deny}, row)
			Match(Filter{Text: "é\n"}, row)
		}
	})
}
