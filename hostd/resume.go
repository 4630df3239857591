package hostd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/worker"
)

// Resume is the stored state that a sandbox continues from.
type Resume struct {
	Run            string // whose state it is
	Tenant, Policy string // as whose, and with which policy (digest) the new run continues
	Fork           bool   // the state stays, and other sandboxes can continue from it concurrently
}

// origin adds what the machine of the parts starts from, and its disk.
func (h *Host) origin(ctx context.Context, p *Parts, t template.Template, d sandboxDriver, s Spec, e Events) (image vmm.Image, disk *os.File, err error) {
	p.States = h.states
	p.Project = s.Project
	shape := s.shape()
	p.Kind = kindOf(d, shape)
	if s.Resume == nil {
		if image, disk, err = h.disks(ctx, d, t, s, e); err != nil {
			return image, nil, err
		}
		p.Base, err = baseOf(t, d, shape, image)
		return image, disk, err
	}
	if s.Cold || !d.Snapshots() {
		return image, nil, fmt.Errorf("a sandbox of the isolation %s cannot continue from a stored state", d.Tier())
	}
	original, err := t.Image(ctx, d, shape)
	if err != nil {
		return image, nil, err
	}
	if p.Base, err = baseOf(t, d, shape, original); err != nil {
		return image, nil, errors.Join(err, original.Close())
	}
	return h.continued(ctx, p, t, s, original)
}

// kindOf identifies the monitor, the processor and the shape of a machine: the state of another kind of machine cannot be loaded. A state of this host has
// them in its base, too; one that was fetched from an archive has no base.
func kindOf(d sandboxDriver, s template.Shape) string {
	return fmt.Sprintf("%s\n%d CPUs\n%d bytes of memory\n%d bytes of disk\n", d.Fingerprint(), s.CPUs, s.Memory, s.Disk)
}

// maxKind bounds the part with the kind of a machine in bytes.
const maxKind = 4 << 10

// checkKind returns an error if a stored state is of another kind of machine.
func checkKind(from *state.Snapshot, want string) error {
	kind, err := text(from, partMachine, maxKind)
	if errors.Is(err, state.ErrNoPart) || err == nil && kind != want {
		return &state.BoundError{Run: from.Run, What: state.BoundBase}
	}
	return err
}

// text returns a part of at most limit bytes.
func text(from *state.Snapshot, name string, limit int64) (string, error) {
	r, size, err := from.Part(name)
	if err != nil {
		return "", err
	}
	if size > limit {
		return "", fmt.Errorf("part %s of run %s has %d bytes: at most %d are accepted", name, from.Run, size, limit)
	}
	b, err := io.ReadAll(io.LimitReader(r, limit))
	return string(b), err
}

// shape returns that of the machine.
func (s Spec) shape() template.Shape {
	return template.Shape{CPUs: s.CPUs, Memory: s.Memory, Disk: s.Disk}
}

// baseOf returns what states of a machine are relative to that starts from an image. It duplicates the image's files.
func baseOf(t template.Template, d sandboxDriver, s template.Shape, image vmm.Image) (b Base, err error) {
	if image.Disk == nil { // a cold boot
		b.ID = fmt.Sprintf("booted, %s, %d CPUs, %d bytes of memory, %d of disk", d.Fingerprint(), s.CPUs, s.Memory, s.Disk)
		return b, nil
	}
	if b.ID, err = t.SnapshotDigest(d, s); err != nil {
		return b, err
	}
	if b.Memory, err = duplicate(image.Memory); err != nil {
		return b, err
	}
	b.Disk, err = duplicate(image.Disk)
	return b, err
}

func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	failed := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// continued opens the stored state and returns an image and a disk with its contents. It owns original.
func (h *Host) continued(ctx context.Context, p *Parts, t template.Template, s Spec, original vmm.Image) (image vmm.Image, disk *os.File, err error) {
	states, err := p.States()
	if err != nil {
		return image, nil, errors.Join(err, original.Close())
	}
	open := states.Claim
	if s.Resume.Fork {
		open = states.Share
	}
	r := s.Resume
	p.Fork = r.Fork
	p.From, err = open(ctx, state.Binding{
		Run: r.Run, Tenant: r.Tenant, Project: s.Project, Template: t.Digest(), Base: p.Base.ID, Policy: r.Policy, Tier: p.Driver.Tier(), Host: p.Host,
	})
	if err == nil {
		err = checkKind(p.From, p.Kind)
	}
	if err != nil {
		return image, nil, errors.Join(err, original.Close())
	}
	if p.From.Has(partMemory) {
		image, err = restored(ctx, p.From, original)
	} else {
		image, err = coldImage(ctx, t, s.shape())
		err = errors.Join(err, original.Close())
	}
	if err != nil {
		return image, nil, err
	}
	if disk, err = os.OpenFile(h.Home.Dir, unix.O_TMPFILE|os.O_RDWR, 0o600); err != nil {
		return image, nil, errors.Join(err, image.Close())
	}
	if err := p.From.File(ctx, partDisk, disk, p.Base.Disk); err != nil {
		return image, nil, errors.Join(err, image.Close(), disk.Close())
	}
	return image, disk, nil
}

// restored returns an image with the memory and the devices of a stored state. It owns original.
func restored(ctx context.Context, from *state.Snapshot, original vmm.Image) (image vmm.Image, err error) {
	base := original.Memory
	image = original
	image.Memory, image.State, image.Disk, image.Own = nil, nil, nil, true
	defer func() {
		err = errors.Join(err, base.Close(), original.State.Close(), original.Disk.Close())
		if err != nil {
			err = errors.Join(err, image.Close())
		}
	}()
	if image.Memory, err = memfd(partMemory); err != nil {
		return image, err
	}
	if err := from.File(ctx, partMemory, image.Memory, base); err != nil {
		return image, err
	}
	if image.State, err = memfd(partDevices); err != nil {
		return image, err
	}
	devices, _, err := from.Part(partDevices)
	if err != nil {
		return image, err
	}
	_, err = io.Copy(image.State, devices)
	return image, err
}

// reader returns a reader of a file from its beginning that does not move its offset; nil if f is nil.
func reader(f *os.File) interface {
	io.Reader
	io.ReaderAt
} {
	if f == nil {
		return nil
	}
	return io.NewSectionReader(f, 0, 1<<62)
}

// fits returns an error if the sandbox continues from a state of another tenant or policy than the run's.
func (p *Parts) fits(r worker.Identity, policy string) error {
	if p.From == nil {
		return nil
	}
	if r.Facts.Tenant != p.From.Tenant {
		return &state.BoundError{Run: p.From.Run, What: state.BoundTenant}
	}
	if policy != p.From.Policy {
		return &state.BoundError{Run: p.From.Run, What: state.BoundPolicy}
	}
	return nil
}
