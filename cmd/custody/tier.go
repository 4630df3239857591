package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/vmm/template"
)

// tierNotes say what the isolation of a tier is worth.
var tierNotes = map[string]string{
	"qemu-kvm": "hardware virtualisation; QEMU is confined as if it were hostile",
	"qemu-tcg": "software emulation: QEMU gives no security promise for it; for evaluation, development and CI",
}

// driver returns the best driver that works on this host, and what was found about KVM.
func (a *app) driver(h *home.Home, t template.Template) (*qemu.Driver, qemu.Verdict, error) {
	if err := needRoot(); err != nil {
		return nil, qemu.Verdict{}, err
	}
	if _, err := qemu.New(false); err != nil {
		return nil, qemu.Verdict{}, err
	}
	verdict, err := qemu.KVM(a.ctx, h.ProbeFile(), func(ctx context.Context, d *qemu.Driver) error {
		return probe(ctx, t, d)
	})
	if err != nil {
		return nil, verdict, err
	}
	d, err := qemu.New(verdict.Works)
	return d, verdict, err
}

// probe boots the template once and waits until its guest is ready. Without a
// scratch disk that is as soon as it has booted.
func probe(ctx context.Context, t template.Template, d vmm.Driver) (err error) {
	shape := defaultShape()
	img, err := coldImage(t, shape)
	if err != nil {
		return err
	}
	defer img.Close()
	vm, err := d.Start(ctx, vmm.Machine{ID: "probe", Image: img, CPUs: shape.CPUs, Memory: shape.Memory})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Destroy(context.WithoutCancel(ctx))) }()
	return channel.AwaitReady(ctx, vm.Channel())
}

// coldImage returns an image that boots. Its memory has no name, so that nothing
// stays of it however this process ends.
func coldImage(t template.Template, s template.Shape) (vmm.Image, error) {
	fd, err := unix.MemfdCreate("custody-memory", unix.MFD_CLOEXEC)
	if err != nil {
		return vmm.Image{}, fmt.Errorf("memory of the vm: %w", err)
	}
	return t.Cold(os.NewFile(uintptr(fd), "custody-memory"), s)
}

func defaultShape() template.Shape { return shapeOf(project.Default()) }

func shapeOf(p project.File) template.Shape {
	return template.Shape{CPUs: p.Limits.CPUs, Memory: p.Limits.Memory, Disk: p.Limits.Disk}
}
