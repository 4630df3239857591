package report

import (
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
)

// steps follows the commands that the caller gave.
type steps struct {
	all, open cites
	running   map[string]uint64 // seq of the start
	codes     tallies
}

func newSteps() *steps { return &steps{running: map[string]uint64{}, codes: tallies{}} }

func (q *steps) see(r *record) {
	if !r.host(audit.KindStep) {
		return
	}
	if r.Lifecycle.Phase == audit.PhaseStart {
		q.running[r.Lifecycle.Name] = r.row.Seq
		q.all.add(r)
		return
	}
	delete(q.running, r.Lifecycle.Name)
	q.all.keep(r.src, r.row.Seq)
	q.codes.add(ending(r.Lifecycle), 1)
}

// ending is how a step ended, in words.
func ending(l *audit.Lifecycle) string {
	if l.Status == audit.StatusDone && l.ExitCode != nil {
		return "with status " + strconv.Itoa(*l.ExitCode)
	}
	return "as " + string(l.Status)
}

func (q *steps) end(s *source) {
	if s.ended {
		q.open.all(s, q.running)
	}
	clear(q.running)
}

func (q *steps) claims() []Claim {
	if q.all.n == 0 {
		return []Claim{none("no step was started")}
	}
	claims := []Claim{q.all.claim(Supports, ByHost, "Commands recorded before they ran %s: %s. Their ends: %s.", q.all.runsText(), count(q.all.n, "step"), orNone(q.codes))}
	if q.open.n > 0 {
		claims = append(claims, q.open.claim(Contradicts, ByHost, "NO END IS RECORDED of %s in a run that has ended.", count(q.open.n, "step")))
	}
	return claims
}

func orNone(t tallies) string {
	if len(t) == 0 {
		return "none yet"
	}
	return t.String()
}

// commands pairs each process with its end.
type commands struct {
	all, open, made cites
	alive           map[string]uint64 // seq of the first exec by process
	asked, cut      uint64
	procs, failed   uint64
}

func newCommands() *commands { return &commands{alive: map[string]uint64{}} }

func (q *commands) see(r *record) {
	switch {
	case !r.readable:
	case r.Kind == audit.KindExec:
		q.all.add(r)
		if _, again := q.alive[r.Exec.Proc]; !again {
			q.alive[r.Exec.Proc] = r.row.Seq
			q.procs++
		}
		if r.Exec.LLM != "" {
			q.asked++
		}
		if r.Exec.Truncated {
			q.cut++
		}
	case r.Kind == audit.KindExit:
		delete(q.alive, r.Exit.Proc)
		if r.Exit.Synthetic {
			q.made.add(r)
		} else if r.Exit.Code != 0 {
			q.failed++
		}
	}
}

func (q *commands) end(s *source) {
	if s.ended {
		q.open.all(s, q.alive)
	}
	clear(q.alive)
}

func (q *commands) claims() []Claim {
	if q.all.n == 0 {
		c := none("no program was started")
		c.Basis = ByGuest
		return []Claim{c}
	}
	claims := []Claim{q.all.claim(Supports, q.all.basis(),
		"Recorded %s: %s of programs by %s, each with its arguments, directory, user and parent. Processes that ended with another status than 0: %s; starts whose arguments are longer than what is kept: %s; starts that a model's call asked for: %s.",
		q.all.runsText(), count(q.all.n, "start"), countAs(q.procs, "process", "processes"), number(q.failed), number(q.cut), number(q.asked))}
	if q.made.n > 0 {
		claims = append(claims, q.made.claim(Lacks, ByHost, "The end of %s was not observed: the run's end stands in for it.", countAs(q.made.n, "process", "processes")))
	}
	if q.open.n > 0 {
		claims = append(claims, q.open.claim(Contradicts, q.all.basis(), "NO END IS RECORDED of %s in a run that has ended. The records cited are their starts.", countAs(q.open.n, "process", "processes")))
	}
	return claims
}

// privileged counts what ran as root of the guest.
type privileged struct {
	cites
	others uint64
}

func (q *privileged) see(r *record) {
	switch {
	case !r.readable || r.Kind != audit.KindExec:
	case r.Exec.UID == 0:
		q.add(r)
	default:
		q.others++
	}
}

func (q *privileged) end(*source) {}

func (q *privileged) claims() []Claim {
	if q.n == 0 {
		c := none("no program was started as root of a guest")
		c.Basis = ByGuest
		return []Claim{c}
	}
	return []Claim{q.claim(Supports, q.basis(), "Started as root of the guest, and recorded: %s %s; as other users: %s. Root there has no rights on the host.",
		count(q.n, "program"), q.runsText(), number(q.others))}
}

// files looks for hashes of what was written.
type files struct {
	hashed, bare cites
	other        uint64
}

func (q *files) see(r *record) {
	switch {
	case !r.readable || r.Kind != audit.KindFile:
	case r.File.Op != audit.FileWrite:
		q.other++
	case r.File.SHA256 != "":
		q.hashed.add(r)
	default:
		q.bare.add(r)
	}
}

func (q *files) end(*source) {}

func (q *files) claims() []Claim {
	if q.hashed.n+q.bare.n == 0 {
		c := none("no file was written")
		c.Basis = ByGuest
		return []Claim{c}
	}
	var claims []Claim
	if q.hashed.n > 0 {
		claims = append(claims, q.hashed.claim(Supports, q.hashed.basis(), "Recorded with path, size and SHA-256 of the content %s: %s to files; beside them %s of creating, renaming, deleting or reading.",
			q.hashed.runsText(), count(q.hashed.n, "write"), count(q.other, "record")))
	}
	if q.bare.n > 0 {
		claims = append(claims, q.bare.claim(Lacks, q.bare.basis(), "No hash of the content is recorded of %s to files.", count(q.bare.n, "write")))
	}
	return claims
}

// modelCalls counts LLM API calls.
type modelCalls struct {
	all, short cites
	models     tallies
	in, out    uint64
	tools      uint64
	execs      uint64
}

func newModelCalls() *modelCalls { return &modelCalls{models: tallies{}} }

func (q *modelCalls) see(r *record) {
	if r.readable && r.Kind == audit.KindExec && r.Exec.LLM != "" {
		q.execs++
	}
	if !r.host(audit.KindLLM) {
		return
	}
	q.all.add(r)
	q.models.add(string(r.LLM.Model), 1)
	q.in += uint64(max(r.LLM.InputTokens, 0))
	q.out += uint64(max(r.LLM.OutputTokens, 0))
	q.tools += uint64(len(r.LLM.ToolCalls))
	if r.LLM.Incomplete != "" {
		q.short.add(r)
	}
}

func (q *modelCalls) end(*source) {}

func (q *modelCalls) claims() []Claim {
	if q.all.n == 0 {
		return []Claim{none("no call of a language model went through the gateway where it could be read")}
	}
	claims := []Claim{q.all.claim(Supports, ByHost,
		"Recorded %s: %s of language models (%s), with %s in and %s out, and %s of tools. Programs started because of them: %s.",
		q.all.runsText(), count(q.all.n, "call"), q.models, count(q.in, "token"), number(q.out), count(q.tools, "call"), number(q.execs))}
	if q.short.n > 0 {
		claims = append(claims, q.short.claim(Lacks, ByHost, "The figures of %s are short: the answer broke off, or could not be read to its end.", count(q.short.n, "call")))
	}
	return claims
}

// isolation tells the tiers.
type isolation struct {
	strong, none, unknown cites
	tiers                 tallies
	notes                 map[string]string
}

func newIsolation() *isolation { return &isolation{tiers: tallies{}, notes: map[string]string{}} }

func (q *isolation) see(r *record) {
	if !r.host(audit.KindRun) || r.Lifecycle.Phase != audit.PhaseStart {
		return
	}
	tier := r.Lifecycle.Tier
	q.tiers.add(tier, 1)
	switch tier {
	case "firecracker", "qemu-kvm", "gvisor":
		q.strong.add(r)
	case "qemu-tcg", "host":
		q.none.add(r)
	default:
		q.unknown.add(r)
	}
	if r.Lifecycle.TierNote != "" {
		q.notes[tier] = r.Lifecycle.TierNote
	}
}

func (q *isolation) end(*source) {}

func (q *isolation) claims() []Claim {
	var claims []Claim
	if q.strong.n > 0 {
		claims = append(claims, q.strong.claim(Supports, ByHost, "The workload of %s ran behind a boundary that is made for hostile code. Tiers of all runs: %s.", count(q.strong.n, "run"), q.tiers))
	}
	if q.none.n > 0 {
		var notes []string
		for _, tier := range sorted(q.notes) {
			notes = append(notes, short(tier)+": "+short(q.notes[tier]))
		}
		claims = append(claims, q.none.claim(Lacks, ByHost,
			"NO SECURITY BOUNDARY is promised of the isolation tier of %s. Tiers of all runs: %s. In the record's words: %s.", count(q.none.n, "run"), q.tiers, strings.Join(notes, "; ")))
	}
	if q.unknown.n > 0 {
		claims = append(claims, q.unknown.claim(Lacks, ByHost, "The record of %s names no isolation tier that this version knows: %s.", count(q.unknown.n, "run"), q.tiers))
	}
	if claims == nil {
		claims = append(claims, none("no run says how it was isolated"))
	}
	return claims
}
