package outside

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/remote"
	"github.com/custody-project/custody/secrets/vault"
)

// The calls of Vault.
const (
	callOpen  = "vault-open"
	callSweep = "vault-sweep"
	callClose = "vault-close"
)

// maxCall bounds the duration of a call.
const maxCall = 2 * time.Minute

type (
	none struct{}
	// order is a login, in a file in memory.
	order struct {
		Config   vault.Config
		Trust    vault.Trust
		Run      string
		Bindings []binding
	}
	// binding is a secrets.Binding without what a broker does not use.
	binding struct {
		Name, From string
		Deliver    secrets.Deliver
	}
	within struct{ Within time.Duration } // limit of a call
)

// Login is the login of a process of root to Vault, in another process. It is safe for concurrent use.
//
//	OpenVault --> open --Close, the process dies--> closed
type Login struct {
	secrets.Broker
	process *privsep.Process
	place   *place
}

// OpenVault starts the process, which logs in to the Vault of c and can mint these secrets for a run, and no others. Without a run
// it mints none. c has no Place: it is that of this process.
func OpenVault(ctx context.Context, c vault.Config, run string, bindings []secrets.Binding) (*Login, error) {
	w, err := describe()
	if err != nil {
		return nil, err
	}
	return openVault(ctx, w, c, run, bindings)
}

func openVault(ctx context.Context, w privsep.Worker, c vault.Config, run string, bindings []secrets.Binding) (l *Login, err error) {
	o := order{Config: c, Run: run}
	for _, b := range bindings {
		o.Bindings = append(o.Bindings, binding{b.Name, b.From, b.Deliver})
	}
	here := vault.Here(c)
	if o.Trust, err = here.Trust(); err != nil {
		return nil, fmt.Errorf("vault: the certificates for Vault: %w", err)
	}
	f, err := privsep.Memory("login", o)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l = &Login{place: newPlace(here, c, run)}
	if l.process, err = w.Start(ctx, l.place.handlers()); err != nil {
		return nil, fmt.Errorf("the process that speaks to Vault: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	if _, err := l.process.Call(ctx, callOpen, none{}, nil, f); err != nil {
		return nil, errors.Join(remoteError(err), l.process.Close())
	}
	l.Broker = remote.New(l.process.Conn, map[string]string{scheme: scheme})[scheme]
	return l, nil
}

// scheme is that of Vault's sources, and the name of its broker.
const scheme = "vault"

// Sweep is that of vault.Broker.
func (l *Login) Sweep(ctx context.Context, alive func(run string) bool) error {
	l.place.allow(alive)
	return l.call(ctx, callSweep)
}

// Close revokes what the run has, logs out, and ends the process.
func (l *Login) Close(ctx context.Context) error {
	err := l.call(ctx, callClose)
	return errors.Join(err, l.process.Close())
}

func (l *Login) call(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	until, _ := ctx.Deadline()
	_, err := l.process.Call(ctx, name, within{time.Until(until)}, nil)
	return remoteError(err)
}
