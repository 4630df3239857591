package hostd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm/confine"
	"github.com/custody-project/custody/vmm/template"
)

// Daemon is custody host: a Server with the state of this host that only root can change.
type Daemon struct {
	Home      *host.Host
	Templates template.Store
	Socket    string       // where it listens
	User      string       // whose processes may connect, in addition to root's
	Idle      int          // warm sandboxes that are kept for each project; 0: none
	Max       int          // sandboxes that runs have at the same time; 0: perProcessor for each
	Notice    func(string) // gets what the administrator should know; called concurrently
	Ready     func() error // called when clients can connect; an error ends Serve
	Meters    Meters       // of the pool; nil: none
	Log       *slog.Logger // of the pool
}

// maxClients bounds the connections: each sandbox has one.
const maxClients = 1024

// perProcessor is how many sandboxes runs have at the same time for each processor of the host, unless Max says another number: most of
// them wait, such as for the answer of a model.
const perProcessor = 16

// Serve serves until ctx is done. It first removes what a killed process left.
func (d Daemon) Serve(ctx context.Context) (err error) {
	u, err := user.Lookup(d.User)
	if err != nil {
		return fmt.Errorf("the user of the service: %w: make it with useradd --system --user-group %s, or name another with --user", err, d.User)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	if _, err := d.Home.Keys().Signing(); err != nil { // makes the key at the first start
		return err
	}
	if err := errors.Join(Publish(d.Home.Layout, gid), confine.Sweep()); err != nil {
		return err
	}
	keys, err := d.Home.Keys().Server(ctx, d.Home.Signed())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keys.Close()) }()
	ledger, err := sealer.OpenLedger(filepath.Join(d.Home.Signed(), "sandboxes"), host.SandboxPrefix)
	if err != nil {
		return err
	}
	l, err := privsep.Listen(ctx, d.Socket, privsep.Access{UID: uid, GID: os.Getgid(), Mode: 0o600})
	if err != nil {
		return err
	}
	calls := map[string]privsep.Handler{callHome: handle(func(context.Context, none) (any, error) { return d.Home.Dir, nil })}
	former := host.NewHandover(d.Home, keys.Last)
	if err := former.Second(); err != nil {
		d.Notice(err.Error())
	}
	maps.Copy(calls, handover(former))
	maps.Copy(calls, keys.Handlers())
	states := &Host{Home: d.Home, Templates: d.Templates}
	maps.Copy(calls, stateCalls(states))
	maps.Copy(calls, moveCalls(boundedMoves{states, &Bounded{Home: d.Home}}))
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	within, stop := context.WithCancel(ctx)
	defer stop()
	sweeping.Go(func() { states.sweep(within, d.Notice) })
	sandboxes, end, err := d.sandboxes(ctx, ledger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }() // after the server has ended: no sandbox is leased
	queue := NewQueue(sandboxes, cmp.Or(d.Max, perProcessor*runtime.NumCPU()))
	s := &Server{
		Sandboxes: &Bounded{Home: d.Home, Sandboxes: queue}, Users: []int{0, uid}, Max: maxClients, Calls: calls, Notice: d.Notice, Meters: d.Meters,
	}
	if err := d.Ready(); err != nil {
		return errors.Join(err, l.Close())
	}
	return s.Serve(ctx, l)
}

// sandboxes returns what makes sandboxes; end ends those that are idle.
func (d Daemon) sandboxes(ctx context.Context, l *sealer.Ledger) (o Opener, end func() error, err error) {
	h := &Host{Home: d.Home, Templates: d.Templates, Ledger: l, Silent: func(err error) {
		d.Notice(err.Error())
		if d.Meters != nil {
			d.Meters.Silent()
		}
	}}
	if d.Idle <= 0 {
		return h, func() error { return nil }, nil
	}
	p, err := NewPooled(ctx, h, PoolOptions{Idle: d.Idle, Meters: d.Meters, Log: d.Log})
	if err != nil {
		return nil, nil, err
	}
	return p, func() error { return p.Close(ctx) }, nil
}
