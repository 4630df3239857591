package replay

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Timeline writes the run as a table, a line a record. An exec and the exit of
// its process are one line, indented below its parent's. Missing and unreadable
// records are shown as loudly as gaps. It ranges over rows twice, and needs
// memory in proportion to the number of processes.
func Timeline(w io.Writer, run store.Run, rows Rows, opt Options) error {
	p := newPrinter(w, run, opt)
	var last uint64
	for row, err := range rows {
		if err != nil {
			return err
		}
		p.learn(row)
		last = row.Seq
	}
	p.seqWidth = max(p.seqWidth, len(strconv.FormatUint(last, 10)))
	p.header()
	p.notesOn(store.Row{})
	for row, err := range rows {
		if err != nil {
			return err
		}
		if row.Seq > last { // came in between the passes
			break
		}
		p.row(row)
	}
	p.strayNotes(last)
	p.footer()
	return p.out.Flush()
}

// Records writes the records of the time between opt.From and opt.Until as Timeline does, below a line that names that
// time, and without the lines about the whole run. It ranges over rows twice.
func Records(w io.Writer, run store.Run, rows Rows, opt Options) error {
	p := newPrinter(w, run, opt)
	for row, err := range rows {
		if err != nil {
			return err
		}
		p.learn(row)
		p.seqWidth = max(p.seqWidth, len(strconv.FormatUint(row.Seq, 10)))
	}
	l := newLine(p.out, opt)
	l.end()
	l.put(bold, "records from "+opt.stamp(opt.From, clockLayout)+" to "+opt.stamp(opt.Until, clockLayout+zoneLayout))
	l.end()
	p.columns()
	for row, err := range rows {
		if err != nil {
			return err
		}
		p.next = row.Seq // what is missing is said of the whole run, not of a part
		p.row(row)
	}
	if p.events == 0 {
		l.put(dim, "none")
		l.end()
	}
	return p.out.Flush()
}

// Widths of the columns in cells.
const (
	minSeq      = 3
	followSeq   = 6 // where the last seq is not known yet
	clockWidth  = 12
	seenWidth   = 5
	kindWidth   = 7
	pidWidth    = 6
	exitWidth   = 8
	lengthWidth = 7
	resultWidth = exitWidth + lengthWidth
	maxStep     = 16
	maxIndent   = 10 // levels
)

// printer writes rows that it has learned before.
type printer struct {
	out       *bufio.Writer
	opt       Options
	run       store.Run
	index     *index // shared with describer
	judge     *judge
	describer describer
	began     time.Time
	said      []evidence // of findings that are recorded
	next      uint64     // seq that the next row should have
	notes     map[uint64][]Note
	why       string // the last row that was not checked was not
	// seqWidth is that of the column SEQ. A longer number moves its line to the right.
	seqWidth int
	sums
}

// sums are the numbers of the footer.
type sums struct {
	events, findings, gaps, lost, missing, unreadable, withheld uint64
	wrong, unchecked, live                                      uint64 // by their marks
	outside                                                     uint64 // records of other times than those shown
}

func newPrinter(w io.Writer, run store.Run, opt Options) *printer {
	x := newIndex()
	p := &printer{out: bufio.NewWriterSize(w, 64<<10), opt: opt, run: run, index: &x, judge: newJudge(), describer: describer{opt, &x},
		began: run.Began(), next: 1, seqWidth: minSeq}
	p.notes = map[uint64][]Note{}
	for _, n := range opt.Notes {
		p.notes[n.Seq] = append(p.notes[n.Seq], n)
	}
	return p
}

// learn keeps what other lines need from a row.
func (p *printer) learn(row store.Row) {
	if p.began.IsZero() {
		p.began = row.Time
	}
	p.index.widen(row.Step)
	p.judge.row(row.Seq, row.Time)
	switch row.Kind {
	case audit.KindFile, audit.KindOutput, audit.KindHTTP, audit.KindLLM, audit.KindSecret: // the bulk, of which other lines need nothing
		p.judge.heard(row.Observer, nanos(row.Time))
		return
	}
	r, err := decode(row)
	if err != nil { // row reports it when it gets there
		p.judge.lost(nanos(row.Time))
		return
	}
	p.judge.add(&r)
	p.index.learnRecord(&r)
	if r.Exec != nil {
		p.index.proc(r.Exec.Proc).hidden = !p.opt.within(row.Time)
	}
	if r.Observer == audit.Host && r.Finding != nil {
		p.said = append(p.said, evidence{r.Finding.Rule, r.Finding.Seq})
	}
}

func (p *printer) row(row store.Row) {
	p.checkSeq(row.Seq)
	mark := p.opt.mark(row)
	if !p.opt.within(row.Time) && !mark.Wrong() {
		p.outside++
		return
	}
	p.events++
	switch row.Kind { // counted whether shown or not
	case audit.KindGap:
		p.gaps++
	case audit.KindFinding:
		p.findings++
	}
	p.marked(row, mark)
	if row.Erased != nil {
		if p.opt.shows("") {
			p.loud(row.Seq, row.Time, "record", fmt.Sprintf("RECORD %d WAS ERASED: custody verify prints when and why", row.Seq))
			p.notesOn(row)
		}
		return
	}
	if !p.opt.shows(row.Kind) && row.Kind != audit.KindGap && !mark.Wrong() {
		return
	}
	var r audit.Record
	if err := json.Unmarshal(row.Body, &r); err != nil {
		p.unreadable++
		p.loud(row.Seq, row.Time, "record", fmt.Sprintf("RECORD %d CANNOT BE READ: %s", row.Seq, escape(err.Error())))
		p.notesOn(row)
		return
	}
	p.record(r, row.Body, mark)
	p.notesOn(row)
}

// marked counts the marks, and describes what is wrong with a row before it is shown.
func (p *printer) marked(row store.Row, mark store.Mark) {
	switch {
	case mark.Wrong():
		p.wrong++
		_, word := markWord(mark)
		p.loud(row.Seq, row.Time, "record", fmt.Sprintf("RECORD %d: %s: %s", row.Seq, strings.TrimPrefix(word, "!! "), escape(mark.Text)))
	case mark.State == store.Live:
		p.live++
	case !mark.Good():
		p.unchecked++
		p.why = mark.Text
	}
}

// checkSeq reports records that are missing without a declared gap.
func (p *printer) checkSeq(seq uint64) {
	if seq > p.next {
		for _, hole := range p.index.undeclared(span{p.next, seq - 1}) {
			if p.opt.withholds(hole) {
				p.withheld += hole.len()
				continue
			}
			p.missing += hole.len()
			p.loud(0, time.Time{}, "missing", fmt.Sprintf("RECORDS %d TO %d ARE NOT IN THE STORE and no gap is declared for them", hole.first, hole.last))
		}
	}
	p.next = max(p.next, seq+1)
}

// loud writes a line that no one overlooks; seq 0 and a zero time are left out.
func (p *printer) loud(seq uint64, t time.Time, kind, text string) {
	l := newLine(p.out, p.opt)
	l.limit = 0
	p.head(l, seq, t, "", string(audit.Host), kind, alarm)
	l.cell(plain, "", pidWidth)
	l.cell(plain, "", resultWidth)
	l.put(alarm, "!! "+text)
	l.end()
}

// head writes the columns that all lines begin with.
func (p *printer) head(l *line, seq uint64, t time.Time, step, observer, kind string, s style) {
	number := ""
	if seq > 0 {
		number = strconv.FormatUint(seq, 10)
	}
	l.right(dim, number, max(p.seqWidth, len(number)))
	l.right(dim, p.clock(t), clockWidth)
	if p.index.stepWidth > 0 {
		l.cell(plain, escape(step), p.index.stepWidth)
	}
	l.cell(observerStyle(observer), escape(observer), seenWidth)
	l.cell(s, escape(kind), kindWidth)
}

// margin is the width of the columns that head writes, of PID and of RESULT.
func (p *printer) margin() int {
	n := p.seqWidth + clockWidth + seenWidth + kindWidth + pidWidth + resultWidth + 12
	if p.index.stepWidth > 0 {
		n += p.index.stepWidth + 2
	}
	return n
}

// observerStyle sets claims apart from observations.
func observerStyle(observer string) style {
	if observer == string(audit.Host) {
		return bold
	}
	return dim
}

func (p *printer) clock(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case p.opt.Relative:
		return relative(t.Sub(p.began))
	}
	return p.opt.stamp(t, clockLayout)
}

func relative(d time.Duration) string {
	return fmt.Sprintf("%+.3fs", d.Truncate(time.Millisecond).Seconds())
}

func (p *printer) header() {
	l := newLine(p.out, p.opt)
	l.put(bold, "run "+escape(p.run.ID))
	for _, f := range []struct{ name, value string }{
		{"project", p.run.Project}, {"template", p.run.Template}, {"tier", p.run.Tier}, {"mode", p.run.Mode}} {
		if f.value != "" {
			l.put(dim, "  "+f.name+" ")
			l.put(plain, escape(f.value))
		}
	}
	if !p.began.IsZero() {
		l.put(dim, "  began ")
		l.put(plain, p.opt.stamp(p.began, stampLayout+".000"+zoneLayout))
	}
	l.end()
	if mark := p.opt.markRun(p.run); !mark.Good() {
		l.limit = 0
		l.putMark(mark)
		l.end()
		l.limit = p.opt.Width
	}
	l.put(dim, "seen by the host: observed from outside the VM; by the guest: claimed by the kernel inside it")
	l.end()
	l.end()
	p.columns()
}

// columns writes the names of the columns.
func (p *printer) columns() {
	l := newLine(p.out, p.opt)
	l.right(dim, "SEQ", p.seqWidth)
	l.right(dim, "TIME", clockWidth)
	if p.index.stepWidth > 0 {
		l.cell(dim, "STEP", p.index.stepWidth)
	}
	for _, c := range []struct {
		name  string
		width int
	}{{"SEEN", seenWidth}, {"KIND", kindWidth}} {
		l.cell(dim, c.name, c.width)
	}
	l.right(dim, "PID", pidWidth)
	l.cell(dim, "RESULT", resultWidth)
	l.put(dim, "WHAT")
	l.end()
}

func (p *printer) footer() {
	if p.opt.End != nil {
		p.checkSeq(p.opt.End(p.run) + 1)
	}
	l := newLine(p.out, p.opt)
	l.end()
	l.put(plain, plural(p.events, "event"))
	if p.opt.windowed() {
		l.put(plain, fmt.Sprintf(" in this time of %d in all", p.events+p.outside))
	}
	if n := len(p.opt.Notes); n > 0 {
		l.put(plain, ", "+plural(n, "note"))
	}
	for _, n := range []struct {
		n    uint64
		text string
	}{
		{p.findings, plural(p.findings, "finding")},
		{p.gaps, plural(p.gaps, "gap") + " (" + plural(p.lost, "event") + " lost)"},
		{p.missing, plural(p.missing, "record") + " missing"},
		{p.unreadable, plural(p.unreadable, "record") + " unreadable"},
		{p.wrong, plural(p.wrong, "record") + " not what was signed"},
	} {
		if n.n > 0 {
			l.put(plain, ", ")
			l.put(alarm, n.text)
		}
	}
	if p.unchecked > 0 {
		l.put(yellow, fmt.Sprintf(", %s not checked (%s)", plural(p.unchecked, "record"), escape(p.why)))
	}
	if p.withheld > 0 {
		l.put(plain, fmt.Sprintf(", %s withheld by the exporter of the bundle", plural(p.withheld, "record")))
	}
	if p.live > 0 {
		l.put(plain, fmt.Sprintf(", %s live and not sealed yet", plural(p.live, "record")))
	}
	if s := p.index.statusOf(p.run); s != "" {
		l.put(plain, ", run "+s)
	}
	l.end()
	p.disagreements()
}

// disagreements tells where guest and host say different things and no finding of the record does.
func (p *printer) disagreements() {
	for _, f := range group(p.judge.verdicts()) {
		if slices.Contains(p.said, evidence{f.Rule, f.Evidence[0]}) {
			continue
		}
		l := newLine(p.out, p.opt)
		l.limit = 0
		l.put(alarm, "!! "+f.line())
		l.end()
	}
}

// shortPID is the process's number in the guest, or the end of its uid.
func shortPID(pid int, proc string) string {
	if pid != 0 || proc == "" {
		if pid == 0 {
			return ""
		}
		return strconv.Itoa(pid)
	}
	return escape(proc[max(0, len(proc)-pidWidth):])
}
