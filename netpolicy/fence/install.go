package fence

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// build makes a complete fence except for its goroutine. It owns host, also if it fails.
func build(ctx context.Context, host *space) (*Fence, error) {
	n, err := makeNamespace(host)
	if err != nil {
		return nil, err
	}
	f := &Fence{namespace: n, host: host.links}
	f.installing.Do(func() { f.installErr = f.install() })
	if err := errors.Join(f.installErr, ctx.Err()); err != nil {
		return nil, errors.Join(err, f.discard())
	}
	return f, nil
}

// Install installs the packet filters, which drop all packets until another method is called. Without it the first of those
// calls does so, too.
func (f *Fence) Install() error {
	f.laying.Do(func() { f.layErr = f.lay() })
	return f.layErr
}

func (f *Fence) lay() (err error) {
	if f.filters, err = f.namespace.Install(); err != nil {
		return err
	}
	f.inject = newInjector(f.filters)
	f.permits = newPermitTable(f.filters.maps)
	f.ledger = newLedger(f.filters.maps, f.permits)
	f.direct = &direct{namespace: f.namespace, host: f.host, filters: f.filters, inject: f.inject, permits: f.permits}
	return nil
}

// install admits the policy's programs to the packet filters.
func (f *Fence) install() error {
	if err := f.Install(); err != nil {
		return err
	}
	return errors.Join(f.filters.admit(fromGuest), f.filters.admit(toGuest))
}

func hint(err error) error {
	if k := new(KernelError); errors.As(err, &k) {
		return err
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w (a sandbox's network needs CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF: run as root)", err)
	}
	return err
}

// release frees what install has made; any of it may be missing.
func (f *Fence) release() error {
	if f.filters == nil {
		return nil
	}
	f.inject.closeUplink()
	return f.filters.Close()
}
