package hostd

import (
	"context"
	"errors"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/worker"
)

// Warm makes the worker start the machine and rehearse, before the sandbox is given to a run. After an error the sandbox can only be closed.
func (s *Sandbox) Warm(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.phase != waiting || s.process == nil {
		return errors.New("the sandbox has been warmed up, or has had a run")
	}
	m := s.parts.Machine
	machine := worker.Machine{ID: m.ID, Tier: s.parts.Driver.Tier(), CPUs: m.CPUs, Memory: m.Memory, DiskRate: m.DiskRate, NetworkRate: m.NetworkRate}
	if m.Scratch != nil {
		info, err := m.Scratch.Stat()
		if err != nil {
			return err
		}
		machine.ScratchSize = info.Size()
	}
	s.phase = ended // unless it succeeds
	if err := worker.Warm(ctx, s.process.Conn, machine, m.Image.State); err != nil {
		return err
	}
	s.phase = warm
	return nil
}

// Check returns an error if the sandbox is not warm and fit for use.
func (s *Sandbox) Check(ctx context.Context) error {
	p, err := s.warmed()
	if err != nil {
		return err
	}
	return worker.Check(ctx, p.Conn)
}

// Memory returns what the worker and the machine of a warm sandbox use, in bytes; 0 if it is not known.
func (s *Sandbox) Memory() int64 {
	s.changing.Lock()
	defer s.changing.Unlock()
	machine, ok := s.machine.(interface{ UsedMemory() (int64, error) })
	if s.phase != warm || s.process == nil || !ok {
		return 0
	}
	a, err1 := s.process.UsedMemory()
	b, err2 := machine.UsedMemory()
	if err1 != nil || err2 != nil {
		return 0
	}
	return a + b
}

// Done is closed when the worker of a warm sandbox has ended, which ends with its machine; closed already if the sandbox is not warm.
func (s *Sandbox) Done() <-chan struct{} {
	p, err := s.warmed()
	if err != nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return p.Done()
}

// warmed returns the worker of a warm sandbox.
func (s *Sandbox) warmed() (*privsep.Process, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.phase != warm || s.process == nil {
		return nil, errors.New("the sandbox is not warm")
	}
	return s.process, nil
}
