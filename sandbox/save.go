package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm"
)

// saveHold freezes the VM from the begin of Save on.
const saveHold = "its state is being saved"

// ErrNotSaved means that the isolation of a sandbox does not allow that its state is saved.
var ErrNotSaved = errors.New("sandboxes of this isolation cannot be saved with their processes")

// State receives the state of a VM. Its scratch disk is not part of it: it is that of the Machine.
type State struct {
	Device *os.File                              // gets the state of the devices
	Page   func(offset int64, page []byte) error // gets each page of the RAM, in ascending order
}

// Save freezes the VM of a suspended sandbox and writes its state, which a sandbox with Settings.Resumed can start from. It searches the
// memory for every secret value of the run, in every encoding that the redactor knows; if it finds one, it returns ErrHoldsSecret,
// and the caller must discard what has been written. After an error the VM runs again, so that Continue can be called. Otherwise it stays frozen.
func (p Suspension) Save(ctx context.Context, to State) error {
	s := p.Sandbox
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.over || !s.suspended.Load() {
		return errors.New("the sandbox is not suspended")
	}
	saver, ok := s.vm.(vmm.Saver)
	if !ok {
		return fmt.Errorf("%w: %s", ErrNotSaved, s.warm.machine.Driver.Tier())
	}
	return p.save(ctx, "its processes continue from it", func() error {
		if err := saver.Save(ctx, to.Device); err != nil {
			return err
		}
		return image{s.vm, s.credentials.in}.pages(ctx, s.warm.machine.Memory, to.Page)
	})
}

// SaveFiles freezes the VM of a suspended sandbox, so that its scratch disk can be copied: the guest has written everything to it. After an
// error the VM runs again.
func (p Suspension) SaveFiles(ctx context.Context) error {
	s := p.Sandbox
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.over || !s.suspended.Load() {
		return errors.New("the sandbox is not suspended")
	}
	return p.save(ctx, "only its files are kept", func() error { return nil })
}

// save records the snapshot that write makes while the VM is frozen. The caller holds turn.
func (p Suspension) save(ctx context.Context, reason string, write func() error) error {
	s := p.Sandbox
	if err := s.holds.pause(ctx, saveHold); err != nil {
		return err
	}
	err := write()
	op := audit.VM{Op: "snapshot", Reason: reason}
	if err != nil {
		op.Reason = err.Error()
	}
	err = errors.Join(err, s.post(ctx, op))
	if err != nil {
		err = errors.Join(err, s.holds.release(context.WithoutCancel(ctx), saveHold))
	}
	return err
}

// pages calls page with the pages of the memory, and searches it for secret values.
func (m image) pages(ctx context.Context, size int64, page func(int64, []byte) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := m.write(ctx, w)
		w.CloseWithError(err)
		written <- err
	}()
	err := vmm.ReadCore(r, size, page)
	r.CloseWithError(err)
	if failed := <-written; failed != nil && !errors.Is(err, failed) {
		return errors.Join(failed, err)
	}
	return err
}

// Resumed describes a sandbox that continues from a saved state.
type Resumed struct {
	MachineID, Hostname string   // that its guest has; empty: it is a fork and gets new ones before its processes run
	Steps               []string // the names of all earlier steps of its session
}

// Identity returns what a sandbox that continues from the saved state needs.
func (p Suspension) Identity() Resumed {
	s := p.Sandbox
	s.turn.Lock()
	defer s.turn.Unlock()
	return Resumed{MachineID: s.identity.MachineID, Hostname: s.identity.Hostname, Steps: s.steps.names()}
}
