package storetest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Large is a store like one after some weeks of work: about so many records, in runs of 5,000 and of
// 10,000 that begin five minutes apart, of several tenants; every hundredth run is an access log.
//
//	of 16 records: 4 exec, 4 exit, 4 file, 2 flow, 1 dns, 1 output;
//	of 400: a request with a credential, an LLM API call and a use of a secret; of 8 runs one has 3 findings
type Large struct{ Records int }

// Values to search for: often occurs in every run, seldom in only one.
const (
	commonHost, rareHost     = "pypi.org", "once.example.net"
	commonPath, rarePath     = "/usr/bin/python3", "/workspace/once.bin"
	commonSecret, rareSecret = "git-token", "once-key"
	rareText                 = "a needle, said once"
)

// lowest is the size of the shortest runs: every fourth has another.
const lowest = 5000

// Runs returns the number of runs.
func (l Large) Runs() int { return max(8, l.Records*4/(5*lowest)) }

// size returns the number of records of run i.
func (l Large) size(i int) int {
	if i%4 == 0 && !l.isLook(i) {
		return 2 * lowest
	}
	return lowest
}

func (l Large) isLook(i int) bool { return i%100 == 99 }

// ID returns the name of run i, like a host's.
func (l Large) ID(i int) string {
	prefix := "r-"
	if l.isLook(i) {
		prefix = store.AccessPrefix
	}
	return fmt.Sprintf("%s01k%023d", prefix, i)
}

// Tenant returns the tenant of run i: few have one.
func (l Large) Tenant(i int) string {
	if i == 6 {
		return "tiny"
	}
	return []string{"acme", "", "acme", "globex", "acme", "", "acme", "", "acme", "initech"}[i*7/3%10]
}

func (l Large) begin(i int) time.Time { return start.Add(time.Duration(i) * 5 * time.Minute) }

// End returns the time when the last run has begun.
func (l Large) End() time.Time { return l.begin(l.Runs()) }

// Segments returns run i.
func (l Large) Segments(i int) []store.Segment {
	n := l.size(i)
	code := 0
	at := l.begin(i)
	events := make([]audit.Event, 0, n)
	events = append(events, audit.Event{Time: at, Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{
		Phase: audit.PhaseStart, Project: fmt.Sprint("project-", i%12), Template: "base", Tier: "qemu-kvm", Mode: "strict", Steps: []string{"agent"}}})
	for j := 1; j < n-1; j++ {
		e := l.event(i, j)
		e.Time = at.Add(time.Duration(j) * 97 * time.Millisecond)
		events = append(events, e)
	}
	events = append(events, audit.Event{Time: at.Add(time.Duration(n) * 97 * time.Millisecond), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{
		Phase: audit.PhaseEnd, ExitCode: &code, Status: audit.StatusDone}})
	frames := Frames(l.ID(i), events)
	for j := range frames { // salts are random
		sum := sha256.Sum256(frames[j].Body)
		copy(frames[j].Salt[:], sum[:])
	}
	return owned(l.Tenant(i), "custody-host", Segments(l.ID(i), frames, 500))
}

// event returns the j-th event of run i.
func (l Large) event(i, j int) audit.Event {
	e := audit.Event{Observer: audit.Host, Step: "agent"}
	switch {
	case l.isLook(i):
		e.Step, e.Kind = "", audit.KindAccess
		e.Access = &audit.Access{Who: fmt.Sprint("reviewer-", j%9), Via: "token", Role: "viewer", Action: "view", Route: "GET /api/v1/runs/{run}",
			About: audit.Text(l.ID((i + j) % l.Runs())), Remote: "192.0.2.7", Verdict: audit.Allow}
	case i%8 == 3 && j%1500 == 700:
		e.Kind, e.Finding = audit.KindFinding, &audit.Finding{Rule: []audit.Rule{audit.RuleSecretInOutput, audit.RuleFlowUnclaimed, audit.RuleConnectUnseen}[j/1500%3],
			Detail: fmt.Sprintf("seen in record %d of the run", j-1), Seq: uint64(j - 1)}
	case j%400 == 17:
		e.Kind, e.HTTP = audit.KindHTTP, &audit.HTTP{Flow: fmt.Sprint("f-", j), Proto: "HTTP/2.0", Method: "POST", Host: "api.anthropic.com", Path: "/v1/messages",
			Status: 200, BytesOut: 4000, BytesIn: 9000, Verdict: audit.Allow, Rule: "api.anthropic.com", Credential: "anthropic"}
	case j%400 == 18:
		e.Kind, e.LLM = audit.KindLLM, &audit.LLM{ID: fmt.Sprint("l-", i, "-", j), Provider: "anthropic", API: "messages", Host: "api.anthropic.com", Model: "claude",
			InputTokens: int64(1000 + j), OutputTokens: int64(300 + i%700), StopReason: "tool_use", Status: 200, DurationNS: 2e9}
	case j%400 == 19:
		e.Kind, e.Secret = audit.KindSecret, &audit.Secret{Name: commonSecret, Op: audit.SecretDeliver, Broker: "vault", Via: "env", TTLNS: 60e9}
		if i == 5 && j == 419 {
			e.Secret.Name = rareSecret
		}
	default:
		l.work(&e, i, j)
	}
	return e
}

// pick returns a number below n that depends only on the other arguments.
func pickOf(i, j, n int) int {
	h := uint64(i)*0x9e3779b97f4a7c15 ^ uint64(j)*0xc2b2ae3d27d4eb4f
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return int((h ^ h>>32) % uint64(n))
}

// HashOf returns the hash of a file of project p.
func hashOf(p, file int) string {
	return fmt.Sprintf("%x", sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(p)<<32|uint64(file))))
}

// commonHash is that of a licence file, which each run has several times; rareHash occurs once.
func commonHash() string { return hashOf(1<<20, 0) }
func rareHash() string   { return hashOf(1<<20, 1) }

// work fills in the events of an agent's programs.
func (l Large) work(e *audit.Event, i, j int) {
	proc := fmt.Sprintf("7f3a1c9e5d2b-s01-%d-%d", 300+j/4, i*lowest+j/4*1181)
	host := audit.Text(fmt.Sprintf("host%d.example.com", pickOf(i, j, 300)))
	if j%3 == 0 {
		host = commonHost
	}
	e.Observer = audit.Guest
	switch j % 16 {
	case 0, 4, 8, 12:
		exe := audit.Text(fmt.Sprintf("/usr/bin/tool%d", pickOf(i, j, 40)))
		if j%32 < 16 {
			exe = commonPath
		}
		e.Kind, e.Exec = audit.KindExec, &audit.Exec{Proc: proc, Parent: "7f3a1c9e5d2b-s01-300-1181", PID: 300 + j/4, PPID: 300, Exe: exe,
			Argv: []audit.Text{exe, "-m", audit.Text(fmt.Sprintf("module_%d", pickOf(i, j, 900))), "--out", audit.Text(fmt.Sprint("build/", j))}, Cwd: "/workspace", UID: 1000}
	case 1, 5, 9, 13:
		file := pickOf(i, j, 3000)
		e.Kind, e.File = audit.KindFile, &audit.File{Proc: proc, PID: 300 + j/4, Op: audit.FileWrite, Size: int64(400 + file),
			Path: audit.Text(fmt.Sprintf("/workspace/src/pkg%d/file%d.go", file%40, file)), SHA256: hashOf(i%12, file*100+i/12%100)}
		if j%160 == 1 {
			e.File.Path, e.File.SHA256 = "/workspace/LICENSE", commonHash()
		}
		if i == 4 && j == 101 {
			e.File.Path, e.File.SHA256 = rarePath, rareHash()
		}
	case 2, 6, 10, 14:
		e.Kind, e.Exit = audit.KindExit, &audit.Exit{Proc: proc, PID: 300 + j/4, DurationNS: int64(41e6 + j%997*1000)}
	case 3:
		e.Observer, e.Kind = audit.Host, audit.KindDNS
		e.DNS = &audit.DNS{Name: host, Type: "A", Proto: "udp", RCode: "NOERROR", Answers: []string{"198.18.0.7"}, TTL: 60, Verdict: audit.Allow,
			Rule: "*.example.com", Synthetic: true, LatencyNS: int64(j), Generation: 1}
	case 7, 11:
		if i == 3 && j == 1003 {
			host = rareHost
		}
		e.Observer, e.Kind = audit.Host, audit.KindFlow
		e.Flow = &audit.Flow{ID: fmt.Sprint("f-", j/16), Proc: proc, PID: 300 + j/4, State: audit.FlowOpen, Proto: "tcp", SrcIP: "10.0.2.15", SrcPort: 40000 + j%20000,
			DstIP: "198.18.0.7", DstPort: 443, Name: host, Verdict: audit.Allow, Rule: "*.example.com", DNSSeq: uint64(j), Generation: 1, BytesOut: uint64(700 + j), BytesIn: uint64(18000 + i)}
	default:
		text := fmt.Sprintf("[%d] ok  \tgithub.com/example/project/pkg%d\t%d.%03ds\n", j, pickOf(i, j, 40), j%7, i%1000)
		if i == 2 && j == 31 {
			text = rareText
		}
		e.Kind, e.Output = audit.KindOutput, &audit.Output{Stream: "stdout", Offset: int64(j) * 60, Text: audit.Text(text)}
	}
}
