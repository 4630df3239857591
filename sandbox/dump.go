package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm"
)

// ErrHoldsSecret means that no memory image was made, because it would contain a credential.
var ErrHoldsSecret = errors.New("the sandbox's memory contains a credential")

// dumpHold freezes the VM while its memory is written.
const dumpHold = "its memory is being written"

// Dump writes the VM's memory to w, as an ELF core file. The VM is frozen meanwhile. Dump
// first revokes all credentials and removes them from the guest. It searches the memory for every
// secret value of the run, in every encoding that the redactor knows. If it finds one, it returns
// ErrHoldsSecret, and the caller must discard what w has received.
// If endStep is set, Dump first kills the current step, so that its processes' memory is freed.
func (s *Sandbox) Dump(ctx context.Context, w io.Writer, endStep bool) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.over {
		return errors.New("the run is ending")
	}
	if err := s.credentials.disarm(ctx, "a snapshot of the memory"); err != nil {
		return err
	}
	if endStep {
		if err := s.endSteps(ctx); err != nil {
			return err
		}
	}
	s.drain(ctx)
	if err := s.holds.pause(ctx, dumpHold); err != nil {
		return err
	}
	err := image{s.vm, s.credentials.in}.write(ctx, w)
	op := audit.VM{Op: "snapshot", Reason: "memory image"}
	if err != nil {
		op.Reason = err.Error()
	}
	return errors.Join(err, s.post(ctx, op), s.holds.release(context.WithoutCancel(ctx), dumpHold))
}

// drainTimeout is how long the guest may take to free memory before an image of it is written.
const drainTimeout = 10 * time.Second

// drain makes the guest free the memory of ended steps, unless it is frozen. Errors are ignored: the
// memory of a guest that does not answer can be dumped too, and the search still protects credentials.
func (s *Sandbox) drain(ctx context.Context) {
	if s.holds.frozen() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	s.warm.guest().Drain(ctx)
}

// endSteps kills the commands that run.
func (s *Sandbox) endSteps(ctx context.Context) error {
	for _, proc := range s.running.all() {
		if err := proc.Signal(ctx, syscall.SIGKILL); err != nil {
			return err
		}
		if _, err := proc.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// image is the memory of a VM.
type image struct {
	vm   vmm.VM
	find func(piece []byte) []string // returns the names of the secrets whose values are in a piece of it
}

// write copies the memory to w and searches it for secret values. It always reads the
// whole dump, because the machine could not continue after an interrupted one.
func (m image) write(ctx context.Context, w io.Writer) error {
	r, end := io.Pipe()
	var dumping sync.WaitGroup
	dumping.Go(func() { end.CloseWithError(m.vm.Dump(context.WithoutCancel(ctx), end)) })
	defer dumping.Wait()
	err := m.search(ctx, r, w)
	if err != nil {
		io.Copy(io.Discard, r)
	}
	return err
}

// searchPiece is the number of bytes that are searched at a time. The last searchOverlap bytes of each piece are searched
// again with the next piece; they are more than the longest encoding of a value.
const (
	searchPiece   = 8 << 20
	searchOverlap = 1 << 20
)

// search copies r to w. It writes searchOverlap bytes less than it has searched, so that
// no part of a found value has been written.
func (m image) search(ctx context.Context, r io.Reader, w io.Writer) error {
	buf := make([]byte, searchOverlap+searchPiece)
	kept := 0
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := io.ReadFull(r, buf[kept:])
		end := err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return fmt.Errorf("read the memory: %w", err)
		}
		n += kept
		if names := m.find(buf[:n]); len(names) > 0 {
			return fmt.Errorf("%w: %s; a step has it in its own memory or files: let it end, or end it (custody snapshot --end-step)", ErrHoldsSecret, strings.Join(names, ", "))
		}
		kept = searchOverlap
		if end {
			kept = 0
		}
		if _, err := w.Write(buf[:n-kept]); err != nil {
			return fmt.Errorf("write the memory: %w", err)
		}
		if end {
			return nil
		}
		copy(buf, buf[n-kept:n])
	}
}
