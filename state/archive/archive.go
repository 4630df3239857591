package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/custody-project/custody/state"
)

// Config is how an Archive works.
type Config struct {
	Keys state.Wrapper // of all hosts that use the archive, such as a state.SharedKeyFile; nil: Put and Fetch are not called
	// Group is the name of these hosts: what is archived for one group is not fetched for another. See also For.
	Group string
	// Abandoned is how old an unfinished upload is when Open takes it for that of a dead process. 0: a day.
	Abandoned time.Duration
	Now       func() time.Time // nil: time.Now
}

// Archive is the snapshots in a storage. It is safe for concurrent use.
type Archive struct {
	objects Objects
	config  Config
}

// Open probes the storage, and removes what dead processes left there. The error is ErrUnsafe if the storage does not do what an archive needs.
func Open(ctx context.Context, o Objects, c Config) (*Archive, error) {
	if c.Abandoned == 0 {
		c.Abandoned = 24 * time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &Archive{o, c}
	if err := a.probe(ctx); err != nil {
		return nil, fmt.Errorf("archive of paused sandboxes: %w", err)
	}
	if err := a.clean(ctx); err != nil {
		return nil, fmt.Errorf("archive of paused sandboxes: remove what was left: %w", err)
	}
	return a, nil
}

// For returns the archive for another group. A host is in several if its machines have different monitors: the state of a machine can be loaded by the same version only, so a
// group's name includes it.
func (a *Archive) For(group string) *Archive {
	c := a.config
	c.Group = group
	return &Archive{a.objects, c}
}

// Receipt states what was archived.
type Receipt struct {
	state.Info        // of the archived snapshot
	Object     string // its name in the storage
	Bytes      int64  // of the object
	SHA256     string // of the object, in hexadecimal
}

// Put archives a snapshot, reads it back from the storage, and compares it, so that the caller can then Consume the claimed snapshot. The archive
// has one snapshot of a run: an earlier one is removed first, and the error is ErrNewer if it has a later one. It expires at expires; zero: when
// the snapshot does. bases are those of Snapshot.Export. ctx ends it at any time.
func (a *Archive) Put(ctx context.Context, snap *state.Snapshot, expires time.Time, bases map[string]*os.File) (Receipt, error) {
	to := state.Elsewhere{Host: a.config.Group, Keys: a.config.Keys, Expires: expires}
	return a.PutFrom(ctx, snap.Info, func(w io.Writer) (state.Info, error) { return snap.Export(ctx, w, to, bases) })
}

// PutFrom is Put for a process without the keys: export has another one write the export of the snapshot that info describes. It ends when a write fails.
func (a *Archive) PutFrom(ctx context.Context, info state.Info, export func(io.Writer) (state.Info, error)) (Receipt, error) {
	r, err := a.put(ctx, info, export)
	if err != nil {
		return Receipt{}, fmt.Errorf("archive run %s: %w", info.Run, err)
	}
	return r, nil
}

func (a *Archive) put(ctx context.Context, info state.Info, export func(io.Writer) (state.Info, error)) (r Receipt, err error) {
	if r.Object, err = Name(info.Tenant, info.Run); err != nil {
		return r, err
	}
	if err := a.replace(ctx, r.Object, info); err != nil {
		return r, err
	}
	up := startUpload(export)
	err = a.objects.Put(ctx, r.Object, up)
	r.Info, r.Bytes, r.SHA256 = up.end(err)
	if up.err != nil {
		return r, up.err
	}
	if err != nil && r.Run == "" { // it was not read to its end
		return r, err
	}
	// The answer can have been lost, also that to the first of repeated requests: what counts is what is stored.
	same := a.compare(ctx, r)
	switch {
	case same == nil:
		return r, nil
	case err != nil:
		return r, err
	}
	return r, errors.Join(same, a.objects.Delete(context.WithoutCancel(ctx), r.Object))
}

// replace removes what the archive has of a run, unless it is later than info. What cannot be read is replaced, too.
func (a *Archive) replace(ctx context.Context, name string, info state.Info) error {
	old, err := a.head(ctx, name)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err == nil && old.Created.After(info.Created):
		return ErrNewer
	case err != nil && !errors.Is(err, state.ErrAltered):
		return err
	}
	return a.objects.Delete(ctx, name)
}

// compare reads an object, and compares it with what was written.
func (a *Archive) compare(ctx context.Context, r Receipt) error {
	object, size, err := a.objects.Get(ctx, r.Object)
	if err != nil {
		return err
	}
	defer object.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(object, r.Bytes+1))
	switch sum := fmt.Sprintf("%x", h.Sum(nil)); {
	case err != nil:
		return damaged(err)
	case n != r.Bytes || size != r.Bytes || sum != r.SHA256:
		return fmt.Errorf("%w (%d bytes instead of %d, SHA-256 %s instead of %s)", ErrDamaged, n, r.Bytes, sum, r.SHA256)
	}
	return nil
}

// Fetch stores the archived snapshot of want.Run in a store, as that of the host with a name, and leaves it in the archive. All values of want but Host and Base are checked, as
// state.Store.Import does. The error is ErrNotFound if there is none, and ErrDamaged if other bytes than those written are returned; then nothing is stored.
func (a *Archive) Fetch(ctx context.Context, to *state.Store, want state.Binding, host string) (info state.Info, err error) {
	want.Host = a.config.Group
	err = a.FetchTo(ctx, want.Tenant, want.Run, func(r io.Reader, size int64) (err error) {
		info, err = to.Import(ctx, r, size, want, a.config.Keys, host)
		return err
	})
	if err != nil {
		return state.Info{}, err
	}
	return info, nil
}

// FetchTo is Fetch for a process without the keys: store has another one import the export of a run, of which it reads size bytes from r. If r ends with
// an error, store must not succeed.
func (a *Archive) FetchTo(ctx context.Context, tenant, run string, store func(r io.Reader, size int64) error) error {
	if err := a.fetch(ctx, tenant, run, store); err != nil {
		return fmt.Errorf("fetch the archived state of run %s: %w", run, err)
	}
	return nil
}

func (a *Archive) fetch(ctx context.Context, tenant, run string, store func(io.Reader, int64) error) error {
	name, err := Name(tenant, run)
	if err != nil {
		return err
	}
	object, size, err := a.objects.Get(ctx, name)
	if err != nil {
		return err
	}
	defer object.Close()
	if size < sha256.Size {
		return fmt.Errorf("%w (%d bytes)", ErrDamaged, size)
	}
	size -= sha256.Size
	return store(newChecked(object, size), size)
}

// Item describes an archived snapshot.
type Item struct {
	Run    string
	Bytes  int64
	Stored time.Time
}

// List lists the archived snapshots of a tenant, in the order of their runs.
func (a *Archive) List(ctx context.Context, tenant string) (list []Item, err error) {
	prefix, err := tenantPrefix(tenant)
	if err != nil {
		return nil, err
	}
	err = a.objects.List(ctx, prefix, func(o Object) error {
		if run, found := runOf(o.Name, prefix); found {
			list = append(list, Item{run, o.Size, o.Stored})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list archived sandboxes: %w", err)
	}
	return list, nil
}

// Stat describes an archived snapshot. It is not authenticated: Fetch does that.
func (a *Archive) Stat(ctx context.Context, tenant, run string) (state.Info, error) {
	name, err := Name(tenant, run)
	if err != nil {
		return state.Info{}, err
	}
	info, err := a.head(ctx, name)
	if err == nil && (info.Run != run || info.Tenant != tenant) {
		err = state.ErrAltered
	}
	if err != nil {
		return state.Info{}, fmt.Errorf("the archived state of run %s: %w", run, err)
	}
	return info, nil
}

func (a *Archive) head(ctx context.Context, name string) (state.Info, error) {
	object, size, err := a.objects.Get(ctx, name)
	if err != nil {
		return state.Info{}, err
	}
	defer object.Close()
	return state.ReadInfo(object, size-sha256.Size)
}

// Delete removes the archived snapshot of a run. There may be none.
func (a *Archive) Delete(ctx context.Context, tenant, run string) error {
	name, err := Name(tenant, run)
	if err == nil {
		err = a.objects.Delete(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("delete the archived state of run %s: %w", run, err)
	}
	return nil
}

// Sweep removes the archived snapshots of a tenant that have expired, and returns them. It reads the beginning of each. What is damaged stays.
func (a *Archive) Sweep(ctx context.Context, tenant string) (removed []Item, err error) {
	list, err := a.List(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, i := range list {
		info, err := a.Stat(ctx, tenant, i.Run)
		if err == nil && !a.config.Now().Before(info.Expires) {
			if err = a.Delete(ctx, tenant, i.Run); err == nil {
				removed = append(removed, i)
			}
		}
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, state.ErrAltered) {
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}

// Erasure is what Erase did.
type Erasure struct {
	Removed []string // objects, versions, unfinished uploads
	// Left is what could not be removed, or could not be seen, with the reason. It cannot name copies that the storage makes elsewhere, such as replicas and back-ups.
	Left []string
}

// Erase removes all that the storage shows of a run, and lists the rest. If Left is not empty, the error is not nil.
func (a *Archive) Erase(ctx context.Context, tenant, run string) (e Erasure, err error) {
	name, err := Name(tenant, run)
	if err != nil {
		return e, err
	}
	had, seen := a.objects.Rest(ctx, name)
	err = errors.Join(seen, a.objects.Delete(ctx, name))
	var unseen error
	if e.Left, unseen = a.objects.Rest(ctx, name); unseen != nil {
		e.Left = append(e.Left, "what the storage has of "+name)
	}
	if err = errors.Join(err, unseen); unseen == nil {
		e.Removed = slices.DeleteFunc(had, func(s string) bool { return slices.Contains(e.Left, s) })
	}
	if len(e.Left) > 0 {
		return e, errors.Join(fmt.Errorf("erase the archived state of run %s: the storage still has some of it", run), err)
	}
	return e, err
}
