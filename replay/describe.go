package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// entry is what one record shows. All of it has been escaped.
type entry struct {
	pid    string
	result string // the result, or what was done
	length string // how long or how much
	mood   style  // of the result
	indent int
	what   []piece
	more   []string // further lines, of output
}

func (e *entry) add(s style, text string) { e.what = append(e.what, piece{s, text}) }

func kindStyle(k audit.Kind) style {
	switch k {
	case audit.KindRun, audit.KindStep:
		return bold
	case audit.KindExec, audit.KindExit:
		return green
	case audit.KindFile:
		return blue
	case audit.KindFlow, audit.KindDNS, audit.KindHTTP, audit.KindLLM:
		return magenta
	case audit.KindSecret, audit.KindPolicy, audit.KindAccess, audit.KindNote:
		return yellow
	case audit.KindGap, audit.KindFinding:
		return alarm
	case audit.KindOutput:
		return dim
	}
	return cyan
}

// record writes the lines of r, whose exact bytes are body.
func (p *printer) record(r audit.Record, body []byte, mark store.Mark) {
	e, ok := p.describer.describe(r, body)
	if !ok {
		return
	}
	if r.Kind == audit.KindGap && r.Gap != nil {
		p.lost += r.Gap.Count
	}
	l := newLine(p.out, p.opt)
	if e.mood == alarm {
		l.limit = 0 // a terminal may wrap it; it is not cut
	}
	p.head(l, r.Seq, r.Time, r.Step, string(r.Observer), string(r.Kind), kindStyle(r.Kind))
	l.right(plain, e.pid, pidWidth)
	l.put(e.mood, cut(e.result, exitWidth))
	l.put(plain, strings.Repeat(" ", exitWidth-textWidth(cut(e.result, exitWidth))))
	l.right(plain, e.length, lengthWidth)
	l.put(plain, strings.Repeat("  ", min(e.indent, maxIndent)))
	if s, word := markWord(mark); word != "" {
		l.put(s, word)
		l.put(plain, "  ")
	}
	for _, piece := range e.what {
		l.put(piece.style, piece.text)
	}
	l.end()
	for _, more := range e.more {
		l.put(plain, strings.Repeat(" ", p.margin()))
		l.put(plain, more)
		l.end()
	}
}

// describer turns records into what their lines show, with what is known of the rest of the run.
type describer struct {
	opt   Options
	index *index
}

// describe returns what r shows, or false if another line shows it. Only the payload of
// the record's own kind counts.
func (d *describer) describe(r audit.Record, body []byte) (entry, bool) {
	switch {
	case (r.Kind == audit.KindRun || r.Kind == audit.KindStep) && r.Lifecycle != nil:
		return lifecycle(r.Kind, r.Lifecycle), true
	case r.Kind == audit.KindExec && r.Exec != nil:
		return d.exec(r.Seq, r.Exec), true
	case r.Kind == audit.KindExit && r.Exit != nil:
		if d.opt.shows(audit.KindExec) && d.index.shownWithExec(r.Seq, r.Exit.Proc) {
			return entry{}, false
		}
		return d.exit(r.Exit), true
	case r.Kind == audit.KindFile && r.File != nil:
		return d.file(r.File), true
	case r.Kind == audit.KindFlow && r.Flow != nil:
		return d.flow(r), true
	case r.Kind == audit.KindInbound && r.Inbound != nil:
		return inbound(r.Inbound), true
	case r.Kind == audit.KindDNS && r.DNS != nil:
		return dns(r.DNS), true
	case r.Kind == audit.KindHTTP && r.HTTP != nil:
		return d.http(r.HTTP), true
	case r.Kind == audit.KindLLM && r.LLM != nil:
		return llm(r.LLM), true
	case r.Kind == audit.KindPolicy && r.Policy != nil:
		return d.policy(r.Policy), true
	case r.Kind == audit.KindProbe && r.Probe != nil:
		return probe(r.Probe), true
	case r.Kind == audit.KindOutput && r.Output != nil:
		return output(r.Output), true
	case r.Kind == audit.KindVM && r.VM != nil:
		return vm(r.VM), true
	case r.Kind == audit.KindCopy && r.Copy != nil:
		return copied(r.Copy), true
	case r.Kind == audit.KindSecret && r.Secret != nil:
		return secret(r.Secret), true
	case r.Kind == audit.KindGap && r.Gap != nil:
		return gap(r.Gap), true
	case r.Kind == audit.KindFinding && r.Finding != nil:
		e := finding(r.Finding)
		e.pid = shortPID(d.index.pidOf(r.Finding.Proc), r.Finding.Proc)
		return e, true
	case r.Kind == audit.KindAccess && r.Access != nil:
		return access(r.Access), true
	case r.Kind == audit.KindNote && r.Note != nil:
		return note(r.Note), true
	}
	return unknown(r.Kind, body), true
}

func lifecycle(k audit.Kind, l *audit.Lifecycle) entry {
	e := entry{result: escape(string(l.Phase)), mood: bold}
	if l.DurationNS > 0 {
		e.length = duration(l.DurationNS)
	}
	if l.ExitCode != nil {
		e.result, e.mood = "exit "+strconv.Itoa(*l.ExitCode), exitMood(*l.ExitCode)
	}
	var words []string
	if l.Phase == audit.PhaseEnd {
		words = append(words, string(k)+" ended: "+string(l.Status))
	}
	parent := ""
	if p := l.Parent; p != nil {
		parent = fmt.Sprintf("%s of %s at seq %d, manifest %s", p.Op, p.Run, p.Seq, p.Manifest)
	}
	version := ""
	if l.ProjectVersion > 0 {
		version = fmt.Sprintf("%d of %s", l.ProjectVersion, l.ProjectAuthor)
		if l.NarrowingDigest != "" {
			version += ", narrowed by " + l.NarrowingDigest
		}
	}
	for _, f := range []struct{ name, value string }{
		{"", parent}, {"project ", l.Project}, {"registered version ", version}, {"template ", l.Template}, {"tier ", l.Tier}, {"mode ", l.Mode}, {"host ", l.Host},
		{"policy ", l.PolicyDigest}, {"", l.Reason}, {"", l.TierNote}} {
		if f.value != "" {
			words = append(words, f.name+f.value)
		}
	}
	if len(l.Argv) > 0 {
		e.add(bold, quoteAll(l.Argv))
		if len(l.Env) > 0 {
			e.add(plain, "  (env "+quoteAll(l.Env)+")")
		}
		if len(words) > 0 {
			e.add(plain, "  ")
		}
	}
	e.add(plain, escape(strings.Join(words, ", ")))
	return e
}

func (d *describer) exec(seq uint64, x *audit.Exec) entry {
	e := entry{pid: shortPID(x.PID, x.Proc), indent: d.depth(x.Proc)}
	if exit := d.index.exitOf(seq, x.Proc); exit != nil {
		e.result, e.length, e.mood = exitResult(exit)
	} else if k := d.index.procs[x.Proc]; k != nil && k.lastExec > seq {
		e.result, e.mood = "replaced", dim // its process executed another program
	} else {
		e.result, e.mood = "started", dim
		d.index.proc(x.Proc).open = true
	}
	e.add(plain, quoteAll(x.Argv))
	if x.Truncated {
		e.add(yellow, fmt.Sprintf(" … (argv is cut: %s in all, sha256:%s)", size(int64(x.ArgvBytes)), d.digest(x.ArgvSHA256)))
	}
	if len(x.Argv) == 0 || base(x.Argv[0]) != base(x.Exe) {
		e.add(dim, "  exe "+quote(x.Exe))
	}
	if x.Cwd != "" {
		e.add(dim, "  in "+quote(x.Cwd))
	}
	if x.UID != 0 {
		e.add(dim, "  uid "+strconv.Itoa(x.UID))
	}
	if x.LLM != "" {
		e.add(yellow, "  asked for by "+escape(x.LLM)+" "+quote(x.ToolCall))
	}
	return e
}

func (d *describer) depth(proc string) int {
	if k := d.index.procs[proc]; k != nil {
		return k.depth
	}
	return 0
}

func (d *describer) exit(x *audit.Exit) entry {
	e := entry{pid: shortPID(x.PID, x.Proc), indent: d.depth(x.Proc)}
	e.result, e.length, e.mood = exitResult(x)
	name := "a process whose exec is not in the record"
	if k := d.index.procs[x.Proc]; k != nil && k.lastExec > 0 {
		name = quote(audit.Text(k.name))
	}
	e.add(dim, "end of "+name)
	return e
}

func exitResult(x *audit.Exit) (result, length string, mood style) {
	switch {
	case x.Synthetic:
		return "unknown", "", yellow
	case x.Signal != 0:
		result, mood = "sig "+signalName(x.Signal), red
	default:
		result, mood = "exit "+strconv.Itoa(x.Code), exitMood(x.Code)
	}
	if x.DurationNS > 0 {
		length = duration(x.DurationNS)
	}
	return result, length, mood
}

func exitMood(code int) style {
	if code == 0 {
		return green
	}
	return red
}

// signalName shortens the signals that a reader knows by name.
func signalName(n int) string {
	names := map[int]string{1: "HUP", 2: "INT", 3: "QUIT", 6: "ABRT", 9: "KILL", 11: "SEGV", 13: "PIPE", 15: "TERM"}
	if name, ok := names[n]; ok {
		return name
	}
	return strconv.Itoa(n)
}

func (d *describer) file(f *audit.File) entry {
	e := entry{pid: shortPID(f.PID, f.Proc), result: escape(string(f.Op)), mood: blue}
	if f.Op == audit.FileWrite || f.Op == audit.FileRead || f.Size > 0 {
		e.length = size(f.Size)
	}
	if f.Op == audit.FileDelete {
		e.mood = red
	}
	e.add(plain, quote(f.Path))
	if f.To != "" {
		e.add(plain, " -> "+quote(f.To))
	}
	if f.Source != "" {
		e.add(plain, ", a link to "+quote(f.Source))
	}
	if f.Caller != "" {
		e.add(plain, ", by "+quote(f.Caller)+" through the API")
	}
	if f.Error != "" {
		e.mood = red
		e.add(red, ", failed: "+quote(f.Error))
	}
	if len(f.Secrets) > 0 {
		e.length = ""
		e.add(plain, ", which holds the secrets "+escape(strings.Join(f.Secrets, ", ")))
	}
	if f.SHA256 != "" {
		e.add(dim, "  sha256:"+d.digest(f.SHA256))
	}
	if f.Unhashed != "" {
		e.add(yellow, "  not hashed: "+escape(f.Unhashed))
	}
	return e
}

// digest shows the whole of a digest where there is room without end, else
// enough to find it by.
func (d *describer) digest(hex string) string {
	if d.opt.Width > 0 && len(hex) > 16 {
		return escape(hex[:16]) + "…"
	}
	return escape(hex)
}

func output(o *audit.Output) entry {
	e := entry{result: escape(o.Stream), mood: dim, length: size(int64(len(o.Text)))}
	lines := strings.Split(strings.TrimSuffix(string(o.Text), "\n"), "\n")
	for i, text := range lines {
		text = "| " + escape(strings.TrimSuffix(text, "\r"))
		if i == 0 {
			e.add(plain, text)
		} else {
			e.more = append(e.more, text)
		}
	}
	return e
}

func vm(v *audit.VM) entry {
	e := entry{result: escape(v.Op), mood: cyan}
	if v.DurationNS > 0 {
		e.length = duration(v.DurationNS)
	}
	if v.Op == "freeze" || v.Op == "silent" {
		e.mood = alarm
	}
	e.add(plain, escape(strings.Join(nonEmpty(v.Driver, v.Tier, v.Reason), ", ")))
	return e
}

func gap(g *audit.Gap) entry {
	e := entry{result: "LOST", mood: alarm}
	var parts []string
	if g.Count > 0 || g.Bytes == 0 {
		parts = append(parts, plural(g.Count, "event"))
	}
	if g.Bytes != 0 {
		parts = append(parts, plural(g.Bytes, "byte"))
	}
	text := fmt.Sprintf("!! GAP: %s lost at stage %s", strings.Join(parts, " and "), g.Stage)
	if g.Stage == audit.StageDriver && g.Count == 0 { // what is known before it happens is no alarm
		e = entry{result: "unseen", mood: yellow}
		text = "NOT OBSERVED: " + g.What
	} else if g.What != "" {
		text += " (" + g.What + ")"
	}
	if g.First > 0 {
		text += fmt.Sprintf(", seq %d to %d", g.First, g.Last)
	}
	e.add(e.mood, escape(text+": "+orUnknown(g.Cause)))
	return e
}

// inbound shows a connection to a port of the sandbox.
func inbound(c *audit.Inbound) entry {
	e := entry{result: escape(string(c.Op)), mood: plain}
	if c.DurationNS > 0 {
		e.length = duration(c.DurationNS)
	}
	e.add(bold, fmt.Sprintf("port %d", c.Port))
	e.add(plain, "  for "+escape(c.Who)+" by "+escape(c.Via))
	if c.Op == audit.InboundClose {
		e.add(plain, fmt.Sprintf("  %s in, %s out", size(c.BytesIn), size(c.BytesOut)))
	}
	if c.Reason != "" {
		e.add(red, "  "+escape(c.Reason))
	}
	return e
}

// copied shows what was copied: of a list its files, a line each.
func copied(c *audit.Copy) entry {
	e := entry{result: escape(c.Direction), mood: plain}
	if c.Op == audit.CopyEnd {
		e.add(bold, quote(c.Dir))
		e.add(plain, fmt.Sprintf("  %d files, %s", c.Count, size(c.Bytes)))
		if len(c.Root) >= 8 {
			e.add(dim, "  root "+escape(c.Root[:8])+"…")
		}
		if c.Reason != "" {
			e.add(red, "  "+escape(c.Reason))
		}
		return e
	}
	e.add(plain, fmt.Sprintf("%d files", len(c.Files)))
	for _, f := range c.Files {
		line := quote(f.Path)
		if f.As != "" {
			line += " as " + quote(f.As)
		}
		if f.Link != "" {
			line += " -> " + quote(f.Link)
		}
		e.more = append(e.more, line+"  "+size(f.Size))
	}
	return e
}

// access shows who looked at what, or was refused.
func access(a *audit.Access) entry {
	e := verdict(a.Verdict)
	if a.Status != 0 {
		e.result = strconv.Itoa(a.Status)
	}
	who := orUnknown(a.Who)
	if a.Who == "" {
		who = "unknown"
	}
	e.add(bold, escape(who))
	e.add(plain, " "+escape(a.Action)+" "+escape(a.Route))
	if a.Project != "" {
		e.add(plain, fmt.Sprintf("  %s version %d (%s)", escape(a.Project), a.ProjectVersion, escape(a.ProjectDigest)))
	}
	for _, f := range []struct{ name, value string }{{"about ", string(a.About)}, {"query ", string(a.Query)}} {
		if f.value != "" {
			e.add(plain, "  "+f.name+quote(audit.Text(f.value)))
		}
	}
	if a.Reason != "" {
		e.add(e.mood, "  "+escape(a.Reason))
	}
	if a.Count > 1 {
		e.add(red, fmt.Sprintf("  %d times", a.Count))
	}
	for _, f := range []struct{ name, value string }{{"as ", a.Role}, {"of tenant ", a.Tenant}, {"by ", a.Via}, {"from ", a.Remote}} {
		if f.value != "" {
			e.add(dim, "  "+f.name+escape(f.value))
		}
	}
	return e
}

// unknown shows a kind that this code does not know by its payload.
func unknown(k audit.Kind, body []byte) entry {
	var fields map[string]json.RawMessage
	var payload bytes.Buffer
	if json.Unmarshal(body, &fields) == nil && len(fields[string(k)]) > 0 {
		_ = json.Compact(&payload, fields[string(k)]) // it was parsed just before
	}
	e := entry{}
	if payload.Len() == 0 {
		e.add(yellow, "no payload")
	}
	e.add(plain, escape(payload.String()))
	return e
}

func orUnknown(s string) string {
	if s == "" {
		return "not stated"
	}
	return s
}

func nonEmpty(words ...string) []string {
	var kept []string
	for _, w := range words {
		if w != "" {
			kept = append(kept, w)
		}
	}
	return kept
}

func base(path audit.Text) string {
	s := string(path)
	return s[strings.LastIndexByte(s, '/')+1:]
}
