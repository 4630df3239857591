package sampleruns

import (
	"iter"
	"time"

	"github.com/custody-project/custody/audit"
)

// Review is a run from 14:31:00 to 14:33:00 with one answer to each question that a reviewer asks: an agent that starts
// a curl at 14:32:05, which is denied 192.0.2.77 and ends at 14:32:20; the credential model, which lives from 14:31:30
// to 14:32:40; and one finding.
func Review() iter.Seq[audit.Event] {
	return events(func(s *script) {
		until := func(minute, second int) time.Duration {
			return time.Date(2026, 11, 20, 14, minute, second, 0, time.UTC).Sub(s.at)
		}
		const step = "agent"
		s.begin("review", step)
		s.stepStart(step, "python3", "agent.py")
		s.host(until(31, 30), audit.KindSecret, step, audit.Event{Secret: &audit.Secret{Name: "model", Op: audit.SecretMint, Broker: "vault", Via: "header", TTLNS: 60e9, Expires: s.at.Add(90 * time.Second)}})
		s.process(until(31, 31), step, "p-agent", "", 41, 1, "/usr/bin/python3", "python3", "agent.py")
		s.process(until(31, 40), step, "p-shell", "p-agent", 42, 41, "/bin/sh", "sh", "-c", "curl https://192.0.2.77/")
		s.host(until(32, 0), audit.KindOutput, step, audit.Event{Output: &audit.Output{Stream: "stdout", Text: "fetching\r\n"}})
		s.process(until(32, 5), step, "p-curl", "p-shell", 43, 42, "/usr/bin/curl", "curl", "https://192.0.2.77/")
		s.host(until(32, 7), audit.KindFlow, step, audit.Event{Flow: &audit.Flow{Proc: "p-curl", State: audit.FlowDeny, Proto: "tcp", DstIP: "192.0.2.77", DstPort: 443, SrcPort: 4070,
			Verdict: audit.Deny, Rule: "default", Reason: "no rule names it", Generation: 1}})
		s.exit(until(32, 20), step, "p-curl", 43, 7)
		s.exit(until(32, 21), step, "p-shell", 42, 7)
		s.host(until(32, 30), audit.KindFinding, step, audit.Event{Finding: &audit.Finding{Rule: "secret-in-output", Detail: "a value of the credential model was printed and masked", Secret: "model", Action: "revoke"}})
		s.host(until(32, 40), audit.KindSecret, step, audit.Event{Secret: &audit.Secret{Name: "model", Op: audit.SecretRevoke, Broker: "vault"}})
		s.exit(until(32, 50), step, "p-agent", 41, 0)
		s.stepEnd(step)
		s.at = s.at.Add(until(33, 0) - time.Millisecond)
		s.end()
	})
}

func (s *script) process(after time.Duration, step, proc, parent string, pid, ppid int, exe audit.Text, argv ...audit.Text) {
	s.guest(after, audit.KindExec, step, audit.Event{Exec: &audit.Exec{Proc: proc, Parent: parent, PID: pid, PPID: ppid, Exe: exe, Argv: argv, Cwd: "/workspace"}})
}

func (s *script) exit(after time.Duration, step, proc string, pid, code int) {
	s.guest(after, audit.KindExit, step, audit.Event{Exit: &audit.Exit{Proc: proc, PID: pid, Code: code}})
}
