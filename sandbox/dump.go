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

// ErrHoldsSecret means that a memory image was not made because it would hold a credential.
var ErrHoldsSecret = errors.New("the sandbox's memory holds a credential")

// dumpHold freezes the VM while its memory is written.
const dumpHold = "its memory is being written"

// Dump writes the VM's memory to w, as an ELF core file, and lets the VM go on. All
// credentials are revoked and removed first. What is written is searched for every
// value of the run, in every encoding that the redactor knows: with
// ErrHoldsSecret there was one, and what w has got so far must be thrown away.
// With endStep the step under way is killed first, and whatever its processes held with it.
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
		if err := s.endStep(ctx); err != nil {
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

// drain has the guest free what ended steps left, unless it is frozen. An image is wanted
// of a guest that does not answer, too; the search decides whether it may be written.
func (s *Sandbox) drain(ctx context.Context) {
	if s.holds.frozen() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	s.guest.Drain(ctx)
}

func (s *Sandbox) endStep(ctx context.Context) error {
	proc := s.running.current()
	if proc == nil {
		return nil
	}
	if err := proc.Signal(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	_, err := proc.Wait(ctx)
	return err
}

// image is the memory of a VM.
type image struct {
	vm   vmm.VM
	find func(piece []byte) []string // names the secrets that have a value in a piece of it
}

// write copies the memory to w while it looks for values. The machine writes
// all of it in any case: broken off in the middle it could not go on.
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

// What is searched in one piece, and how much of it again with what follows: more
// than the longest form of a value, with the blanks that may be in it.
const (
	searchPiece   = 8 << 20
	searchOverlap = 1 << 20
)

// search copies r to w, searchOverlap bytes behind what it has looked through: of a
// value that is found nothing has been written.
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
