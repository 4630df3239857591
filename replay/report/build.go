package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// notice is what stands at the head of every report.
const notice = "This is evidence toward the controls named here, taken from the records of the runs listed. " +
	"It does not say that a requirement is met: that is for an auditor to judge, with much that is not in these records."

// Build makes a report. The error for a framework that there is no map of is an *UnknownError.
func Build(ctx context.Context, in Input) (*Report, error) {
	m, err := load(in.Framework)
	if err != nil {
		return nil, err
	}
	b := &builder{in: in, m: m, queries: map[string]*asked{}, answers: map[string][]Claim{}}
	for _, step := range []func(context.Context) error{b.open, b.ask, b.answer, b.collect} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
	}
	return &b.report, nil
}

// builder makes one report.
type builder struct {
	in      Input
	m       controlMap
	sources []*source
	named   map[string]bool // the runs by name
	queries map[string]*asked
	answers map[string][]Claim
	report  Report
}

// open puts the runs in order, and refuses what cannot be in one report.
func (b *builder) open(context.Context) error {
	b.named = map[string]bool{}
	if b.in.Tenant == store.NoTenant {
		b.in.Tenant = ""
	}
	if len(b.in.Runs) == 0 {
		return errors.New("there are no runs to report on")
	}
	for _, r := range b.in.Runs {
		if r.Run.Class() != store.Sandboxes {
			return fmt.Errorf("%s is an access log, not a run", r.Run.ID)
		}
		if r.Run.Tenant != b.in.Tenant {
			return fmt.Errorf("run %s is not of the tenant that the report is about: a report is about one tenant", r.Run.ID)
		}
		b.sources = append(b.sources, newSource(r))
		b.named[r.Run.ID] = true
	}
	for _, r := range b.in.Access {
		if r.Run.Class() != store.Accesses {
			return fmt.Errorf("%s is a run, not an access log", r.Run.ID)
		}
		b.sources = append(b.sources, newSource(r))
	}
	slices.SortFunc(b.sources, func(x, y *source) int {
		return cmp.Or(-cmp.Compare(x.class, y.class), x.Start.Compare(y.Start), cmp.Compare(x.Run, y.Run))
	})
	b.sources = slices.CompactFunc(b.sources, func(x, y *source) bool { return x.Run == y.Run })
	return nil
}

// ask lets every query of the map see the records.
func (b *builder) ask(ctx context.Context) error {
	for _, c := range b.m.Controls {
		for _, text := range c.Queries {
			if b.queries[text] == nil {
				q, err := newQuery(text, b.in.Generated)
				if err != nil {
					return err
				}
				b.queries[text] = q
			}
		}
	}
	for _, s := range b.sources {
		if err := b.askOf(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) askOf(ctx context.Context, s *source) error {
	var asking []*asked
	for _, q := range b.queries {
		if q.wants(s) {
			asking = append(asking, q)
			q.all = append(q.all, s)
		}
	}
	err := s.read(ctx, func(r *record) {
		r.foreign = b.foreign(r)
		for _, q := range asking {
			q.see(r)
		}
	})
	for _, q := range asking {
		q.end(s)
	}
	return errors.Join(err, s.err)
}

// foreign tells the looks that the report may not speak of: at what is not the tenant's, and
// outside of the time, or of the runs, that it is about.
func (b *builder) foreign(r *record) bool {
	switch {
	case r.src.class != store.Accesses || r.host(audit.KindRun) || r.host(audit.KindGap):
		return false
	case !r.host(audit.KindAccess) || r.Access.Tenant != b.in.Tenant:
		return true
	case !b.in.From.IsZero() || !b.in.To.IsZero():
		return r.Time.Before(b.in.From) || !b.in.To.IsZero() && !r.Time.Before(b.in.To)
	}
	return !b.named[string(r.Access.About)]
}

// answer puts the claims together.
func (b *builder) answer(context.Context) error {
	for text, q := range b.queries {
		b.answers[text] = q.answer()
	}
	r := &b.report
	*r = Report{
		Schema: Schema, Framework: b.m.framework(), Generated: b.in.Generated.UTC(), Version: visible(b.in.Version),
		Notice: notice, Scope: b.scope(), Against: []Objection{}, Limits: b.limits(), Records: []Record{},
	}
	for _, def := range b.m.Controls {
		c := b.control(def)
		r.Tally.add(c.Status)
		r.Controls = append(r.Controls, c)
	}
	for _, s := range b.sources {
		r.Sources = append(r.Sources, s.Source)
	}
	b.object()
	return nil
}

func (b *builder) control(def controlDef) Control {
	c := Control{ID: def.ID, Title: def.Title, Evidence: def.Evidence, Limits: def.Limits, Claims: []Claim{}, Status: NotApplicable}
	for _, text := range def.Queries {
		var t Tally // of this query's
		for _, claim := range b.answers[text] {
			t.add(claim.Status)
			c.Tally.add(claim.Status)
			c.Claims = append(c.Claims, claim)
		}
		if c.Status == NotApplicable { // the first query that has anything to say decides
			c.Status = t.status()
		}
	}
	if c.Tally.Contradicts > 0 {
		c.Status = Contradicts
	}
	return c
}

func (t *Tally) add(s Status) {
	switch s {
	case Supports:
		t.Supports++
	case Lacks:
		t.Lacks++
	case Contradicts:
		t.Contradicts++
	default:
		t.NotApplicable++
	}
}

// String leaves out what there is none of.
func (t Tally) String() string {
	var list []string
	say := func(n int, what string) {
		if n > 0 {
			list = append(list, number(n)+" "+what)
		}
	}
	say(t.Contradicts, "contradicting")
	say(t.Supports, "supporting")
	say(t.Lacks, "not supporting")
	say(t.NotApplicable, "not applicable")
	return strings.Join(list, ", ")
}

// status is that of one query: what speaks against it comes first.
func (t Tally) status() Status {
	switch {
	case t.Contradicts > 0:
		return Contradicts
	case t.Supports > 0:
		return Supports
	case t.Lacks > 0:
		return Lacks
	}
	return NotApplicable
}

// object lists the claims that contradict, each once, those of verification first.
func (b *builder) object() {
	at := map[string]int{}
	list := &b.report.Against
	for _, c := range b.report.Controls {
		for _, claim := range c.Claims {
			if claim.Status != Contradicts {
				continue
			}
			i, known := at[claim.Text]
			if !known {
				i = len(*list)
				at[claim.Text] = i
				*list = append(*list, Objection{Text: claim.Text, Refs: claim.Refs, Total: claim.Total, query: claim.Query})
			}
			(*list)[i].Controls = append((*list)[i].Controls, c.ID)
		}
	}
	slices.SortStableFunc(*list, func(x, y Objection) int { return cmp.Compare(x.rank(), y.rank()) })
}

// rank is 0 for what takes the ground away from everything else.
func (o Objection) rank() int {
	if o.query == "verification" || o.query == "sequence" {
		return 0
	}
	return 1
}

// collect reads the records that claims cite.
func (b *builder) collect(ctx context.Context) error {
	byRun := map[string]*source{}
	for _, s := range b.sources {
		byRun[s.Run] = s
	}
	for _, c := range b.report.Controls {
		for _, claim := range c.Claims {
			for _, ref := range claim.Refs {
				byRun[ref.Run].cited[ref.Seq] = true
			}
		}
	}
	for _, s := range b.sources {
		records, err := s.collect(ctx, b.foreign)
		if err != nil {
			return err
		}
		b.report.Records = append(b.report.Records, records...)
	}
	return nil
}

// collect reads those that are cited, of which none may be foreign.
func (s *source) collect(ctx context.Context, foreign func(*record) bool) ([]Record, error) {
	var records []Record
	if len(s.cited) == 0 {
		return nil, nil
	}
	for row, err := range s.run.Rows {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("run %s: read records: %w", s.Run, err)
		}
		if s.cited[row.Seq] && foreign(s.decode(row)) {
			return nil, fmt.Errorf("run %s: record %d is about what the report may not show", s.Run, row.Seq)
		}
		if s.cited[row.Seq] {
			records = append(records, s.cite(row))
		}
		if len(records) == len(s.cited) {
			return records, nil
		}
	}
	return nil, fmt.Errorf("run %s: %d of %d cited records were gone when they were read again", s.Run, len(s.cited)-len(records), len(s.cited))
}
