package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/custody-project/custody/state/archive"
)

// Archives reports whether the fleet has an archive, from which Adopt takes sandboxes.
func (f *Fleet) Archives() bool { return f.config.Archive != nil }

// Adopt adds a sandbox of another host that is in the archive, as a paused one of this host. run is its last run, which was paused. The archive does not
// know which host has a sandbox: the caller sees to it that the other one does not continue it, and that one host adopts it.
func (f *Fleet) Adopt(ctx context.Context, tenant, run string) (*Sandbox, error) {
	if f.config.Archive == nil {
		return nil, errNoArchive
	}
	s, leave, err := revival{f}.adopting(tenant, run)
	if s != nil || err != nil {
		return s, err
	}
	defer leave()
	k, err := revival{f}.adopted(ctx, tenant, run)
	if errors.Is(err, archive.ErrNotFound) {
		return nil, unknown("there is no sandbox %.80q, and the archive has no state of it", run)
	}
	if err != nil {
		return nil, fmt.Errorf("adopt the sandbox of run %s: %w", run, err)
	}
	if err := f.config.Archive.Delete(ctx, tenant, run); err != nil { // it is removed with the sandbox, or expires
		f.config.Problem(fmt.Errorf("sandbox %s: %w", k.ID, err))
	}
	if s = (revival{f}).revive(k); s == nil {
		return nil, &Error{ErrEnded, "the service is shutting down, and has the sandbox when it starts again"}
	}
	return s, nil
}

// adopting begins the adoption of a run, which leave ends; or it returns the sandbox that was paused with that run, if the fleet has it.
func (f revival) adopting(tenant, run string) (s *Sandbox, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sandboxes {
		if s.request.Tenant == tenant && (pausing{s}).pausedAs(run) {
			return s, nil, nil
		}
	}
	k := key{tenant: tenant, name: run}
	switch {
	case f.closed:
		return nil, nil, &Error{ErrEnded, "the service is shutting down: try again later"}
	case f.adoptions[k]:
		return nil, nil, conflict("the sandbox of run %s is being adopted: try again later", run)
	case f.lives[tenant] >= maxOf:
		return nil, nil, conflict("the tenant has %d sandboxes, promised and paused ones included: destroy some first", maxOf)
	}
	f.adoptions[k] = true
	return nil, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.adoptions, k)
	}, nil
}

// pausedAs reports whether the sandbox continues from a run.
func (s pausing) pausedAs(run string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rested != nil && !s.rested.fork && s.rested.Run == run
}

// adopted fetches the state of a sandbox, and keeps it as one that is paused here. If the process dies before, the state stays in the archive, too.
func (f revival) adopted(ctx context.Context, tenant, run string) (k pausedSandbox, err error) {
	saved, err := f.config.Archive.Fetch(ctx, tenant, run)
	if err != nil {
		return k, err
	}
	if k, err = described(ctx, f.config.Archive, tenant, run); err == nil {
		k.Rested.Saved, k.Rested.Archived = saved, false
		k.Terms, err = f.config.Runner.Check(ctx, k.Request) // on this host
	}
	if err == nil {
		err = f.free(k)
	}
	if err == nil {
		err = f.paused.put(k)
	}
	if err != nil {
		err = errors.Join(err, f.config.Runner.Discard(context.WithoutCancel(ctx), tenant, run))
	}
	return k, err
}

// free returns an error if the fleet has another sandbox with the ID, or the session, of one that is to be adopted.
func (f revival) free(k pausedSandbox) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sandboxes[k.ID]; s != nil {
		return conflict("this host has the sandbox %s, which is %s: if it has ended, try again later", k.ID, s.Info().State)
	}
	if q := k.Request; q.Session != "" && f.sessions[key{q.Tenant, k.Terms.Project, q.Session}] != nil {
		return conflict("this host has another sandbox of the session %.80q: destroy it first", q.Session)
	}
	return nil
}
