package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

const (
	// scanFor bounds the time of a search for one page.
	scanFor = 3 * time.Second
	// pageBytes bounds the records of one page, which has at least one.
	pageBytes = 8 << 20
	// window is how many records are read together when the order is descending.
	window = 4096
)

// seqMark is the end of a page of records: the last record that was examined.
type seqMark struct {
	Seq uint64 `json:"q"`
}

// recordsHandler serves a run's records.
type recordsHandler struct {
	runFinder
	stories *stories
	markers *markers
	notes   *noteReader
	cursors cursors
	prove   func(ctx context.Context, run store.Run, seq uint64) (proof.RecordProof, error) // nil: there are no proofs
	now     func() time.Time
}

// filterOf returns the filter of a request.
func filterOf(r *request, run store.Run, now time.Time) (f replay.Filter, err error) {
	if f.Kinds, err = r.kinds(); err != nil {
		return f, err
	}
	if f.From, f.To, err = r.span(run, now); err != nil {
		return f, err
	}
	var observer, finding string
	if observer, err = r.oneOf("observer", "", string(audit.Host), string(audit.Guest)); err != nil {
		return f, err
	}
	if finding, err = r.oneOf("verdict", "", string(audit.Allow), string(audit.Deny)); err != nil {
		return f, err
	}
	f.Observer, f.Verdict = audit.Observer(observer), audit.Verdict(finding)
	f.Proc, f.Text = r.str("proc"), r.str("q")
	if step := r.str("step"); step != "" {
		f.Steps = []string{step}
	}
	return f, nil
}

// page is a page of records that is being filled.
type page struct {
	rows  []store.Row
	bytes int
	limit int
	begin uint64 // where it began
	last  uint64 // that was examined
	more  bool   // there may be further ones
}

// take keeps a row and reports whether there is room for another.
func (p *page) take(row store.Row) bool {
	p.rows = append(p.rows, row)
	p.bytes += len(row.Body)
	return len(p.rows) < p.limit && p.bytes < pageBytes
}

func (h *recordsHandler) list(w http.ResponseWriter, r *request) error {
	run, err := h.find(r)
	if err != nil {
		return err
	}
	f, err := filterOf(r, run, h.now())
	if err != nil {
		return err
	}
	order, err := r.oneOf("order", "asc", "desc")
	if err != nil {
		return err
	}
	p := page{}
	if p.limit, err = r.limit(); err != nil {
		return err
	}
	var m seqMark
	if m.Seq, err = r.number("after", 0, store.MaxSeq); err != nil {
		return err
	}
	if cursor := r.str("cursor"); cursor != "" {
		if err := h.cursors.read(r.scope(), cursor, &m); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), scanFor)
	defer cancel()
	switch {
	case r.str("tag") != "":
		err = h.tagged(ctx, &p, run, f, m.Seq, r.str("tag"), order == "desc")
	case order == "asc":
		err = p.forward(ctx, h.source, run, f, m.Seq)
	default:
		err = p.backward(ctx, h.source, run, f, m.Seq)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && r.Context().Err() == nil && p.last != p.begin {
		p.more, err = true, nil // the response has what was examined; the rest is another page
	}
	if err == nil {
		err = h.markPage(r.Context(), &p)
	}
	if err != nil {
		return err
	}
	h.answerPage(w, r, run, f, &p)
	return nil
}

// markPage sets the marks of a page's rows.
func (h *recordsHandler) markPage(ctx context.Context, p *page) error {
	marks, err := h.markers.of(ctx, p.rows)
	for i := range marks {
		p.rows[i].Mark = marks[i]
	}
	return err
}

func (h *recordsHandler) answerPage(w http.ResponseWriter, r *request, run store.Run, f replay.Filter, p *page) {
	x := beginExact(w)
	defer x.end()
	x.raw(`{"records":[`)
	for i, row := range p.rows {
		if i > 0 {
			x.raw(",\n")
		}
		x.row(row)
	}
	x.raw("]")
	if p.more {
		x.raw(`,"next":"` + h.cursors.make(r.scope(), seqMark{p.last}) + `"`)
	}
	if total, known := total(run, f); known && r.str("tag") == "" {
		x.raw(`,"total":` + strconv.FormatUint(total, 10))
	}
	x.raw("}\n")
}

// total returns the number of matching records, if it is known without reading them.
func total(run store.Run, f replay.Filter) (uint64, bool) {
	if !plain(f) || !f.From.IsZero() || !f.To.IsZero() || len(f.Kinds) > 0 {
		return 0, false
	}
	return run.Events, true
}

// plain reports whether a store's query can express f.
func plain(f replay.Filter) bool {
	return f.Steps == nil && f.Observer == "" && f.Verdict == "" && f.Proc == "" && f.Text == ""
}

func query(run store.Run, f replay.Filter, after uint64) store.Query {
	return store.Query{Tenant: run.Tenant, Run: run.ID, Kinds: f.Kinds, From: f.From, To: f.To, AfterSeq: after}
}

// forward fills p with what matches after seq after.
func (p *page) forward(ctx context.Context, src Source, run store.Run, f replay.Filter, after uint64) error {
	p.begin, p.last = after, after
	step := window
	if plain(f) {
		step = min(window, p.limit+1)
	}
	for {
		q := query(run, f, p.last)
		q.Limit = step
		n := 0
		for row, err := range src.Records(ctx, q) {
			if err != nil {
				return err
			}
			n++
			p.last = row.Seq
			if replay.Match(f, row) && !p.take(row) {
				p.more = row.Seq < run.LastSeq
				return nil
			}
		}
		if n < step {
			return nil
		}
	}
}

// backward fills p with what matches before seq before, the latest first; 0 stands for the run's end.
func (p *page) backward(ctx context.Context, src Source, run store.Run, f replay.Filter, before uint64) error {
	p.last = cmp.Or(before, run.LastSeq+1)
	p.begin = p.last
	for p.last > 0 {
		low := p.last - min(p.last, window) // a log may count from 0, and no query begins before 0
		rows, err := between(ctx, src, run, f, low, p.last)
		if err != nil {
			return err
		}
		for _, row := range slices.Backward(rows) {
			p.last = row.Seq
			if replay.Match(f, row) && !p.take(row) {
				p.more = row.Seq > 1
				return nil
			}
		}
		p.last = low
	}
	return nil
}

// between returns the rows of seqs from low, or 1, to high-1.
func between(ctx context.Context, src Source, run store.Run, f replay.Filter, low, high uint64) ([]store.Row, error) {
	q := query(run, f, low-min(low, 1))
	q.Limit = window
	var rows []store.Row
	for row, err := range src.Records(ctx, q) {
		if err != nil {
			return nil, err
		}
		if row.Seq >= high {
			break
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// row returns the record that the path names.
func (h *recordsHandler) row(r *request, run store.Run) (store.Row, error) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 63)
	if err != nil {
		return store.Row{}, store.ErrNoRecord
	}
	return recordAt(r.Context(), h.source, run, seq)
}

// recordAt returns the record with that seq.
func recordAt(ctx context.Context, src Source, run store.Run, seq uint64) (store.Row, error) {
	q := store.Query{Tenant: run.Tenant, Run: run.ID, AfterSeq: seq - min(seq, 1), Limit: 1}
	for row, err := range src.Records(ctx, q) {
		if err != nil {
			return row, err
		}
		if row.Seq == seq {
			return row, nil
		}
	}
	return store.Row{}, store.ErrNoRecord
}

func (h *recordsHandler) one(w http.ResponseWriter, r *request) error {
	run, err := h.find(r)
	if err != nil {
		return err
	}
	row, err := h.row(r, run)
	if err != nil {
		return err
	}
	marks, err := h.markers.of(r.Context(), []store.Row{row})
	if err != nil {
		return err
	}
	st, err := h.stories.model(r.Context(), run)
	if err != nil {
		return err
	}
	why, err := st.Why(row.Seq)
	if err != nil {
		return err
	}
	x := beginExact(w)
	x.raw(`{"seq":` + strconv.FormatUint(row.Seq, 10))
	_, _ = x.w.Write(appendBody(nil, row))
	if err := errors.Join(x.member("why", why), x.member("findings", st.Findings().About(row.Seq))); err != nil {
		return err
	}
	if marks[0] != nil {
		err = x.member("verification", marks[0])
	}
	if err == nil && st.doubt != nil {
		err = x.member("doubt", st.doubt)
	}
	if err != nil {
		return err
	}
	x.raw("}\n")
	x.end()
	return nil
}

// proof answers with the proof of one record.
func (h *recordsHandler) proof(w http.ResponseWriter, r *request) error {
	if h.prove == nil {
		return errNotHere("proofs of records")
	}
	run, err := h.find(r)
	if err != nil {
		return err
	}
	row, err := h.row(r, run)
	if err != nil {
		return err
	}
	p, err := h.prove(r.Context(), run, row.Seq)
	if err != nil {
		return err
	}
	return answerProof(w, p)
}

func answerProof(w http.ResponseWriter, p proof.RecordProof) error {
	text, err := p.Encode() // there is only one encoding
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // an error: the client has gone
	return nil
}
