package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/state/archive"
	"github.com/custody-project/custody/store"
)

// NewArchive returns the archive of the sandboxes of runs. open opens its storage when it is first used, and again if it fails.
// The storage is used by this process, the archive's key by the process that makes sandboxes.
func NewArchive(runs *Runs, open func(context.Context) (*archive.Archive, error)) Archive {
	return &archived{runs: runs, open: open}
}

// archived is an Archive.
type archived struct {
	runs *Runs
	open func(context.Context) (*archive.Archive, error)

	mu      sync.Mutex       // guards storage
	storage *archive.Archive // nil before it is open
}

// states are the stored states of a host, which can be archived.
type states interface {
	hostd.States
	hostd.Moves
}

// parts returns the two ends between which states are moved.
func (a *archived) parts(ctx context.Context) (states, *archive.Archive, error) {
	here, err := a.runs.states()
	if err != nil {
		return nil, nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.storage == nil {
		a.storage, err = a.open(ctx)
	}
	return here, a.storage, err
}

// Put implements Archive.
func (a *archived) Put(ctx context.Context, q Request, run string, expires time.Time) error {
	here, storage, err := a.parts(ctx)
	if err != nil {
		return err
	}
	saved, err := here.Stored(ctx, q.Tenant, run)
	if err != nil {
		return err
	}
	e, err := a.exported(ctx, here, q, run)
	if err != nil {
		return err
	}
	e.Expires = expires
	info := state.Info{Binding: state.Binding{Tenant: q.Tenant, Run: run}, Created: saved.Created}
	_, err = storage.PutFrom(ctx, info, func(w io.Writer) (state.Info, error) { return export(ctx, here, e, w) })
	return err
}

// exported describes the state of a run that was made for a request. What was stored about the sandbox was written when the record of the run was still
// open: the archived state describes the closed one, which another host does not have.
func (a *archived) exported(ctx context.Context, here states, q Request, run string) (e hostd.Exported, err error) {
	o, err := a.runs.options(q)
	if err != nil {
		return e, err
	}
	policy, err := o.Project.Policy()
	if err != nil {
		return e, err
	}
	e = hostd.Exported{Tenant: q.Tenant, Run: run, Policy: policy.Digest()}
	if e.Spec, err = o.Spec(); err != nil {
		return e, err
	}
	k, err := described(ctx, here, q.Tenant, run)
	if err != nil {
		return e, err
	}
	parent, err := a.runs.Parent(ctx, run)
	if err != nil {
		return e, err
	}
	k.Rested.Parent = &parent
	e.About, err = json.Marshal(k)
	return e, err
}

// described returns what was stored about the sandbox of a run.
func described(ctx context.Context, from interface {
	About(ctx context.Context, tenant, run string) ([]byte, error)
}, tenant, run string) (k pausedSandbox, err error) {
	text, err := from.About(ctx, tenant, run)
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(text, &k); err != nil {
		return k, fmt.Errorf("the description of the paused sandbox: %w", err)
	}
	if !store.ValidRun(k.ID) || k.Request.Tenant != tenant || k.Rested.Run != run {
		return k, fmt.Errorf("the paused state of run %s does not describe its sandbox", run)
	}
	return k, nil
}

// export copies the export of a state to w.
func export(ctx context.Context, from hostd.Moves, e hostd.Exported, w io.Writer) (state.Info, error) {
	r, to, err := os.Pipe()
	if err != nil {
		return state.Info{}, err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(w, r)
		copied <- errors.Join(err, r.Close()) // so that a write of the export fails
	}()
	info, err := from.Export(ctx, e, to)
	err = errors.Join(err, to.Close())
	if err != nil {
		r.SetReadDeadline(time.Unix(1, 0)) // the other process may still have its end
	}
	failed := <-copied
	if errors.Is(failed, os.ErrDeadlineExceeded) {
		failed = nil
	}
	return info, errors.Join(failed, err)
}

// Fetch implements Archive.
func (a *archived) Fetch(ctx context.Context, tenant, run string) (saved run.Saved, err error) {
	here, storage, err := a.parts(ctx)
	if err != nil {
		return saved, err
	}
	err = storage.FetchTo(ctx, tenant, run, func(r io.Reader, size int64) (err error) {
		from, w, err := os.Pipe()
		if err != nil {
			return err
		}
		fed := make(chan error, 1)
		go func() {
			err := feed(w, r, size)
			fed <- errors.Join(err, w.Close())
		}()
		saved, err = here.Import(ctx, tenant, run, from, size)
		err = errors.Join(err, from.Close())
		failed := <-fed
		if err != nil && errors.Is(failed, syscall.EPIPE) {
			failed = nil
		}
		return errors.Join(failed, err)
	})
	return saved, err
}

// feed copies the size bytes of an export. If r ends with an error, which it does if what it has returned is not what was archived, the last byte is missing:
// then the import fails.
func feed(w io.Writer, r io.Reader, size int64) error {
	if _, err := io.CopyN(w, r, size-1); err != nil {
		return err
	}
	last, err := io.ReadAll(r)
	if err == nil {
		_, err = w.Write(last)
	}
	return err
}

// About implements Archive.
func (a *archived) About(ctx context.Context, tenant, run string) ([]byte, error) {
	here, err := a.runs.states()
	if err != nil {
		return nil, err
	}
	return here.About(ctx, tenant, run)
}

// Has implements Archive.
func (a *archived) Has(ctx context.Context, tenant, run string) (bool, error) {
	_, storage, err := a.parts(ctx)
	if err == nil {
		_, err = storage.Stat(ctx, tenant, run)
	}
	if errors.Is(err, archive.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Delete implements Archive.
func (a *archived) Delete(ctx context.Context, tenant, run string) error {
	_, storage, err := a.parts(ctx)
	if err != nil {
		return err
	}
	return storage.Delete(ctx, tenant, run)
}
