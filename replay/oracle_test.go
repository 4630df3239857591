package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// oracle gives the state at an instant in the slow and obvious way: it decodes
// all records whole, looks everything up by name, and by walking over all records again.
type oracle struct {
	run     store.Run
	rows    []store.Row
	records []*audit.Record // nil: cannot be read
}

func newOracle(run store.Run, rows Rows) *oracle {
	o := &oracle{run: run}
	for row := range rows {
		var r audit.Record
		_, err := store.ParseHead(row.Body)
		o.rows = append(o.rows, row)
		if row.Erased != nil || err != nil || json.Unmarshal(row.Body, &r) != nil {
			o.records = append(o.records, nil)
			continue
		}
		r.Time, r.Seq = instantOf(nanos(row.Time)), row.Seq
		o.records = append(o.records, &r)
	}
	return o
}

// is reports whether r has the payload of its kind.
func is(r *audit.Record, k audit.Kind, payload bool) bool { return r.Kind == k && payload }

func (o *oracle) at(t time.Time, lines int) State {
	processes := audit.Guest
	for _, r := range o.records {
		if r != nil && is(r, audit.KindExec, r.Exec != nil) && r.Observer == audit.Host {
			processes = audit.Host
		}
	}
	s := State{Run: o.run.ID, At: t, Phase: "not started", Steps: []StepState{}, Procs: []*Process{}, Files: []FileState{}, Deleted: []audit.Text{},
		Secrets: []Held{}, Output: []OutputLine{}, Gaps: []GapAt{}, Findings: []Finding{}, Observed: observed(processes)}
	s.Egress.Flows, s.Egress.Names = []FlowAt{}, []NameAt{}
	procs, files, gone := map[string]*Process{}, map[audit.Text]FileState{}, map[audit.Text]bool{}
	inodes := map[string]map[audit.Text]bool{}
	flows, names := map[string]FlowAt{}, map[audit.Text]NameAt{}
	held := map[heldKey]*Held{}
	tail := newTail(lines)
	frozen := false
	declared := func(seq uint64) bool {
		for _, r := range o.records {
			if r != nil && r.Observer == audit.Host && is(r, audit.KindGap, r.Gap != nil) && r.Gap.First > 0 && seq >= r.Gap.First && seq <= r.Gap.Last {
				return true
			}
		}
		return false
	}
	next := uint64(1)
	for i, row := range o.rows {
		missing := span{next, row.Seq - 1}
		next = row.Seq + 1
		if nanos(row.Time) > nanos(t) {
			continue
		}
		for seq := missing.first; seq <= missing.last; seq++ {
			if !declared(seq) {
				s.Missing++
			}
		}
		s.Events++
		r := o.records[i]
		if r == nil {
			s.Unreadable++
			continue
		}
		host := r.Observer == audit.Host
		switch {
		case is(r, audit.KindRun, r.Lifecycle != nil) && host:
			s.Phase = "running"
			if r.Lifecycle.Phase == audit.PhaseEnd {
				s.Phase = "ended"
				clear(flows)
				clear(procs)
			}
		case is(r, audit.KindStep, r.Lifecycle != nil) && host:
			o.step(&s, r)
		case is(r, audit.KindExec, r.Exec != nil):
			p := procs[uidOf(r)]
			if p == nil {
				p = &Process{Start: r.Time}
				procs[uidOf(r)] = p
			}
			e := r.Exec
			p.Proc, p.PID, p.Argv, p.Exe, p.Cwd, p.UID, p.Step, p.Seq, p.LLM, p.Observer = e.Proc, e.PID, e.Argv, e.Exe, e.Cwd, e.UID, r.Step, r.Seq, e.LLM, r.Observer
		case is(r, audit.KindExit, r.Exit != nil):
			if r.Exit.Proc != "" {
				delete(procs, r.Exit.Proc)
			}
		case is(r, audit.KindFile, r.File != nil):
			o.link(files, gone, inodes, r)
			o.file(files, gone, r)
		case is(r, audit.KindOutput, r.Output != nil) && host:
			tail.add(r.Step, r.Output)
		case is(r, audit.KindVM, r.VM != nil) && host:
			frozen = r.VM.Op == "freeze" || frozen && r.VM.Op != "thaw"
		case is(r, audit.KindGap, r.Gap != nil):
			s.Gaps = append(s.Gaps, GapAt{*r.Gap, r.Seq, r.Time, r.Observer})
		case is(r, audit.KindFlow, r.Flow != nil) && host && r.Flow.State != audit.FlowAttempt:
			o.flow(&s, flows, r)
		case is(r, audit.KindDNS, r.DNS != nil) && host:
			o.dns(&s, names, r)
		case is(r, audit.KindHTTP, r.HTTP != nil) && host && r.HTTP.Verdict == audit.Deny:
			s.Egress.Denied.Requests++
		case is(r, audit.KindPolicy, r.Policy != nil) && host:
			s.Egress.Generation, s.Egress.Digest, s.Egress.Rules = r.Policy.Generation, r.Policy.Digest, r.Policy.Rules
		case is(r, audit.KindSecret, r.Secret != nil) && host:
			o.secret(held, r)
		}
	}
	if frozen && s.Phase == "running" {
		s.Phase = "frozen"
	}
	s.Procs = o.tree(procs)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		s.Files = append(s.Files, files[path])
	}
	s.Deleted = append(s.Deleted, slices.Sorted(maps.Keys(gone))...)
	for _, f := range flows {
		s.Egress.Flows = append(s.Egress.Flows, f)
	}
	slices.SortFunc(s.Egress.Flows, func(a, b FlowAt) int { return cmp.Or(a.Opened.Compare(b.Opened), cmp.Compare(a.ID, b.ID)) })
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s.Egress.Names = append(s.Egress.Names, names[name])
	}
	for _, h := range held {
		if h.Expires.IsZero() || h.Expires.After(t) {
			s.Secrets = append(s.Secrets, *h)
		}
	}
	slices.SortFunc(s.Secrets, func(a, b Held) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Name, b.Name)) })
	s.Output = tail.last()
	s.Findings = o.findings(t)
	return s
}

func uidOf(r *audit.Record) string {
	if r.Exec.Proc == "" {
		return fmt.Sprintf("seq %d", r.Seq)
	}
	return r.Exec.Proc
}

func (o *oracle) step(s *State, r *audit.Record) {
	name := cmp.Or(r.Lifecycle.Name, r.Step)
	if r.Lifecycle.Phase == audit.PhaseStart {
		s.Steps = append(s.Steps, StepState{Seq: r.Seq, Name: name, Argv: r.Lifecycle.Argv, Start: r.Time})
		return
	}
	for i := range s.Steps {
		if st := &s.Steps[i]; st.Name == name && st.End == nil {
			st.End, st.ExitCode, st.Status = &r.Time, r.Lifecycle.ExitCode, r.Lifecycle.Status
			return
		}
	}
}

// link keeps the names of each inode that a link was made to, and has what is written under one name under all.
func (o *oracle) link(files map[audit.Text]FileState, gone map[audit.Text]bool, inodes map[string]map[audit.Text]bool, r *audit.Record) {
	f := r.File
	id := f.Device + " " + f.Inode
	switch {
	case f.Inode == "":
	case f.Source != "":
		if inodes[id] == nil {
			inodes[id] = map[audit.Text]bool{}
		}
		inodes[id][f.Source], inodes[id][f.Path] = true, true
	case f.Op == audit.FileDelete:
		delete(inodes[id], f.Path)
	case f.Op == audit.FileRename && inodes[id][f.Path]:
		delete(inodes[id], f.Path)
		inodes[id][f.To] = true
	case f.Op == audit.FileWrite:
		for name := range inodes[id] {
			as := *r
			as.File = &audit.File{}
			*as.File = *f
			as.File.Path = name
			o.file(files, gone, &as)
		}
	}
}

func (o *oracle) file(files map[audit.Text]FileState, gone map[audit.Text]bool, r *audit.Record) {
	f := r.File
	switch f.Op {
	case audit.FileDelete:
		delete(files, f.Path)
		gone[f.Path] = true
	case audit.FileRename:
		moved, known := files[f.Path]
		delete(files, f.Path)
		delete(gone, f.To)
		if known {
			moved.Path = f.To
			files[f.To] = moved
		}
	case audit.FileCreate, audit.FileWrite:
		delete(gone, f.Path)
		files[f.Path] = FileState{Path: f.Path, Size: f.Size, SHA256: f.SHA256, Unhashed: f.Unhashed, Time: r.Time, PID: f.PID,
			By: o.actor(r.Seq, f.Proc, f.Parent, f.PID), Seq: r.Seq, Observer: r.Observer}
		if source, known := files[f.Source]; known && f.Source != "" {
			source.Path = f.Path
			files[f.Path] = source
		}
	}
}

// actor names a process by the latest exec before seq.
func (o *oracle) actor(seq uint64, proc, parent string, pid int) *Actor {
	if proc == "" && pid == 0 {
		return nil
	}
	a := &Actor{Proc: proc, PID: pid}
	for _, child := range []bool{false, true} {
		uid := proc
		if child {
			uid = parent
		}
		for _, r := range o.records {
			if r != nil && r.Seq < seq && uid != "" && is(r, audit.KindExec, r.Exec != nil) && r.Exec.Proc == uid {
				a.Seq, a.Child, a.Name = r.Seq, child, r.Exec.Exe
				if len(r.Exec.Argv) > 0 {
					a.Name = r.Exec.Argv[0]
				}
				a.Name = a.Name[strings.LastIndexByte(string(a.Name), '/')+1:]
			}
		}
		if a.Seq != 0 {
			return a
		}
	}
	return a
}

func (o *oracle) flow(s *State, flows map[string]FlowAt, r *audit.Record) {
	f := *r.Flow
	switch f.State {
	case audit.FlowOpen:
		if f.ID == "" {
			return
		}
		at := FlowAt{Flow: f, Opened: r.Time, Seq: r.Seq}
		if known, again := flows[f.ID]; again {
			at.Opened, at.Seq = known.Opened, known.Seq
		}
		o.claims(&at)
		flows[f.ID] = at
	case audit.FlowClose, audit.FlowRevoke:
		delete(flows, f.ID)
	case audit.FlowDeny:
		s.Egress.Denied.Flows += max(f.Count, 1)
	}
}

// claims finds the process of a flow as TestJoinOracle does for joins: here they are taken as right.
func (o *oracle) claims(at *FlowAt) {
	x := newIndex()
	for _, r := range o.records {
		if r != nil {
			x.learnRecord(r)
		}
	}
	at.By = x.by(&at.Flow, at.Opened)
	for _, r := range o.records {
		if r == nil || r.Seq != at.Seq {
			continue
		}
		if a, found := x.joins.of(r.Flow, r.Time); found && (r.Flow.Proc == "" || r.Flow.Proc == a.proc) {
			for _, c := range o.records {
				if c != nil && c.Seq == a.seq {
					at.Claim, at.ClaimSeq = o.actor(c.Seq, c.Flow.Proc, c.Flow.Parent, c.Flow.PID), c.Seq
				}
			}
			return
		}
		at.Claim = o.actor(r.Seq, r.Flow.Proc, r.Flow.Parent, r.Flow.PID)
	}
}

func (o *oracle) dns(s *State, names map[audit.Text]NameAt, r *audit.Record) {
	d := r.DNS
	switch {
	case d.Verdict == audit.Deny && asked(d):
		s.Egress.Denied.Questions++
	case d.Verdict == audit.Allow && len(d.Answers) > 0:
		n, known := names[d.Name]
		if !known {
			n = NameAt{Name: d.Name, Addrs: []string{}}
		}
		n.Rule, n.Time, n.Seq = d.Rule, r.Time, r.Seq
		if asked(d) {
			n.Addrs = newest(n.Addrs, d.Answers)
		} else {
			n.Found = newest(n.Found, slices.DeleteFunc(slices.Clone(d.Answers), func(a string) bool { return slices.Contains(d.Dropped, a) }))
		}
		names[d.Name] = n
	}
}

func newest(known, fresh []string) []string {
	var all []string
	for _, a := range append(slices.Clone(fresh), known...) {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all[:min(len(all), maxAddrs)]
}

func (o *oracle) secret(held map[heldKey]*Held, r *audit.Record) {
	s := r.Secret
	if s.Op == audit.SecretMint {
		held[heldKey{r.Step, s.Name}] = &Held{Step: r.Step, Name: s.Name, Broker: s.Broker, Accessor: s.Accessor, Since: r.Time, Expires: s.Expires, Seq: r.Seq}
	}
	for k, h := range held {
		if k.step != r.Step || s.Name != "" && k.name != s.Name || s.Broker != "" && h.Broker != s.Broker {
			continue
		}
		switch s.Op {
		case audit.SecretDeliver:
			h.Via = s.Via
		case audit.SecretRenew:
			h.Expires, h.Renewals = s.Expires, h.Renewals+1
		case audit.SecretRevoke, audit.SecretExpire:
			delete(held, k)
		}
	}
}

func (o *oracle) findings(t time.Time) []Finding {
	all := []Finding{}
	derived, err := Disagreements(asRows(o.rows))
	if err != nil {
		panic(err) // these rows have none
	}
	for _, r := range o.records {
		if r != nil && r.Observer == audit.Host && is(r, audit.KindFinding, r.Finding != nil) {
			f := recordedFinding(&moment{seq: r.Seq, at: nanos(r.Time), step: r.Step}, r.Finding)
			for _, d := range derived {
				if d.Rule == f.Rule && d.Evidence[0] == r.Finding.Seq {
					f.Evidence = d.Evidence
				}
			}
			all = append(all, f)
		}
	}
	for _, f := range all {
		if len(f.Evidence) > 0 {
			derived = slices.DeleteFunc(derived, func(d Finding) bool { return d.Rule == f.Rule && d.Evidence[0] == f.Evidence[0] })
		}
	}
	all = append(all, derived...)
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Seq, b.Seq)) })
	return slices.DeleteFunc(all, func(f Finding) bool { return nanos(f.Time) > nanos(t) })
}

// tree hangs each process below its nearest running ancestor.
func (o *oracle) tree(procs map[string]*Process) []*Process {
	parent := map[string]string{}
	for _, r := range o.records {
		if r != nil && is(r, audit.KindExec, r.Exec != nil) {
			if _, known := parent[uidOf(r)]; !known {
				parent[uidOf(r)] = r.Exec.Parent
			}
		}
	}
	uids := slices.SortedFunc(maps.Keys(procs), func(a, b string) int {
		x, y := procs[a], procs[b]
		return cmp.Or(x.Start.Compare(y.Start), cmp.Compare(x.PID, y.PID), cmp.Compare(a, b))
	})
	above := map[string]string{}
	for _, uid := range uids {
		seen := map[string]bool{uid: true}
		for up := parent[uid]; up != "" && !seen[up]; up = parent[up] {
			seen[up] = true
			if procs[up] != nil {
				above[uid] = up
				break
			}
		}
	}
	for _, uid := range uids { // in a circle the last stands at the top
		last, n := uid, 0
		for up := above[uid]; up != "" && up != uid && n <= len(uids); up, n = above[up], n+1 {
			if slices.Index(uids, up) > slices.Index(uids, last) {
				last = up
			}
		}
		if above[uid] != "" && n <= len(uids) && chainEnds(above, uid) == uid {
			above[last] = ""
		}
	}
	roots := []*Process{}
	for _, uid := range uids {
		chain := []string{}
		for up := above[uid]; up != ""; up = above[up] {
			chain = append(chain, up)
		}
		if len(chain) == 0 {
			roots = append(roots, procs[uid])
			continue
		}
		up := procs[chain[max(0, len(chain)-maxTree)]]
		up.Children = append(up.Children, procs[uid])
	}
	return roots
}

// chainEnds returns uid if the way up from it comes back to it, else where it ends.
func chainEnds(above map[string]string, uid string) string {
	up := above[uid]
	for n := 0; up != "" && up != uid && n <= len(above); n++ {
		up = above[up]
	}
	return up
}

// randomRun is a run of few names and many collisions, with clocks that jump.
func randomRun(random *rand.Rand, n int) []store.Frame {
	var frames []store.Frame
	seq, now := uint64(0), storetest.Start()
	for range n {
		seq++
		if random.IntN(12) == 0 {
			seq += uint64(random.IntN(4))
		}
		now = now.Add(time.Duration(random.IntN(50)) * time.Millisecond)
		e := randomEvent(random)
		e.Time = now
		if random.IntN(8) == 0 {
			e.Time = now.Add(time.Duration(random.IntN(2000)-1000) * time.Millisecond)
		}
		frames = append(frames, storetest.Frame("r-1", seq, e))
		if random.IntN(40) == 0 {
			frames[len(frames)-1].Body = []byte(`{"broken`)
		}
	}
	return frames
}

func randomEvent(random *rand.Rand) audit.Event {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	path := func() audit.Text { return audit.Text(pick("/a", "/b", "/a/c", "/d", "/\xff")) }
	e := audit.Event{Observer: audit.Observer(pick("host", "guest", "guest")), Step: pick("", "one", "two")}
	seven := 7
	switch random.IntN(16) {
	case 0, 1, 2:
		e.Kind, e.Exec = audit.KindExec, &audit.Exec{Proc: pick("", "p1", "p2", "p3", "p4", "p5", "p6"), Parent: pick("", "p1", "p2", "p3", "p4", "p5"),
			PID: random.IntN(9), Exe: path(), Cwd: path(), LLM: pick("", "m1")}
		if random.IntN(2) == 0 {
			e.Exec.Argv = []audit.Text{path(), "x"}
		}
	case 3, 4:
		e.Kind, e.Exit = audit.KindExit, &audit.Exit{Proc: pick("", "p1", "p2", "p3", "p4", "p5", "p6")}
	case 5, 6:
		e.Kind, e.File = audit.KindFile, &audit.File{Proc: pick("", "p1", "p2", "q"), Parent: pick("", "p3"), PID: random.IntN(3), Path: path(),
			Op: audit.FileOp(pick("create", "write", "write", "read", "rename", "delete", "other")), Size: random.Int64N(9), SHA256: pick("", "00")}
		e.File.Inode, e.File.Device = pick("", "1", "2"), pick("0:1", "0:2")
		if e.File.Op == audit.FileRename {
			e.File.To = path()
		}
		if e.File.Op == audit.FileCreate && random.IntN(2) == 0 {
			e.File.Source = path()
		}
	case 7, 8, 9:
		f := randomFlow(random)
		f.ID, f.Proc = pick("", "f1", "f2", "f3"), pick("", "", "p1", "p2")
		f.State = audit.FlowState(pick("attempt", "open", "open", "close", "deny", "revoke"))
		f.Errno, f.Count, f.DurationNS = random.IntN(2)*115, random.Uint64N(3), random.Int64N(2e9)
		e.Kind, e.Flow = audit.KindFlow, &f
	case 10:
		e.Kind, e.DNS = audit.KindDNS, &audit.DNS{Name: path(), Proto: pick("", "udp"), Verdict: audit.Verdict(pick("allow", "allow", "deny")), Rule: pick("x", "y"),
			Answers: []string{pick("1", "2", "3"), pick("1", "2", "4")}, Dropped: []string{pick("1", "9")}, Synthetic: random.IntN(2) == 0}
	case 11:
		e.Kind, e.Output = audit.KindOutput, &audit.Output{Stream: pick("stdout", "stderr", "tty"), Text: audit.Text(pick("a\n", "b", "c\r\n", "\rx", "\x1b[2Ky\n", "\x1b[1;1H", "\xff"))}
	case 12:
		e.Kind, e.Secret = audit.KindSecret, &audit.Secret{Name: pick("", "git", "db"), Broker: pick("", "vault", "local"), Via: pick("env", "file"),
			Op: audit.SecretOp(pick("mint", "mint", "deliver", "use", "renew", "revoke", "expire", "refuse")), Expires: storetest.Start().Add(time.Duration(random.IntN(20)) * time.Second)}
	case 13:
		e.Kind, e.Lifecycle = audit.Kind(pick("run", "step", "step")), &audit.Lifecycle{Phase: audit.Phase(pick("start", "end")), Name: pick("", "one", "two"), ExitCode: &seven, Status: audit.Status(pick("done", "timeout"))}
	case 14:
		e.Kind, e.VM = audit.KindVM, &audit.VM{Op: pick("freeze", "thaw", "create")}
	case 15:
		switch random.IntN(4) {
		case 0:
			first := random.Uint64N(300)
			e.Kind, e.Gap = audit.KindGap, &audit.Gap{Stage: audit.Stage(pick("wal", "kernel_ring", "flow_ring")), First: first, Last: first + random.Uint64N(9), Count: 1}
		case 1:
			e.Kind, e.Finding = audit.KindFinding, &audit.Finding{Rule: audit.Rule(pick("x", "flow-unclaimed", "connect-unseen")), Seq: random.Uint64N(200)}
		case 2:
			e.Kind, e.Policy = audit.KindPolicy, &audit.Policy{Generation: random.Uint32N(4), Digest: pick("a", "b")}
		case 3:
			e.Kind, e.HTTP = audit.KindHTTP, &audit.HTTP{Flow: pick("", "f1", "f2"), Verdict: audit.Verdict(pick("allow", "deny")), LLM: pick("", "m1")}
		}
	}
	return e
}

// TestStateOracle: a story's state is the slow one, at every instant, however it was read.
func TestStateOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 25 {
		frames := randomRun(random, 120)
		checkStates(t, fmt.Sprint("random run ", i), frames, random)
	}
	for name, frames := range map[string][]store.Frame{"story": story(), "traffic": traffic(), "busy": storetest.Frames("r-1", busy(200)), "work": storetest.Frames("r-1", storetest.Events(100))} {
		checkStates(t, name, frames, random)
	}
}

func checkStates(t *testing.T, name string, frames []store.Frame, random *rand.Rand) {
	t.Helper()
	rows := benchRows(frames)
	run := summary(frames)
	slow := newOracle(run, asRows(rows))
	whole, err := Read(run, asRows(rows))
	if err != nil {
		t.Fatal(err)
	}
	grown := grow(t, run, rows, random)
	instants := []time.Time{{}, storetest.Start().Add(-time.Hour), storetest.Start().Add(time.Hour), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	for range 12 {
		at := rows[random.IntN(len(rows))].Time
		instants = append(instants, at, at.Add(-1), at.Add(time.Millisecond-1))
	}
	for _, at := range instants {
		lines := random.IntN(6)
		want := toJSON(t, slow.at(at, lines))
		for how, s := range map[string]*Story{"read": whole, "grown": grown} {
			state := s.StateAt(at, lines)
			if got, want := toJSON(t, s.Steps().At(at)), toJSON(t, state.Steps); got != want {
				t.Errorf("%s, %s: the steps at %s are %s, in the state %s", name, how, at, got, want)
			}
			if got := toJSON(t, state); got != want {
				t.Fatalf("%s, %s, at %v, %d lines:\n got %s\nwant %s", name, how, at, lines, got, want)
			}
		}
	}
}

// grow reads rows in pieces, with questions and repeats in between.
func grow(t *testing.T, run store.Run, rows []store.Row, random *rand.Rand) *Story {
	t.Helper()
	s, err := Read(run, asRows(nil))
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < len(rows); {
		to := min(len(rows), from+1+random.IntN(40))
		if err := s.Add(run, asRows(rows[max(0, from-3):to])); err != nil {
			t.Fatal(err)
		}
		s.StateAt(rows[from].Time, 3)
		s.Lanes(time.Time{}, time.Time{}, 10)
		from = to
	}
	return s
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
