package hostd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/worker"
)

// Exported is the stored state of a run that is to be archived.
type Exported struct {
	Tenant, Run, Policy string // Policy is its digest
	Spec                Spec   // of the sandbox that would continue from it
	Expires             time.Time
	About               []byte `json:"-"` // replaces what Save stored; nil: that stays
}

// Moves moves stored states to and from an archive. The archive's key is known only here; the other process speaks to the storage.
type Moves interface {
	// Export writes a state to a pipe, encrypted for the hosts of the archive.
	Export(ctx context.Context, e Exported, to *os.File) (state.Info, error)
	// Import stores what Export has written, of which size bytes come from a pipe, as the state of a run of a tenant. It is authenticated.
	Import(ctx context.Context, tenant, run string, from *os.File, size int64) (worker.Saved, error)
	// About returns the description that was stored with the state of a run; nil: there is none.
	About(ctx context.Context, tenant, run string) ([]byte, error)
}

var (
	_ Moves = (*Host)(nil)
	_ Moves = (*Client)(nil)
)

// Export implements Moves.
func (h *Host) Export(ctx context.Context, e Exported, to *os.File) (state.Info, error) {
	keys, group, err := h.archiveKey()
	if err != nil {
		return state.Info{}, err
	}
	if _, err := h.Stored(ctx, e.Tenant, e.Run); err != nil { // before a machine is started for its base
		return state.Info{}, err
	}
	w, done, err := pipe(ctx, to)
	if err != nil {
		return state.Info{}, err
	}
	defer done()
	from, base, err := h.claim(ctx, e)
	if err != nil {
		return state.Info{}, err
	}
	elsewhere := state.Elsewhere{Host: group, Keys: keys, Expires: e.Expires}
	if e.About != nil {
		elsewhere.Parts = map[string][]byte{partSandbox: e.About}
	}
	info, err := from.Export(ctx, w, elsewhere, map[string]*os.File{partMemory: base.Memory, partDisk: base.Disk})
	return info, errors.Join(err, from.Release(), base.Close())
}

// claim claims a state, and returns what it is relative to.
func (h *Host) claim(ctx context.Context, e Exported) (from *state.Snapshot, base Base, err error) {
	t, d, _, err := h.resolve(ctx, e.Spec, Events{Notice: func(string) {}})
	if err != nil {
		return nil, base, err
	}
	if e.Spec.Cold || !d.Snapshots() {
		return nil, base, fmt.Errorf("a sandbox of the isolation %s has no stored state", d.Tier())
	}
	key, err := h.Home.Keys().Signing()
	if err != nil {
		return nil, base, err
	}
	image, err := t.Image(ctx, d, e.Spec.shape())
	if err != nil {
		return nil, base, err
	}
	base, err = baseOf(t, d, e.Spec.shape(), image)
	err = errors.Join(err, image.Close())
	var store *state.Store
	if err == nil {
		store, err = h.states()
	}
	if err == nil {
		from, err = store.Claim(ctx, state.Binding{
			Run: e.Run, Tenant: e.Tenant, Project: e.Spec.Project, Template: t.Digest(), Base: base.ID, Policy: e.Policy, Tier: d.Tier(), Host: key.Name(),
		})
	}
	if err != nil {
		return nil, Base{}, errors.Join(err, base.Close())
	}
	return from, base, nil
}

// Import implements Moves. Before the state is authenticated, only its manifest is parsed, from a bounded number of bytes.
func (h *Host) Import(ctx context.Context, tenant, run string, from *os.File, size int64) (saved worker.Saved, err error) {
	keys, group, err := h.archiveKey()
	if err != nil {
		return saved, err
	}
	if _, err := h.Stored(ctx, tenant, run); err != nil && !errors.Is(err, state.ErrNotFound) {
		return saved, err
	}
	store, err := h.states()
	if err != nil {
		return saved, err
	}
	key, err := h.Home.Keys().Signing()
	if err != nil {
		return saved, err
	}
	p, done, err := pipe(ctx, from)
	if err != nil {
		return saved, err
	}
	defer done()
	r := bufio.NewReaderSize(p, state.MaxInfo)
	head, err := r.Peek(state.MaxInfo)
	if err != nil && !errors.Is(err, io.EOF) {
		return saved, err
	}
	want, err := state.ParseInfo(head, size)
	if err != nil {
		return saved, err
	}
	want.Tenant, want.Run, want.Host = tenant, run, group
	info, err := store.Import(ctx, r, size, want.Binding, keys, key.Name())
	if err != nil {
		return saved, err
	}
	saved.Size, saved.Created, saved.Expires = info.Size, info.Created, info.Expires
	saved.Files, err = h.part(ctx, tenant, run, partFiles, maxReason)
	return saved, err
}

// maxReason bounds the part with the reason why a state has only files, in bytes.
const maxReason = 64 << 10

// About implements Moves.
func (h *Host) About(ctx context.Context, tenant, run string) ([]byte, error) {
	about, err := h.part(ctx, tenant, run, partSandbox, worker.MaxAbout)
	if err != nil || about == "" {
		return nil, err
	}
	return []byte(about), nil
}

// part returns a part of the state of a run; empty: it has no such part.
func (h *Host) part(ctx context.Context, tenant, run, part string, limit int64) (string, error) {
	store, err := h.states()
	if err != nil {
		return "", err
	}
	info, err := store.Stat(run)
	if err != nil {
		return "", err
	}
	if info.Tenant != tenant {
		return "", &state.BoundError{Run: run, What: state.BoundTenant}
	}
	from, err := store.Share(ctx, info.Binding) // which authenticates info
	if err != nil {
		return "", err
	}
	found, err := text(from, part, limit)
	if errors.Is(err, state.ErrNoPart) {
		err = nil
	}
	return found, errors.Join(err, from.Release())
}

// archiveKey returns the key of the archive, and the group of hosts that have it.
func (h *Host) archiveKey() (state.Wrapper, string, error) {
	a := h.Home.Config().Paused.Archive
	if a == nil {
		return nil, "", host.ErrNoArchive
	}
	return host.ArchiveKey(h.Home), a.Group, nil
}

// pipe returns the pipe of another process, whose reads and writes end when ctx is done. A file of another kind could be of a file system that does not answer.
func pipe(ctx context.Context, f *os.File) (p *os.File, done func(), err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.Mode()&os.ModeNamedPipe == 0 {
		return nil, nil, fmt.Errorf("the state goes through a pipe, not a file of type %s", info.Mode().Type())
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetNonblock(int(fd), true) }) // so that a deadline ends reads and writes
	if err := errors.Join(failed, err); err != nil {
		return nil, nil, err
	}
	if p, err = duplicate(f); err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { p.SetDeadline(time.Unix(1, 0)) })
	return p, func() { stop(); p.Close() }, nil
}

// boundedMoves exports only what processes that root does not trust could have a sandbox continue from; see Bounded.
type boundedMoves struct {
	*Host
	bound *Bounded
}

// Export implements Moves.
func (b boundedMoves) Export(ctx context.Context, e Exported, to *os.File) (state.Info, error) {
	if _, err := b.bound.base(e.Spec); err != nil {
		return state.Info{}, err
	}
	return b.Host.Export(ctx, e, to)
}

// imported is the argument of callImport.
type imported struct {
	Tenant, Run string
	Size        int64
}

// moveCalls returns the calls of Moves.
func moveCalls(m Moves) map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callExport: func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
			defer closeAll(files)
			if len(files) != 2 {
				return nil, nil, fmt.Errorf("%d files in place of 2", len(files))
			}
			var e Exported
			err := privsep.Decode(body, &e)
			if err == nil {
				e.About, err = describe(files[1:])
			}
			if err != nil {
				return nil, nil, err
			}
			info, err := m.Export(ctx, e, files[0])
			return info, nil, err
		},
		callImport: func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
			defer closeAll(files)
			if len(files) != 1 {
				return nil, nil, fmt.Errorf("%d files in place of one", len(files))
			}
			var i imported
			if err := privsep.Decode(body, &i); err != nil {
				return nil, nil, err
			}
			saved, err := m.Import(ctx, i.Tenant, i.Run, files[0], i.Size)
			return saved, nil, err
		},
		callAbout: privsep.Handle(func(ctx context.Context, c stored) (any, []*os.File, error) {
			about, err := m.About(ctx, c.Tenant, c.Run)
			if err != nil {
				return nil, nil, err
			}
			f, err := privsep.Memory("sandbox", json.RawMessage(about))
			if err != nil {
				return nil, nil, err
			}
			return none{}, []*os.File{f}, nil
		}),
	}
}

// Export implements Moves. The Server ends it when ctx is done.
func (c *Client) Export(ctx context.Context, e Exported, to *os.File) (info state.Info, err error) {
	about, err := privsep.Memory("sandbox", json.RawMessage(e.About))
	if err != nil {
		return info, err
	}
	defer about.Close()
	err = c.alone(ctx, callExport, e, &info, to, about)
	return info, err
}

// Import implements Moves. The Server ends it when ctx is done.
func (c *Client) Import(ctx context.Context, tenant, run string, from *os.File, size int64) (saved worker.Saved, err error) {
	err = c.alone(ctx, callImport, imported{tenant, run, size}, &saved, from)
	return saved, err
}

// alone makes a call over a connection of its own, whose end also ends the call at the Server.
func (c *Client) alone(ctx context.Context, name string, args, result any, files ...*os.File) error {
	conn, err := c.connect(ctx, nil)
	if err != nil {
		return err
	}
	r := begin(ctx, conn)
	_, err = conn.Call(ctx, name, args, result, files...)
	return errors.Join(err, r.hangUp())
}

// About implements Moves.
func (c *Client) About(ctx context.Context, tenant, run string) ([]byte, error) {
	files, err := signatures{c}.Call(ctx, callAbout, stored{tenant, run}, nil)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	return describe(files)
}
