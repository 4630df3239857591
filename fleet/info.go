package fleet

import (
	"slices"
	"time"

	"github.com/custody-project/custody/quota"
)

// Info describes a sandbox at one time.
type Info struct {
	ID       string
	Tenant   string
	Created  time.Time
	Expires  time.Time
	Latest   time.Time // to which Expires can be set
	Idle     time.Time // when it ends unless it is called, or its processes compute; zero: a call is carried out, or it waits
	State    State
	Position int         // in the queue, of the tenant's starts; 0: it does not wait
	Waits    time.Time   // since when it has waited; zero: it does not wait
	Quota    quota.Quota // that is used up, for which it waits; empty: it does not wait
	Expected time.Time   // when it can start, an estimate; zero: it does not wait
	Project  string
	Template string
	Tier     string // empty until it is live
	Caller   string
	Session  string
	Metadata map[string]string
	CPUs     int
	Memory   int64     // bytes
	Running  int       // processes
	Runs     []string  // the IDs of its runs, the latest last
	Before   []string  // those of the sandboxes that it was forked from, until then
	Paused   time.Time // when its state was stored; zero: it has none
	Stored   int64     // bytes of that state
	Files    string    // why the state has only the files, and the processes ended; empty: they continue
	Error    string
}

// Info returns the sandbox's description.
func (s *Sandbox) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.request.clone()
	i := Info{
		ID: s.ID, Tenant: r.Tenant, Created: s.Created, Expires: s.expires, Latest: s.latest, State: s.state, Project: s.terms.Project, Template: s.terms.Template, Caller: r.Caller, Session: r.Session,
		Metadata: r.Metadata, CPUs: s.terms.CPUs, Memory: s.terms.Memory, Running: s.running,
		Runs: slices.Clone(s.runs), Before: slices.Clone(s.before),
	}
	if r := s.rested; r != nil {
		i.Paused, i.Stored, i.Files = r.At, r.Saved.Size, r.Saved.Files
	}
	if s.state == Queued && s.place != nil {
		if over := s.place.Lacks(); over != nil {
			i.Position, i.Waits, i.Quota, i.Expected = over.Position, s.place.Since(), over.Quota, over.Retry
		}
	}
	if s.session != nil {
		i.Tier = s.session.Tier()
	}
	if s.calls == 0 && (s.state == Promised || s.state == Live) {
		i.Idle = s.idle.at
	}
	if s.err != nil {
		i.Error = s.err.Error()
	}
	return i
}

// Waiting describes the n sandboxes that have waited longest for their turn, of the tenants that of selects.
func (f *Fleet) Waiting(n int, of func(tenant string) bool) []Info {
	type wait struct {
		*Sandbox
		since time.Time
	}
	var all []wait
	f.mu.Lock()
	for _, s := range f.sandboxes {
		s.mu.Lock()
		if s.state == Queued && s.place != nil && of(s.request.Tenant) {
			all = append(all, wait{s, s.place.Since()})
		}
		s.mu.Unlock()
	}
	f.mu.Unlock()
	slices.SortFunc(all, func(a, b wait) int { return a.since.Compare(b.since) })
	var list []Info
	for _, w := range all {
		if len(list) == n {
			break
		}
		if i := w.Info(); i.Position > 0 { // it still waits
			list = append(list, i)
		}
	}
	return list
}

// Use returns what the host and its tenants use of their quotas.
func (f *Fleet) Use() quota.Snapshot { return f.config.Queue.Snapshot() }
