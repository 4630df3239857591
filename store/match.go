package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// ErrSearchAll prevents unintended searches of the whole store.
var ErrSearchAll = errors.New("search records: one of path, host, hash, secret, rule, text or from is needed")

// CutError ends a search whose context ended before it was complete. All matches before
// At in Search's order were yielded; a search with Before = &At continues there.
type CutError struct {
	At  Head // Time, Run and Seq; a position, which need not have a record
	Err error
}

// Error implements error.
func (e *CutError) Error() string {
	return fmt.Sprintf("search records: it was interrupted at %s: %v", e.At.Time.UTC().Format(time.RFC3339Nano), e.Err)
}

// Unwrap returns the context's error.
func (e *CutError) Unwrap() error { return e.Err }

// OfTenant reports whether asked, a filter, includes tenant have: an empty filter includes any.
func OfTenant(asked, have string) bool {
	return asked == "" || asked == have || asked == NoTenant && have == ""
}

// Check returns ErrSearchAll if no condition is set.
func (s Search) Check() error {
	if s.Path+s.Host+s.Hash+s.Secret+s.Rule+s.Text == "" && s.From.IsZero() {
		return ErrSearchAll
	}
	return nil
}

// Needle returns Text in the form that is compared with a record in lower case.
func (s Search) Needle() []byte { return []byte(lower(s.Text)) }

// Match reports whether a search matches the row, ignoring Limit.
func (s Search) Match(r Row) bool {
	is := func(asked, have string) bool { return asked == "" || asked == have }
	return OfTenant(s.Tenant, r.Tenant) && is(s.Path, r.Path) && is(HostName(s.Host), r.Host) && is(s.Hash, r.Hash) &&
		is(s.Secret, r.Secret) && is(s.Rule, r.Rule) && (len(s.Kinds) == 0 || slices.Contains(s.Kinds, audit.Kind(r.Kind))) &&
		within(r.Time, s.From, s.To) && (s.Before == nil || r.Head.Newer(*s.Before) > 0) &&
		(s.Text == "" || bytes.Contains([]byte(lower(string(r.Body))), s.Needle()))
}

func within(t, from, to time.Time) bool {
	return (from.IsZero() || !t.Before(from)) && (to.IsZero() || t.Before(to))
}

// Newer compares in Search's order, by time, run and seq, the greatest first: it is
// negative if h comes before o.
func (h Head) Newer(o Head) int {
	if c := o.Time.Compare(h.Time); c != 0 {
		return c
	}
	if c := strings.Compare(o.Run, h.Run); c != 0 {
		return c
	}
	switch {
	case h.Seq > o.Seq:
		return -1
	case h.Seq < o.Seq:
		return 1
	}
	return 0
}

// Match reports whether the filter selects the run, ignoring Limit.
func (f Filter) Match(r Run) bool {
	return OfTenant(f.Tenant, r.Tenant) && (f.Class == "" || f.Class == r.Class()) && (f.Project == "" || f.Project == r.Project) &&
		(f.Status == "" || f.Status == r.Status) && (!f.Findings || r.Findings > 0) && within(r.Began(), f.From, f.To) &&
		(f.Before == nil || r.Newer(*f.Before) > 0)
}

// Newer compares in the order of Runs, by start and name, the greatest first:
// it is negative if r comes before o.
func (r Run) Newer(o Run) int {
	if c := o.Began().Compare(r.Began()); c != 0 {
		return c
	}
	return strings.Compare(o.ID, r.ID)
}
