package replay

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// busy is a run of about n records with all that a model looks at: processes in
// trees, files written, renamed and deleted, questions, flows and claims, requests,
// calls of a model, credentials that are renewed, output, gaps.
func busy(n int) []audit.Event {
	b := busyRun{random: rand.New(rand.NewPCG(1, 2)), now: storetest.Start()}
	b.add(audit.Event{Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Project: "shop", Tier: "qemu-tcg", Mode: "strict"}})
	b.add(audit.Event{Observer: audit.Host, Kind: audit.KindPolicy, Policy: &audit.Policy{Generation: 1, Digest: "sha256-00", Rules: []audit.Text{"api.example tcp/443"}}})
	for i := 0; len(b.events) < n-2; i++ {
		b.turn(i)
	}
	code := 0
	b.add(audit.Event{Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, ExitCode: &code, Status: audit.StatusDone}})
	return b.events
}

type busyRun struct {
	random *rand.Rand
	now    time.Time
	events []audit.Event
	alive  []string
}

func (b *busyRun) add(e audit.Event) uint64 {
	b.now = b.now.Add(time.Millisecond)
	e.Time = b.now
	if e.Kind != audit.KindRun && e.Kind != audit.KindPolicy {
		e.Step = "agent"
	}
	b.events = append(b.events, e)
	return uint64(len(b.events))
}

// turn is one turn of the agent: a call of its model, and what the resulting command does.
func (b *busyRun) turn(i int) {
	const host, guest = audit.Host, audit.Guest
	if i%50 == 0 {
		op := audit.SecretRenew
		if i == 0 {
			op = audit.SecretMint
		}
		b.add(audit.Event{Observer: host, Kind: audit.KindSecret, Secret: &audit.Secret{Name: "key", Op: op, Broker: "local", TTLNS: 6e10, Expires: b.now.Add(time.Minute)}})
	}
	id, call := fmt.Sprint("f", i+1), fmt.Sprint("m", i+1)
	proc := fmt.Sprintf("%032x", i)
	parent := ""
	if len(b.alive) > 0 {
		parent = b.alive[b.random.IntN(len(b.alive))]
	}
	asked := b.add(audit.Event{Observer: host, Kind: audit.KindDNS, DNS: &audit.DNS{Name: "api.example", Type: "A", Proto: "udp", RCode: "NOERROR", Answers: []string{"198.18.1.0"}, Verdict: audit.Allow, Rule: "api.example tcp/443", Synthetic: true, Generation: 1}})
	flow := audit.Flow{Proto: "tcp", SrcIP: "198.18.0.2", SrcPort: 1024 + i%60000, DstIP: "198.18.1.0", DstPort: 443}
	claim := flow
	claim.State, claim.Proc, claim.PID, claim.Errno = audit.FlowAttempt, proc, 100+i, 115
	flow.ID, flow.State, flow.Name, flow.Verdict, flow.Rule, flow.DNSSeq, flow.Generation = id, audit.FlowOpen, "api.example", audit.Allow, "api.example tcp/443", asked, 1
	b.add(audit.Event{Observer: guest, Kind: audit.KindFlow, Flow: &claim})
	b.add(audit.Event{Observer: host, Kind: audit.KindFlow, Flow: &flow})
	b.add(audit.Event{Observer: host, Kind: audit.KindSecret, Secret: &audit.Secret{Name: "key", Op: audit.SecretUse, Via: "header", Flow: id, Host: "api.example"}})
	b.add(audit.Event{Observer: host, Kind: audit.KindHTTP, HTTP: &audit.HTTP{Flow: id, Proto: "HTTP/1.1", Method: "POST", Host: "api.example", Path: "/v1/messages", Status: 200, Verdict: audit.Allow, Rule: "api.example tcp/443", Credential: "key", LLM: call, DurationNS: 5e6}})
	b.add(audit.Event{Observer: host, Kind: audit.KindLLM, LLM: &audit.LLM{ID: call, Flow: id, Provider: "anthropic", API: "messages", Host: "api.example", Model: "claude", InputTokens: 100, OutputTokens: 20, Status: 200, DurationNS: 4e6,
		ToolCalls: []audit.ToolCall{{ID: "t", Name: "bash", SHA256: "00", Arguments: `{"command":"git commit"}`}}}})
	b.add(audit.Event{Observer: guest, Kind: audit.KindExec, Exec: &audit.Exec{Proc: proc, Parent: parent, PID: 100 + i, PPID: 99, Exe: "/usr/bin/git", Argv: []audit.Text{"git", "commit", "-m", audit.Text(fmt.Sprint("change ", i))}, Cwd: "/workspace", LLM: call, ToolCall: "t"}})
	b.alive = append(b.alive, proc)
	path := audit.Text(fmt.Sprintf("/workspace/src/file%d.go", b.random.IntN(1+i)))
	for j := range 3 {
		b.add(audit.Event{Observer: guest, Kind: audit.KindFile, File: &audit.File{Proc: proc, PID: 100 + i, Op: audit.FileWrite, Path: path + audit.Text(fmt.Sprint(j)), Size: int64(i), SHA256: fmt.Sprintf("%064x", i)}})
	}
	switch i % 5 {
	case 0:
		b.add(audit.Event{Observer: guest, Kind: audit.KindFile, File: &audit.File{Proc: proc, PID: 100 + i, Op: audit.FileRename, Path: path + "0", To: path}})
	case 1:
		b.add(audit.Event{Observer: guest, Kind: audit.KindFile, File: &audit.File{Proc: proc, PID: 100 + i, Op: audit.FileDelete, Path: path + "1"}})
	case 2:
		b.add(audit.Event{Observer: host, Kind: audit.KindFlow, Flow: &audit.Flow{State: audit.FlowDeny, Proto: "tcp", SrcIP: "198.18.0.2", SrcPort: 1024 + i%60000, DstIP: "192.0.2.9", DstPort: 80, Verdict: audit.Deny, Rule: "default", Reason: "no rule names this destination", Generation: 1, Count: 1, Proc: proc}})
	}
	for range 4 {
		b.add(audit.Event{Observer: host, Kind: audit.KindOutput, Output: &audit.Output{Stream: "stdout", Text: "one line of output\nand half of"}})
	}
	if len(b.alive) > 30 {
		dead := b.random.IntN(len(b.alive))
		b.add(audit.Event{Observer: guest, Kind: audit.KindExit, Exit: &audit.Exit{Proc: b.alive[dead], DurationNS: 3e6}})
		b.alive = append(b.alive[:dead], b.alive[dead+1:]...)
	}
	flow.State, flow.BytesOut, flow.BytesIn, flow.DurationNS = audit.FlowClose, 1000, 2000, 9e6
	b.add(audit.Event{Observer: host, Kind: audit.KindFlow, Flow: &flow})
}

const manyRecords = 100000

func busyRows(n int) (store.Run, Rows) {
	frames := storetest.Frames("r-1", busy(n))
	return summary(frames), asRows(benchRows(frames))
}

func busyStory(b testing.TB, n int) *Story {
	s, err := Read(busyRows(n))
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkRead(b *testing.B) {
	run, rows := busyRows(manyRecords)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(run, rows); err != nil {
			b.Fatal(err)
		}
	}
}

// benchStory asks a story one question, whose answer was not asked for before but for what all share.
func benchStory(b *testing.B, ask func(s *Story, i int)) {
	s := busyStory(b, manyRecords)
	ask(s, 0)
	i := 0
	for b.Loop() {
		i++
		ask(s, i)
	}
}

func BenchmarkStoryStateAt(b *testing.B) {
	benchStory(b, func(s *Story, i int) { s.StateAt(storetest.Start().Add(time.Duration(i*7919%100)*time.Second), 50) })
}

func BenchmarkStoryFirst(b *testing.B) { // what a page asks for when it opens
	run, rows := busyRows(manyRecords)
	for b.Loop() {
		b.StopTimer()
		s, err := Read(run, rows)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		s.Lanes(time.Time{}, time.Time{}, 1500)
		s.StateAt(storetest.Start().Add(time.Minute), 50)
	}
}

func BenchmarkStoryLanes(b *testing.B) {
	for _, part := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint("1/", part), func(b *testing.B) {
			benchStory(b, func(s *Story, i int) {
				length := 100 * time.Second / time.Duration(part)
				from := storetest.Start().Add(time.Duration(i*7919%100) * time.Second / 2)
				s.Lanes(from, from.Add(length), 1500)
			})
		})
	}
}

func BenchmarkStoryWhy(b *testing.B) {
	benchStory(b, func(s *Story, i int) {
		if _, err := s.Why(uint64(i*7919%manyRecords + 1)); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkStoryChanges(b *testing.B) {
	benchStory(b, func(s *Story, i int) {
		from := storetest.Start().Add(time.Duration(i*7919%100) * time.Second)
		s.Changes(from, from.Add(time.Second))
	})
}

func BenchmarkDisagreements(b *testing.B) {
	_, rows := busyRows(manyRecords)
	for b.Loop() {
		if _, err := Disagreements(rows); err != nil {
			b.Fatal(err)
		}
	}
}

// TestSize: the size that a story gives is what the runtime has to keep for it.
func TestSize(t *testing.T) {
	run, rows := busyRows(20000)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, err := Read(run, rows)
	if err != nil {
		t.Fatal(err)
	}
	s.Lanes(time.Time{}, time.Time{}, 1500)
	s.Files().All()
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d bytes used, %d stated", used, s.Size())
	if s.Size() < used*3/4 || s.Size() > used*2 {
		t.Errorf("the story takes %d bytes and says %d", used, s.Size())
	}
	runtime.KeepAlive(rows)
}
