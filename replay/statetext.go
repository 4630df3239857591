package replay

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Write shows the state as text. began is the run's start.
func (s State) Write(w io.Writer, began time.Time, opt Options) error {
	v := stateView{l: newLine(bufio.NewWriterSize(w, 16<<10), opt), opt: opt, s: s, began: began}
	v.title()
	v.alarms()
	v.steps()
	v.claimed("processes", len(s.Procs))
	for _, p := range s.Procs {
		v.process(p, 1)
	}
	v.files()
	v.egress()
	v.secrets()
	v.section("last output", len(s.Output))
	for _, o := range s.Output {
		v.l.put(plain, "  ")
		v.l.cell(dim, escape(o.Stream), 6)
		v.l.put(plain, "| "+escape(string(o.Text)))
		v.l.end()
	}
	return v.l.out.Flush()
}

type stateView struct {
	l     *line
	opt   Options
	s     State
	began time.Time
}

func (v *stateView) title() {
	v.l.put(bold, "run "+escape(v.s.Run))
	v.l.put(plain, " at "+v.opt.stamp(v.s.At, stampLayout+".000"+zoneLayout))
	v.l.put(dim, " ("+relative(v.s.At.Sub(v.began))+")")
	v.l.put(plain, ": "+v.s.Phase+", "+plural(v.s.Events, "event")+" so far")
	v.l.end()
}

func (v *stateView) alarms() {
	if v.s.Missing > 0 {
		v.alarm(plural(v.s.Missing, "record") + " missing: this state may be wrong")
	}
	if v.s.Unreadable > 0 {
		v.alarm(plural(v.s.Unreadable, "record") + " unreadable: this state may be wrong")
	}
	for _, g := range v.s.Gaps {
		e := gap(&g.Gap)
		v.alarm(strings.TrimPrefix(e.what[0].text, "!! "))
	}
	for _, f := range v.s.Findings {
		v.alarm(f.line())
	}
}

// alarm writes a line that is never cut.
func (v *stateView) alarm(text string) {
	whole := *v.l
	whole.limit = 0
	whole.put(alarm, "!! "+text)
	whole.end()
}

func (v *stateView) section(name string, n int) {
	v.l.end()
	v.l.put(bold, name)
	if n == 0 {
		v.l.put(dim, ": none")
	}
	v.l.end()
}

// claimed writes the head of a section about processes or files.
func (v *stateView) claimed(name string, n int) {
	if n > 0 && v.s.Observed["processes"] == audit.Guest {
		name += ", as the guest says"
	}
	v.section(name, n)
}

func (v *stateView) steps() {
	v.section("steps", len(v.s.Steps))
	for _, s := range v.s.Steps {
		v.l.put(plain, "  ")
		v.l.cell(bold, escape(s.Name), maxStep)
		switch {
		case s.End == nil:
			v.l.cell(cyan, "running", exitWidth)
			v.l.right(plain, duration(int64(v.s.At.Sub(s.Start))), lengthWidth)
		case s.ExitCode != nil:
			v.l.cell(exitMood(*s.ExitCode), "exit "+strconv.Itoa(*s.ExitCode), exitWidth)
			v.l.right(plain, duration(int64(s.End.Sub(s.Start))), lengthWidth)
		default:
			v.l.cell(yellow, escape(string(s.Status)), exitWidth)
			v.l.right(plain, duration(int64(s.End.Sub(s.Start))), lengthWidth)
		}
		v.l.put(plain, quoteAll(s.Argv))
		v.l.end()
	}
}

// maxTreeDepth levels are indented; deeper ones are shown at that depth. The
// walk itself needs no bound, as the tree has no circles.
const maxTreeDepth = 32

func (v *stateView) process(p *Process, depth int) {
	v.l.put(plain, strings.Repeat("  ", min(depth, maxTreeDepth)))
	v.l.put(green, shortPID(p.PID, p.Proc))
	v.l.put(plain, "  "+quoteAll(p.Argv))
	if len(p.Argv) == 0 || base(p.Argv[0]) != base(p.Exe) {
		v.l.put(dim, "  exe "+quote(p.Exe))
	}
	if p.Cwd != "" {
		v.l.put(dim, "  in "+quote(p.Cwd))
	}
	v.l.put(dim, "  for "+duration(int64(v.s.At.Sub(p.Start))))
	v.l.end()
	for _, child := range p.Children {
		v.process(child, depth+1)
	}
}

func (v *stateView) files() {
	v.claimed("files written", len(v.s.Files))
	for _, f := range v.s.Files {
		v.l.put(plain, "  ")
		v.l.right(plain, size(f.Size), lengthWidth)
		hash := escape(f.SHA256)
		if f.SHA256 == "" {
			hash = "not hashed"
			if f.Unhashed != "" {
				hash += ": " + escape(f.Unhashed)
			}
		} else if v.l.limit > 0 && len(hash) > 16 {
			hash = hash[:16] + "…"
		}
		v.l.put(dim, hash)
		v.l.put(plain, "  "+quote(f.Path))
		if f.By != nil {
			v.l.put(dim, "  by "+f.By.String())
		}
		v.l.end()
	}
	v.list("files deleted", v.s.Deleted)
}

// egress is shown where anything of it was recorded.
func (v *stateView) egress() {
	e := v.s.Egress
	if e.Generation != 0 {
		v.section(fmt.Sprintf("policy, generation %d", e.Generation), 1)
		for i, rule := range e.Rules {
			if i == maxRules {
				v.put(fmt.Sprintf("and %d more", len(e.Rules)-i))
				break
			}
			v.put(escape(string(rule)))
		}
		if len(e.Rules) == 0 {
			v.put("allows nothing")
		}
	}
	if e.Generation != 0 || len(e.Flows) > 0 {
		v.section("open flows", len(e.Flows))
	}
	for _, f := range e.Flows {
		v.flow(f)
	}
	if len(e.Names) > 0 {
		v.section("names resolved", len(e.Names))
	}
	for _, n := range e.Names {
		text := quote(n.Name)
		if len(n.Addrs) > 0 {
			text += " -> " + listed(n.Addrs)
		}
		if len(n.Found) > 0 {
			text += ", by the gateway to " + listed(n.Found)
		}
		v.put(text)
	}
	if d := e.Denied; d.Questions+d.Flows+d.Requests > 0 {
		v.section("denied", 1)
		v.put(strings.Join([]string{plural(d.Questions, "question"), plural(d.Flows, "flow"), plural(d.Requests, "request")}, ", "))
	}
}

func (v *stateView) flow(f FlowAt) {
	v.l.put(plain, "  "+escape(f.Proto)+" "+destination(&f.Flow))
	if f.By != "" {
		v.l.put(plain, "  by "+f.By)
		if v.s.Observed["processes"] == audit.Guest {
			v.l.put(dim, ", the guest says")
		}
	}
	v.l.put(dim, "  for "+duration(int64(v.s.At.Sub(f.Opened))))
	v.l.put(dim, "  rule "+escape(f.Rule))
	v.l.end()
}

// put writes a line of a section.
func (v *stateView) put(text string) {
	v.l.put(plain, "  "+text)
	v.l.end()
}

func (v *stateView) list(name string, paths []audit.Text) {
	if len(paths) == 0 {
		return
	}
	v.claimed(name, len(paths))
	for _, path := range paths {
		v.l.put(plain, "  "+quote(path))
		v.l.end()
	}
}
