package sampleruns

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"time"

	"github.com/custody-project/custody/audit"
)

func digest(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:])
}

// Large is a run of about n records, as a build or an agent at work makes them: of 50 records 16 exec and 16
// exit, 9 file, 5 output, 2 dns and 2 flow; now and then a model's call, a credential's life, a denial and a finding.
func Large(n int) iter.Seq[audit.Event] {
	return events(func(s *script) {
		steps := []string{"setup", "agent", "test"}
		s.begin("large", steps...)
		for i := range n / 50 {
			if i%(n/150+1) == 0 {
				s.stepStart(steps[i/(n/150+1)%3], "make")
			}
			s.fifty(steps[i/(n/150+1)%3], i)
			if i%(n/150+1) == n/150 {
				s.stepEnd(steps[i/(n/150+1)%3])
			}
		}
		s.end()
	})
}

// fifty writes 50 records, about 300 ms of a run.
func (s *script) fifty(step string, i int) {
	const ms = time.Millisecond
	s.others(step, i)
	for j := range 16 {
		proc := fmt.Sprint("p-", i, "-", j)
		s.guest(3*ms, audit.KindExec, step, audit.Event{Exec: &audit.Exec{Proc: proc, Parent: fmt.Sprint("p-", i, "-0"), PID: 100 + (i*16+j)%30000, PPID: 1, Exe: "/usr/bin/cc",
			Argv: []audit.Text{"cc", "-c", audit.Text(fmt.Sprintf("src/part%d/file%d.c", i%40, j)), "-o", audit.Text(fmt.Sprintf("obj/%d-%d.o", i, j))}, Cwd: "/workspace", UID: 1000}})
		if j%2 == 0 {
			path := audit.Text(fmt.Sprintf("/workspace/obj/%d-%d.o", i%500, j))
			s.guest(4*ms, audit.KindFile, step, audit.Event{File: &audit.File{Proc: proc, PID: 100 + (i*16+j)%30000, Op: audit.FileWrite, Path: path, Size: int64(1000 + i*j), SHA256: digest(string(path))}})
		}
		if j%3 == 0 {
			s.host(2*ms, audit.KindOutput, step, audit.Event{Output: &audit.Output{Stream: "stdout", Offset: int64(i*16+j) * 24, Text: audit.Text(fmt.Sprintf("cc src/part%d/file%d.c\r\n", i%40, j))}})
		}
		s.guest(6*ms, audit.KindExit, step, audit.Event{Exit: &audit.Exit{Proc: proc, PID: 100 + (i*16+j)%30000, Code: (i + j) % 97 / 96, DurationNS: int64(12 * ms)}})
	}
}

// others are the records that are fewer.
func (s *script) others(step string, i int) {
	const ms = time.Millisecond
	name, flow := audit.Text(fmt.Sprintf("mirror%d.pypi.org", i%20)), fmt.Sprint("f-", i)
	s.host(ms, audit.KindDNS, step, audit.Event{DNS: &audit.DNS{Name: name, Type: "A", Proto: "udp", RCode: "NOERROR", Answers: []string{fmt.Sprint("198.18.0.", i%20+2)}, Verdict: audit.Allow, Rule: "*.pypi.org tcp/443", Synthetic: true, Generation: 1}})
	s.host(ms, audit.KindFlow, step, audit.Event{Flow: &audit.Flow{ID: flow, Proc: fmt.Sprint("p-", i, "-0"), State: audit.FlowOpen, Proto: "tcp", DstIP: fmt.Sprint("198.18.0.", i%20+2), DstPort: 443, SrcPort: 1024 + i%60000, Name: name,
		Verdict: audit.Allow, Rule: "*.pypi.org tcp/443", Generation: 1}})
	s.host(20*ms, audit.KindFlow, step, audit.Event{Flow: &audit.Flow{ID: flow, State: audit.FlowClose, Proto: "tcp", DstIP: fmt.Sprint("198.18.0.", i%20+2), DstPort: 443, Name: name, Verdict: audit.Allow, Rule: "*.pypi.org tcp/443", BytesOut: 2000, BytesIn: uint64(9000 * (i%7 + 1)), DurationNS: int64(20 * ms)}})
	switch {
	case i%50 == 3:
		s.host(ms, audit.KindSecret, step, audit.Event{Secret: &audit.Secret{Name: "model", Op: audit.SecretMint, Broker: "vault", Via: "header", TTLNS: 60e9, Expires: s.at.Add(time.Minute)}})
	case i%50 == 4:
		s.host(ms, audit.KindLLM, step, audit.Event{LLM: &audit.LLM{ID: fmt.Sprint("l-", i), Provider: "anthropic", API: "messages", Host: "api.anthropic.com", Model: "claude", InputTokens: 1200, OutputTokens: 340,
			ToolCalls: []audit.ToolCall{{Name: "bash", SHA256: digest("ls"), Arguments: `{"command":"ls"}`}}, StopReason: "tool_use", Status: 200, DurationNS: 2e9}})
	case i%50 == 40:
		s.host(ms, audit.KindSecret, step, audit.Event{Secret: &audit.Secret{Name: "model", Op: audit.SecretRevoke, Broker: "vault"}})
	case i%20 == 7:
		s.host(ms, audit.KindFlow, step, audit.Event{Flow: &audit.Flow{State: audit.FlowDeny, Proto: "tcp", DstIP: "192.0.2.77", DstPort: 443, SrcPort: 70 + i, Verdict: audit.Deny, Rule: "default", Reason: "no rule names it", Generation: 1, Count: 3}})
	case i%400 == 9:
		s.host(ms, audit.KindFinding, step, audit.Event{Finding: &audit.Finding{Rule: "secret-in-output", Detail: "a value of the credential model was printed and masked", Secret: "model", Action: "revoke"}})
	}
}
