package replay

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Hits writes records of many runs, a line a record, in the order in which they come: what a search
// over all runs found. It returns how many there were.
func Hits(w io.Writer, rows Rows, opt Options) (n int, err error) {
	p := newPrinter(w, store.Run{}, opt)
	for row, err := range rows {
		if err != nil {
			return n, err
		}
		n++
		p.hit(row)
	}
	return n, p.out.Flush()
}

func (p *printer) hit(row store.Row) {
	l := newLine(p.out, p.opt)
	l.put(dim, p.opt.stamp(row.Time, p.opt.zoned(stampLayout+".000"))+"  ")
	l.put(bold, escape(row.Run)+" ")
	l.right(plain, strconv.FormatUint(row.Seq, 10), pidWidth)
	mark := p.opt.mark(row)
	if !mark.Good() {
		l.limit = 0
		l.putMark(mark)
		l.put(plain, "  ")
	}
	var r audit.Record
	if err := json.Unmarshal(row.Body, &r); err != nil {
		l.put(alarm, fmt.Sprintf("!! RECORD %d CANNOT BE READ: %s", row.Seq, escape(err.Error())))
		l.end()
		return
	}
	l.cell(observerStyle(string(r.Observer)), escape(string(r.Observer)), seenWidth)
	l.cell(kindStyle(r.Kind), escape(string(r.Kind)), kindWidth)
	e, ok := p.describer.describe(r, row.Body)
	if !ok {
		e = p.describer.exit(r.Exit) // no line of an exec's shows it here
	}
	if e.result != "" {
		l.put(e.mood, e.result+"  ")
	}
	for _, piece := range e.what {
		l.put(piece.style, piece.text)
	}
	l.end()
}

// RunHits is what a search over all runs found in one of them.
type RunHits struct {
	Run   string `json:"run"`
	Count uint64 `json:"count"`
	First Hit    `json:"first"` // the earliest
	Last  Hit    `json:"last"`
	// Wrong counts the records that are not what was signed.
	Wrong uint64 `json:"wrong,omitempty"`
}

// Hit is the place of a record that was found.
type Hit struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
}

// HitRuns counts the records of each run. rows are ordered by time, newest first, as a search yields them;
// so are the runs, by their last records.
func HitRuns(rows Rows, opt Options) ([]RunHits, error) {
	var runs []RunHits
	place := map[string]int{}
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		hit := Hit{row.Seq, row.Time.UTC()}
		i, seen := place[row.Run]
		if !seen {
			i = len(runs)
			place[row.Run] = i
			runs = append(runs, RunHits{Run: row.Run, Last: hit})
		}
		r := &runs[i]
		r.Count++
		r.First = hit
		if opt.mark(row).Wrong() {
			r.Wrong++
		}
	}
	return runs, nil
}

// HitRunTable writes a line a run.
func HitRunTable(w io.Writer, runs []RunHits, opt Options) error {
	out := bufio.NewWriter(w)
	layout, head := opt.zoned(stampLayout), [2]string{"FIRST", "LAST"}
	if layout == stampLayout {
		head = [2]string{"FIRST (UTC)", "LAST (UTC)"}
	}
	idWidth, timeWidth := len("RUN"), len(stampLayout)
	for _, r := range runs {
		idWidth = max(idWidth, min(textWidth(escape(r.Run)), 40))
		timeWidth = max(timeWidth, len(opt.stamp(r.First.Time, layout)), len(opt.stamp(r.Last.Time, layout)))
	}
	const countWidth = 8
	l := newLine(out, opt)
	l.cell(dim, "RUN", idWidth)
	l.right(dim, "RECORDS", countWidth)
	for _, name := range head {
		l.cell(dim, name, timeWidth)
		l.right(dim, "SEQ", countWidth)
	}
	l.end()
	for _, r := range runs {
		l.cell(bold, escape(r.Run), idWidth)
		l.right(plain, strconv.FormatUint(r.Count, 10), countWidth)
		for _, hit := range []Hit{r.First, r.Last} {
			l.cell(plain, opt.stamp(hit.Time, layout), timeWidth)
			l.right(plain, strconv.FormatUint(hit.Seq, 10), countWidth)
		}
		if r.Wrong > 0 {
			l.limit = 0
			l.put(alarm, "!! "+plural(r.Wrong, "record")+" not what was signed")
		}
		l.end()
		l.limit = opt.Width
	}
	return out.Flush()
}
