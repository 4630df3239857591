package hostd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/worker"
)

// The parts of a stored state. One without memory and devices has only the files of the sandbox, and partFiles is why.
const (
	partMemory  = "memory"
	partDevices = "devices"
	partDisk    = "disk"
	partFiles   = "files"
	partMachine = "machine" // see kindOf
	partSandbox = "sandbox" // the description of the sandbox by the service, in JSON
)

// Base is what the state of a machine is stored relative to.
type Base struct {
	ID           string   // see state.Binding
	Memory, Disk *os.File // of the template's snapshot; nil: zeros
}

// Close closes the files.
func (b Base) Close() error {
	var errs []error
	for _, f := range []*os.File{b.Memory, b.Disk} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// saving is a state that is being stored.
type saving struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// stop ends it and waits for the end.
func (s *saving) stop() {
	s.cancel()
	<-s.done
}

// Save implements worker.Sandbox. End ends it with an error.
func (s *Sandbox) Save(ctx context.Context, keep time.Duration, about []byte) (worker.Saved, error) {
	if len(about) > worker.MaxAbout {
		return worker.Saved{}, fmt.Errorf("the description of the sandbox has %d bytes: at most %d are stored", len(about), worker.MaxAbout)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done, meta, err := s.beginSave(cancel, keep)
	if err != nil {
		return worker.Saved{}, err
	}
	defer close(done)
	saved, err := s.save(ctx, meta, about)
	if err != nil {
		return worker.Saved{}, fmt.Errorf("store the state of the sandbox: %w", err)
	}
	return saved, nil
}

// beginSave returns what the state is bound to. The caller closes done.
func (s *Sandbox) beginSave(cancel context.CancelFunc, keep time.Duration) (done chan struct{}, m state.Meta, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	switch {
	case s.phase != running || s.process == nil:
		return nil, m, errors.New("no run has the sandbox")
	case s.parts.States == nil:
		return nil, m, errors.New("this host stores no states of sandboxes")
	}
	if s.saving != nil {
		select {
		case <-s.saving.done:
		default:
			return nil, m, errors.New("the state is being stored")
		}
	}
	s.saving = &saving{cancel, make(chan struct{})}
	facts := s.identity.Facts
	return s.saving.done, state.Meta{Keep: keep, Binding: state.Binding{
		Run: s.identity.Run, Tenant: facts.Tenant, Project: s.parts.Project, Template: facts.TemplateDigest, Base: s.parts.Base.ID,
		Policy: s.allowed().Digest(), Tier: s.parts.Driver.Tier(), Host: s.parts.Host,
	}}, nil
}

// save stores the state, or only the files if the memory contains a credential, or cannot be saved.
func (s *Sandbox) save(ctx context.Context, m state.Meta, about []byte) (saved worker.Saved, err error) {
	err = s.write(ctx, m, about, &saved, s.writeMemory)
	if errors.Is(err, sandbox.ErrHoldsSecret) || errors.Is(err, sandbox.ErrNotSaved) {
		saved.Files = err.Error()
		err = s.write(ctx, m, about, &saved, func(ctx context.Context, w *state.Writer) error {
			if err := w.Part(partFiles, strings.NewReader(saved.Files)); err != nil {
				return err
			}
			return worker.SaveFiles(ctx, s.process.Conn)
		})
	}
	return saved, err
}

// write stores the state whose memory and devices are written by machine, which freezes the machine.
func (s *Sandbox) write(ctx context.Context, m state.Meta, about []byte, saved *worker.Saved, machine func(context.Context, *state.Writer) error) error {
	states, err := s.parts.States()
	if err != nil {
		return err
	}
	w, err := states.Create(ctx, m)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := w.Part(partMachine, strings.NewReader(s.parts.Kind)); err != nil {
		return err
	}
	if about != nil {
		if err := w.Part(partSandbox, bytes.NewReader(about)); err != nil {
			return err
		}
	}
	if err := machine(ctx, w); err != nil {
		return err
	}
	if err := w.File(ctx, partDisk, s.parts.Machine.Scratch, s.parts.Base.Disk); err != nil {
		return err
	}
	info, err := w.Commit(ctx)
	saved.Size, saved.Created, saved.Expires = info.Size, info.Created, info.Expires
	return err
}

// writeMemory writes the memory and the devices.
func (s *Sandbox) writeMemory(ctx context.Context, w *state.Writer) error {
	m := s.parts.Machine
	pages, err := w.Pages(partMemory, m.Memory, reader(s.parts.Base.Memory))
	if err != nil {
		return err
	}
	device, err := memfd(partDevices)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := worker.Save(ctx, s.process.Conn, device, m.Memory, pages.Page); err != nil {
		return err
	}
	return w.Part(partDevices, reader(device))
}

// memfd returns an empty file in memory.
func memfd(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Continued implements worker.Sandbox.
func (s *Sandbox) Continued(context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	from := s.parts.From
	if s.phase != running || from == nil {
		return errors.New("no run continues in the sandbox")
	}
	s.parts.From = nil
	if s.parts.Fork {
		return from.Release()
	}
	return from.Consume()
}
