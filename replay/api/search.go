package api

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// searchFor bounds the time of one page of a search.
const searchFor = 5 * time.Second

// headMark is the end of a page of a search: everything before this position was examined.
type headMark struct {
	Time time.Time `json:"t"`
	Run  string    `json:"r"`
	Seq  uint64    `json:"q"`
}

func markOf(h store.Head) headMark { return headMark{h.Time, h.Run, h.Seq} }

func (m headMark) head() *store.Head { return &store.Head{Time: m.Time, Run: m.Run, Seq: m.Seq} }

// searchPage is a page of a search over runs.
type searchPage struct {
	store.Search
	accept    func(store.Row) bool // the conditions that a store's query cannot express
	accessLog bool                 // only in access logs
	limit     int

	rows    []store.Row
	marks   []*store.Mark // of rows: see markers.of
	bytes   int
	next    *headMark // nil: there is no more
	partial bool      // the time was over: next may have more
}

// searched returns the search of a request.
func searched(r *request) (p searchPage, err error) {
	p = searchPage{accept: func(store.Row) bool { return true }}
	p.Tenant = r.who.Scope()
	p.Host, p.Path, p.Secret, p.Rule = r.str("host"), r.str("path"), r.str("secret"), r.str("rule")
	if p.Hash, err = sha256Of(r.str("hash")); err != nil {
		return p, err
	}
	if p.Kinds, err = r.kinds(); err != nil {
		return p, err
	}
	if slices.ContainsFunc(p.Kinds, audit.Kind.InAccessLog) {
		return p, bad("GET /api/v1/access lists accesses to records", "accesses and notes are no records of runs")
	}
	if p.From, p.To, err = r.dates(); err != nil {
		return p, err
	}
	p.Text = inJSON(r.str("q"))
	if argv := r.str("argv"); argv != "" {
		err = p.argv(argv)
	}
	if err == nil && p.Path+p.Host+p.Hash+p.Secret+p.Rule+p.Text == "" && p.From.IsZero() {
		err = bad("give one of hash, host, path, secret, rule, argv, q or from", "nothing is asked for")
	}
	return p, err
}

// sha256Of returns a hash in the form that records have.
func sha256Of(text string) (string, error) {
	text = strings.ToLower(text)
	if raw, err := hex.DecodeString(text); text != "" && (err != nil || len(raw) != 32) {
		return "", bad("give all 64 hexadecimal digits", "hash is not a SHA-256")
	}
	return text, nil
}

// inJSON returns the encoding of text in a record's JSON.
func inJSON(text string) string {
	enc, err := audit.Text(text).MarshalJSON()
	if err != nil || len(enc) < 2 || enc[0] != '"' {
		return text // no text that a record could have as it is
	}
	return string(enc[1 : len(enc)-1])
}

// argv narrows the search to commands whose line contains text, ignoring case. The store
// finds those with its longest word; their whole lines are then compared.
func (p *searchPage) argv(text string) error {
	if len(p.Kinds) > 0 && !slices.Contains(p.Kinds, audit.KindExec) {
		return bad("leave kind out", "argv is of the kind exec")
	}
	if p.Text != "" {
		return bad("give one of them", "argv and q cannot be combined")
	}
	p.Kinds = []audit.Kind{audit.KindExec}
	if p.Text = plainWord(text); p.Text == "" && p.From.IsZero() {
		p.From = time.Unix(0, 0).UTC() // no part of it is the same in JSON: all commands are examined
	}
	want := bytes.ToLower([]byte(text))
	p.accept = func(row store.Row) bool { return bytes.Contains(bytes.ToLower([]byte(commandLine(row))), want) }
	return nil
}

// plainWord returns the longest part of text that lies in one argument and is the same in JSON.
func plainWord(text string) string {
	longest := ""
	for word := range strings.FieldsFuncSeq(text, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"\<>&`, c) }) {
		if len(word) > len(longest) {
			longest = word
		}
	}
	return longest
}

// commandLine is a command's arguments with spaces between.
func commandLine(row store.Row) string {
	var r audit.Record
	if json.Unmarshal(row.Body, &r) != nil || r.Exec == nil {
		return ""
	}
	var words []string
	for _, arg := range r.Exec.Argv {
		words = append(words, string(arg))
	}
	return strings.Join(words, " ")
}

// run fills the page.
func (p *searchPage) run(ctx context.Context, src Source, who access.Principal) error {
	ctx, cancel := context.WithTimeout(ctx, searchFor)
	defer cancel()
	for row, err := range src.Search(ctx, p.Search) {
		var cut *store.CutError
		if errors.As(err, &cut) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			mark := markOf(cut.At)
			p.next, p.partial = &mark, true
			return nil
		}
		if err != nil {
			return err
		}
		if !p.owned(row, who) || !p.accept(row) {
			continue
		}
		if len(p.rows) == p.limit || p.bytes >= pageBytes {
			mark := markOf(p.rows[len(p.rows)-1].Head)
			p.next = &mark
			return nil
		}
		p.rows = append(p.rows, row)
		p.bytes += len(row.Body)
	}
	return nil
}

// owned reports whether the principal may see a row. The access log of a host has events about all
// tenants: accept selects those about the principal's tenant.
func (p *searchPage) owned(row store.Row, who access.Principal) bool {
	if strings.HasPrefix(row.Run, store.AccessPrefix) {
		return p.accessLog
	}
	return !p.accessLog && row.Tenant == who.Tenant
}

// searcher searches the records of all runs of a tenant.
type searcher struct {
	source  Source
	markers *markers
	cursors cursors
}

// begin sets the limit and the start of the page.
func (s *searcher) begin(r *request, p *searchPage) (err error) {
	if p.limit, err = r.limit(); err != nil {
		return err
	}
	cursor := r.str("cursor")
	if cursor == "" {
		return nil
	}
	var m headMark
	if err := s.cursors.read(r.scope(), cursor, &m); err != nil {
		return err
	}
	p.Before = m.head()
	return nil
}

// fill fills the page and marks its rows.
func (s *searcher) fill(r *request, p *searchPage) error {
	err := p.run(r.Context(), s.source, r.who)
	if err == nil {
		p.marks, err = s.markers.of(r.Context(), p.rows)
	}
	return err
}

// searchHandler searches the records of runs.
type searchHandler struct{ searcher }

func (h *searchHandler) search(w http.ResponseWriter, r *request) error {
	p, err := searched(r)
	if err == nil {
		err = h.begin(r, &p)
	}
	if err == nil {
		err = h.fill(r, &p)
	}
	if err != nil {
		return err
	}
	x := beginExact(w)
	defer x.end()
	x.raw(`{"hits":[`)
	for i, row := range p.rows {
		if i > 0 {
			x.raw(",\n")
		}
		x.hit(row, p.marks[i])
	}
	x.raw(`],"partial":` + strconv.FormatBool(p.partial))
	if next := h.next(r, &p); next != "" {
		x.raw(`,"next":"` + next + `"`)
	}
	x.raw("}\n")
	return nil
}

// next is the cursor of the next page, "" if there is none.
func (s *searcher) next(r *request, p *searchPage) string {
	if p.next == nil {
		return ""
	}
	return s.cursors.make(r.scope(), p.next)
}

// hit writes a row with the run that it is of, and with its mark if there is one.
func (x *exact) hit(row store.Row, mark *store.Mark) {
	text, err := encode(struct {
		Run      string         `json:"run"`
		Seq      uint64         `json:"seq"`
		Time     time.Time      `json:"time"`
		Kind     audit.Kind     `json:"kind,omitempty"`
		Observer audit.Observer `json:"observer,omitempty"`
		Mark     *store.Mark    `json:"verification,omitempty"`
	}{row.Run, row.Seq, row.Time, row.Kind, row.Observer, mark})
	if err != nil {
		panic(err) // times of a store always encode
	}
	x.buf = append(x.buf[:0], text[:len(text)-1]...)
	x.buf = append(appendBody(x.buf, row), '}')
	_, _ = x.w.Write(x.buf)
}

// FoundFinding is a recorded finding of a run.
type FoundFinding struct {
	Run      string    `json:"run"`
	Seq      uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	Step     string    `json:"step,omitempty"`
	Rule     string    `json:"rule"`
	Detail   string    `json:"detail"`
	Evidence uint64    `json:"evidence,omitempty"` // seq of the record that shows it
	Secret   string    `json:"secret,omitempty"`
	Proc     string    `json:"proc,omitempty"`
	Action   string    `json:"action,omitempty"`

	Mark *store.Mark `json:"verification,omitempty"` // set if the record differs from what was signed, or if that cannot be determined
}

// findings lists the recorded findings of all runs, newest first.
func (h *searchHandler) findings(w http.ResponseWriter, r *request) error {
	p := searchPage{accept: func(row store.Row) bool { return row.Observer == audit.Host }} // guests record no findings
	p.Tenant, p.Rule, p.Kinds = r.who.Scope(), r.str("rule"), []audit.Kind{audit.KindFinding}
	var err error
	if p.From, p.To, err = r.dates(); err == nil {
		err = h.begin(r, &p)
	}
	if err != nil {
		return err
	}
	if p.From.IsZero() {
		p.From = time.Unix(0, 0).UTC()
	}
	if err := h.fill(r, &p); err != nil {
		return err
	}
	var page struct {
		Findings []FoundFinding `json:"findings"`
		Partial  bool           `json:"partial"`
		Next     string         `json:"next,omitempty"`
	}
	page.Findings, page.Partial = []FoundFinding{}, p.partial
	for i, row := range p.rows {
		var record audit.Record
		if json.Unmarshal(row.Body, &record) != nil || record.Finding == nil {
			continue // verification of the run reports it
		}
		f := record.Finding
		page.Findings = append(page.Findings, FoundFinding{row.Run, row.Seq, row.Time, row.Step, string(f.Rule), f.Detail, f.Seq, f.Secret, f.Proc, f.Action, p.marks[i]})
	}
	page.Next = h.next(r, &p)
	return answer(w, page)
}
