package fence

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// build makes a complete fence except for its goroutine.
func build(ctx context.Context, host *space) (*Fence, error) {
	f, err := makeFence(host, Options{attach: attach})
	if err != nil {
		return nil, err
	}
	f.installing.Do(func() { f.installErr = f.install() })
	if err := errors.Join(f.installErr, ctx.Err()); err != nil {
		return nil, errors.Join(err, f.release())
	}
	return f, nil
}

// makeFence makes a namespace with a TAP in it.
func makeFence(host *space, o Options) (f *Fence, err error) {
	f = &Fence{host: host, options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.release())
		}
	}()
	if f.marks, err = newMarks(); err != nil {
		return f, err
	}
	if f.space, err = newSpace(); err != nil {
		return f, hint(err)
	}
	if f.index, err = f.makeTap(); err != nil {
		return f, hint(err)
	}
	return f, nil
}

// install installs the packet filters, and then brings up the TAP. If it fails, release frees what it has made.
func (f *Fence) install() error {
	spec, err := readPrograms(f.marks)
	if err != nil {
		return err
	}
	var filters sync.WaitGroup
	var filterErr error
	filters.Go(func() { filterErr = f.putFilters(f.index) }) // this waits for the kernel while the verifier checks the programs
	f.maps, err = loadObjects(spec)
	filters.Wait()
	if err == nil {
		err = filterErr
	}
	if err != nil { // the first error is enough
		return hint(err)
	}
	f.permits = newPermitTable(f.maps)
	f.ledger = newLedger(f.maps, f.permits)
	if err := f.space.in(func() error { return f.admit(f.index) }); err != nil {
		return hint(err)
	}
	f.direct = &direct{space: f.space, host: f.host, gates: f.gates, maps: f.maps, marks: f.marks, inject: f.inject, permits: f.permits}
	return hint(f.space.configure())
}

func (f *Fence) makeTap() (index int, err error) {
	err = f.space.in(func() (err error) {
		if err = quiet.set(); err == nil {
			f.tap, err = newTap()
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	tap, err := f.space.links.LinkByName(tapName)
	if err != nil {
		return 0, fmt.Errorf("find the guest's network device: %w", err)
	}
	return tap.Attrs().Index, nil
}

// putFilters installs both packet filters, before any program of the policy is admitted.
func (f *Fence) putFilters(index int) (err error) {
	if err := f.space.writeTable(f.marks, 0); err != nil {
		return err
	}
	if f.gates, err = newGates(f.options.attach); err != nil {
		return err
	}
	return f.space.in(func() error {
		if err := f.gates.attachTo(index, fromGuest); err != nil {
			return err
		}
		return f.gates.attachTo(index, toGuest)
	})
}

// admit admits the policy's programs; it must be called in the namespace.
func (f *Fence) admit(index int) (err error) {
	if err := errors.Join(f.gates.admit(fromGuest, f.maps.FromGuest), f.gates.admit(toGuest, f.maps.ToGuest)); err != nil {
		return err
	}
	f.inject, err = newInjector(index, f.marks)
	return err
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

func newMarks() (marks, error) {
	const top = 1 << 31 // so that the marks of fragments of all generations are distinct
	var b [12]byte
	for {
		if _, err := rand.Read(b[:]); err != nil {
			return marks{}, err
		}
		m := marks{
			pass: binary.NativeEndian.Uint32(b[:]) &^ top, inject: binary.NativeEndian.Uint32(b[4:]) &^ top, part: binary.NativeEndian.Uint32(b[8:]) | top,
		}
		if m.pass != 0 && m.inject != 0 && m.pass != m.inject {
			return m, nil
		}
	}
}

// release frees what makeFence and install have made; any of it may be missing. The kernel removes the guest's device
// with its namespace, asynchronously.
func (f *Fence) release() error {
	var errs []error
	if f.gates != nil {
		errs = append(errs, f.gates.Close())
	}
	if f.direct != nil && f.direct.uplink != nil {
		errs = append(errs, f.direct.uplink.close(f.marks))
	}
	if f.inject != nil {
		errs = append(errs, f.inject.close())
	}
	if f.tap != nil {
		if err := f.tap.Close(); !errors.Is(err, os.ErrClosed) { // a driver that opens the device by its name has closed it
			errs = append(errs, err)
		}
	}
	if f.maps != nil {
		errs = append(errs, f.maps.close())
	}
	if f.space != nil {
		errs = append(errs, f.space.close())
	}
	return errors.Join(errs...)
}
