package storetest

import (
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/store"
)

// bugEnv names the bug of the store on which TestBuggy runs the suite.
const bugEnv = "CUSTODY_TEST_BUG"

// buggy is an oracle with a bug that a store could have.
type buggy struct {
	*Oracle
	bug string
	n   int // a counter of the bug
}

// bugs are the bugs, with the group of tests that must find each.
var bugs = map[string]string{
	"repeats are counted":         "Ingest",
	"every seventh is lost":       "Ingest",
	"part of a refused is kept":   "Refuse",
	"salt is not compared":        "Refuse",
	"any host may write":          "Refuse",
	"to is inclusive":             "Read",
	"tenant is ignored":           "Read",
	"oldest first":                "Read",
	"limit is one too many":       "Read",
	"prefix beats the name":       "Runs",
	"last of any tenant":          "Runs",
	"none is any":                 "Tenants",
	"others are found by name":    "Tenants",
	"a look is the last run":      "Tenants",
	"manifests of any tenant":     "Tenants",
	"any tenant may erase":        "Tenants",
	"the page's last comes again": "Pages",
	"pages by time alone":         "Pages",
	"runs' pages by time alone":   "Pages",
	"class is ignored":            "Pages",
	"findings are ignored":        "Pages",
	"begin is not minded":         "Pages",
	"text is a pattern":           "Pages",
	"text minds case":             "Pages",
	"letters beyond ASCII fold":   "Pages",
	"the cut is too late":         "Pages",
	"a cut is not reported":       "Pages",
	"feed goes backwards":         "Feed",
	"feed skips":                  "Feed",
	"erase loses the row":         "Erase",
	"erased comes back":           "Erase",
	"erase keeps the path":        "Erase",
	"repair changes nothing":      "Repair",
	"repair leaves the surplus":   "Repair",
	"repair brings back":          "Repair",
	"repair believes anything":    "Repair",
}

// TestSuiteFindsBugs: the suite must fail for stores with bugs.
func TestSuiteFindsBugs(t *testing.T) {
	for bug, group := range bugs {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestBuggy$/^"+group+"$")
			cmd.Env = append(os.Environ(), bugEnv+"="+bug)
			out, err := cmd.CombinedOutput()
			var failed *exec.ExitError
			if !errors.As(err, &failed) || !strings.Contains(string(out), "--- FAIL: TestBuggy/"+group+"/") {
				t.Errorf("the suite found nothing: %v\n%s", err, out)
			}
		})
	}
}

// TestBuggy runs the suite on the store with the bug in the environment.
func TestBuggy(t *testing.T) {
	if bug := os.Getenv(bugEnv); bug != "" {
		Suite(t, func(*testing.T) store.Store { return &buggy{Oracle: &Oracle{}, bug: bug} })
	}
}

func (b *buggy) Ingest(ctx context.Context, segs ...store.Segment) error {
	segs = slices.Clone(segs)
	for i := range segs {
		switch b.bug {
		case "every seventh is lost":
			if b.n++; b.n%7 == 0 {
				segs[i].Frames, segs[i].First, segs[i].Last = nil, 0, 0
			}
		case "repeats are counted":
			for _, f := range segs[i].Frames {
				if b.find(segs[i].Run, f.Seq) != nil {
					b.n++
				}
			}
		case "salt is not compared":
			segs[i].Frames = slices.Clone(segs[i].Frames)
			for j := range segs[i].Frames {
				segs[i].Frames[j].Salt = [16]byte{}
			}
		case "any host may write":
			segs[i].Host = "h1"
		}
	}
	err := b.Oracle.Ingest(ctx, segs...)
	switch {
	case b.bug == "part of a refused is kept" && errors.Is(err, store.ErrConflict) && len(segs[0].Frames) > 1:
		for _, f := range segs[0].Frames {
			half := store.Segment{Tenant: segs[0].Tenant, Host: segs[0].Host, Run: segs[0].Run, First: f.Seq, Last: f.Seq, Frames: []store.Frame{f}}
			_ = b.Oracle.Ingest(ctx, half)
		}
	case b.bug == "erased comes back" && err == nil:
		for _, seg := range segs {
			for _, f := range seg.Frames {
				if r := b.find(seg.Run, f.Seq); r != nil && r.Erased != nil && f.Erased == nil {
					h, _ := store.HeadOf(seg.Run, f)
					*r = row(seg, f, h)
				}
			}
		}
	}
	return err
}

func (b *buggy) Runs(ctx context.Context, f store.Filter) ([]store.Run, error) {
	switch b.bug {
	case "none is any":
		f.Tenant = plainTenant(f.Tenant)
	case "class is ignored":
		f.Class = ""
	case "findings are ignored":
		f.Findings = false
	case "begin is not minded":
		f.From = time.Time{}
	case "runs' pages by time alone":
		if f.Before != nil {
			f.Before = &store.Run{Start: f.Before.Start}
		}
	}
	runs, err := b.Oracle.Runs(ctx, f)
	for i := range runs {
		if b.bug == "repeats are counted" {
			runs[i].Events += uint64(b.n)
		}
	}
	return runs, err
}

func (b *buggy) Run(ctx context.Context, tenant, name string) (store.Run, error) {
	switch {
	case b.bug == "prefix beats the name" && name != store.Last && name != "":
		runs, _ := b.Oracle.Runs(ctx, store.Filter{Tenant: tenant})
		for _, r := range runs {
			if strings.HasPrefix(r.ID, name) {
				return r, nil
			}
		}
	case b.bug == "last of any tenant" && name == store.Last:
		tenant = ""
	case b.bug == "a look is the last run" && name == store.Last:
		if runs, _ := b.Oracle.Runs(ctx, store.Filter{Tenant: tenant}); len(runs) > 0 {
			return runs[0], nil
		}
	case b.bug == "none is any":
		tenant = plainTenant(tenant)
	case b.bug == "others are found by name":
		if r, err := b.Oracle.Run(ctx, tenant, name); err == nil || len(name) < 4 {
			return r, err
		}
		tenant = ""
	}
	return b.Oracle.Run(ctx, tenant, name)
}

func (b *buggy) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	switch {
	case b.bug == "to is inclusive" && !q.To.IsZero():
		q.To = q.To.Add(1)
	case b.bug == "tenant is ignored":
		q.Tenant = ""
	case b.bug == "limit is one too many" && q.Limit > 0:
		q.Limit++
	}
	return b.Oracle.Records(ctx, q)
}

func (b *buggy) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	switch {
	case b.bug == "the page's last comes again" && q.Before != nil:
		q.Before = &store.Head{Time: q.Before.Time, Run: q.Before.Run, Seq: q.Before.Seq + 1}
	case b.bug == "pages by time alone" && q.Before != nil:
		q.Before = &store.Head{Time: q.Before.Time}
	case b.bug == "none is any":
		q.Tenant = plainTenant(q.Tenant)
	case b.bug == "a cut is not reported":
		ctx = context.WithoutCancel(ctx)
	}
	rows := b.Oracle.Search(ctx, q)
	switch b.bug {
	case "oldest first":
		return reversed(rows)
	case "text is a pattern", "text minds case", "letters beyond ASCII fold":
		return b.misread(ctx, q)
	case "the cut is too late":
		return cutLate(rows)
	}
	return rows
}

func reversed(rows iter.Seq2[store.Row, error]) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		var all []store.Row
		for r, err := range rows {
			if err != nil {
				yield(r, err)
				return
			}
			all = append(all, r)
		}
		for _, r := range slices.Backward(all) {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// cutLate reports a cut before all rows with the last row's time.
func cutLate(rows iter.Seq2[store.Row, error]) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		for r, err := range rows {
			var cut *store.CutError
			if errors.As(err, &cut) {
				cut.At.Run = ""
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// misread misinterprets the text of a search.
func (b *buggy) misread(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	text, limit := q.Text, q.Limit
	if text == "" {
		return b.Oracle.Search(ctx, q)
	}
	matches := func(body string) bool { return strings.Contains(body, text) }
	switch b.bug {
	case "text is a pattern":
		pattern := regexp.MustCompile("(?is)" + strings.NewReplacer("%", ".*", "_", ".").Replace(regexp.QuoteMeta(strings.ToValidUTF8(text, ""))))
		matches = pattern.MatchString
	case "letters beyond ASCII fold":
		matches = func(body string) bool { return strings.Contains(strings.ToLower(body), strings.ToLower(text)) }
	}
	q.Text, q.Limit, q.From = "", 0, start
	return func(yield func(store.Row, error) bool) {
		n := 0
		for r, err := range b.Oracle.Search(ctx, q) {
			if err == nil && !matches(string(r.Body)) {
				continue
			}
			if n++; !yield(r, err) || n == limit {
				return
			}
		}
	}
}

func (b *buggy) Manifests(ctx context.Context, tenant, run string) ([]store.Manifest, error) {
	if b.bug == "manifests of any tenant" {
		tenant = ""
	}
	return b.Oracle.Manifests(ctx, tenant, run)
}

func (b *buggy) Feed(ctx context.Context, after string, limit int) ([]store.Ref, error) {
	refs, err := b.Oracle.Feed(ctx, after, limit)
	switch {
	case b.bug == "feed goes backwards":
		slices.Reverse(refs)
	case b.bug == "feed skips" && len(refs) > 2:
		refs = slices.Delete(refs, 1, 2)
	}
	return refs, err
}

func (b *buggy) Erase(ctx context.Context, tenant, run string, seq uint64) error {
	r := b.find(run, seq)
	path := ""
	if r != nil {
		path = r.Path
	}
	if b.bug == "any tenant may erase" {
		tenant = ""
	}
	err := b.Oracle.Erase(ctx, tenant, run, seq)
	switch {
	case err != nil:
	case b.bug == "erase loses the row":
		b.rows = slices.DeleteFunc(b.rows, func(r store.Row) bool { return r.Run == run && r.Seq == seq })
	case b.bug == "erase keeps the path":
		b.find(run, seq).Path = path
	}
	return err
}

func (b *buggy) Repair(ctx context.Context, seg store.Segment) error {
	switch b.bug {
	case "repair changes nothing":
		return seg.CheckSigned()
	case "repair leaves the surplus":
		before := slices.Clone(b.rows)
		err := b.Oracle.Repair(ctx, seg)
		for _, r := range before {
			if b.find(r.Run, r.Seq) == nil {
				b.rows = append(b.rows, r)
			}
		}
		return err
	case "repair brings back":
		b.rows = slices.DeleteFunc(b.rows, func(r store.Row) bool {
			return r.Run == seg.Run && r.Erased != nil && seg.First <= r.Seq && r.Seq <= seg.Last
		})
	case "repair believes anything":
		seg.Root = store.RootOf(seg.Frames)
	}
	return b.Oracle.Repair(ctx, seg)
}
