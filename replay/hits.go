package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
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
	l.put(dim, row.Time.UTC().Format("2006-01-02 15:04:05.000")+"  ")
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
	e, ok := p.describe(r, row.Body)
	if !ok {
		e = p.exit(r.Exit) // no line of an exec's shows it here
	}
	if e.result != "" {
		l.put(e.mood, e.result+"  ")
	}
	for _, piece := range e.what {
		l.put(piece.style, piece.text)
	}
	l.end()
}
