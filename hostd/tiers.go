package hostd

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/firecracker"
	"github.com/custody-project/custody/vmm/gvisor"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/tier"
)

// TierCache is the file with the results of this host's probes, for all homes on it.
const TierCache = "/run/custody/tiers.json"

// Tiers returns the isolation tiers, best first, with the programs that the host's settings name.
func Tiers(s host.Isolation) []tier.Candidate {
	driver := func(kvm bool) func() (tier.Driver, error) {
		return func() (tier.Driver, error) { return qemu.New(kvm) }
	}
	return []tier.Candidate{
		{Tier: vmm.Firecracker, New: func() (tier.Driver, error) {
			if s.Firecracker == "" && s.Jailer == "" {
				return nil, fmt.Errorf("%w: isolation.firecracker and isolation.jailer in %s name no programs", tier.ErrUnset, host.ConfigFile)
			}
			return firecracker.New(context.Background(), firecracker.Paths{Firecracker: s.Firecracker, Jailer: s.Jailer})
		}, Probe: true, Note: "hardware virtualization; Firecracker, in its jailer, has few devices and is confined as if it were hostile"},
		{Tier: vmm.QEMUKVM, New: driver(true), Probe: true, Note: "hardware virtualization; QEMU is confined as if it were hostile"},
		{Tier: vmm.GVisor, New: func() (tier.Driver, error) { return gvisor.New(s.Runsc) }, Probe: true,
			Note: "a kernel in user space answers the workload's system calls; the host observes; no hardware virtualization"},
		{Tier: vmm.QEMUTCG, New: driver(false), Note: "software emulation: QEMU gives no security promise for it; for evaluation, development and CI"},
	}
}

// TierPicker returns the picker of the isolation tier for runs that start from a template.
func TierPicker(h *host.Host, t template.Template, notice func(string)) tier.Picker {
	return tier.Picker{
		Candidates: Tiers(h.Config().Isolation), Cache: TierCache, Limit: time.Duration(h.Config().Isolation.Probe), Image: t.Digest(), Notice: notice,
		Boot: func(ctx context.Context, d tier.Driver) (vmm.VM, error) { return boot(ctx, t, d) },
	}
}

// boot boots the template. Without a scratch disk its guest is ready as soon as it has booted.
func boot(ctx context.Context, t template.Template, d vmm.Driver) (vmm.VM, error) {
	limits := project.Default().Limits
	shape := template.Shape{CPUs: limits.CPUs, Memory: limits.Memory, Disk: limits.Disk}
	img, err := coldImage(ctx, t, shape)
	if err != nil {
		return nil, err
	}
	defer img.Close()
	return d.Start(ctx, vmm.Machine{ID: "probe", Image: img, CPUs: shape.CPUs, Memory: shape.Memory})
}

// coldImage returns an image for a cold boot. Its memory is an anonymous file (memfd), which the kernel removes with
// the last process that uses it.
func coldImage(ctx context.Context, t template.Template, s template.Shape) (vmm.Image, error) {
	fd, err := unix.MemfdCreate("custody-memory", unix.MFD_CLOEXEC)
	if err != nil {
		return vmm.Image{}, fmt.Errorf("memory of the vm: %w", err)
	}
	return t.Cold(ctx, os.NewFile(uintptr(fd), "custody-memory"), s)
}
