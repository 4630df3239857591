package fence

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// build makes all of a fence but the goroutine that looks after it.
func build(ctx context.Context, site *space) (*Fence, error) {
	f, err := lay(site, Options{attach: attach})
	if err != nil {
		return nil, err
	}
	f.raising.Do(func() { f.unraised = f.raise() })
	if err := errors.Join(f.unraised, ctx.Err()); err != nil {
		return nil, errors.Join(err, f.release())
	}
	return f, nil
}

// lay makes a namespace with a TAP in it.
func lay(site *space, o Options) (f *Fence, err error) {
	f = &Fence{site: site, options: o}
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

// raise installs the packet filters, and then the TAP. If it fails, release frees what it has made.
func (f *Fence) raise() error {
	spec, err := readPrograms(f.marks)
	if err != nil {
		return err
	}
	var walls sync.WaitGroup
	var walled error
	walls.Go(func() { walled = f.putWalls(f.index) }) // which waits for the kernel, while that checks the programs
	f.maps, err = loadObjects(spec)
	walls.Wait()
	if err == nil {
		err = walled
	}
	if err != nil { // of two reasons the first is enough
		return hint(err)
	}
	f.book = newBook(f.maps)
	f.ledger = newLedger(f.maps, f.book)
	if err := f.space.in(func() error { return f.admit(f.index) }); err != nil {
		return hint(err)
	}
	f.direct = &direct{space: f.space, site: f.site, gates: f.gates, maps: f.maps, marks: f.marks, inject: f.inject, book: f.book}
	return hint(f.space.cable())
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

// putWalls puts up both walls, before any program of the policy's is there.
func (f *Fence) putWalls(index int) (err error) {
	if err := f.space.raiseWall(f.marks, 0); err != nil {
		return err
	}
	if f.gates, err = newGates(f.options.attach); err != nil {
		return err
	}
	return f.space.in(func() error {
		if err := f.gates.stand(index, fromGuest); err != nil {
			return err
		}
		return f.gates.stand(index, toGuest)
	})
}

// admit lets the policy's programs in; it runs in the namespace.
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
	const top = 1 << 31 // so that no generation makes a fragment's mark another
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

// release gives back what lay and raise took; any of it may be missing. The guest's
// device goes with its namespace, in the kernel's own time.
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
		errs = append(errs, f.tap.Close())
	}
	if f.maps != nil {
		errs = append(errs, f.maps.close())
	}
	if f.space != nil {
		errs = append(errs, f.space.close())
	}
	return errors.Join(errs...)
}
