package firecracker

import (
	"context"
	"errors"

	"github.com/custody-project/custody/vmm"
)

// BootTracked boots a machine that can be saved with SaveTo.
func BootTracked(ctx context.Context, d *Driver, m vmm.Machine) (vmm.VM, error) {
	p, err := d.spawn(m)
	if err != nil {
		return nil, err
	}
	v := newVM(p, shapeOf(m), nil)
	if err := errors.Join(v.awaitAPI(ctx), v.boot(ctx, true)); err != nil {
		return nil, errors.Join(v.addCause(err), v.Destroy(context.WithoutCancel(ctx)))
	}
	return v, nil
}

// SaveMemory writes the memory of a frozen machine to the file that it was started with: the whole, or what changed since.
func SaveMemory(ctx context.Context, m vmm.VM, kind string) error {
	slow := *m.(*vm).api
	slow.limit = saveTimeout
	return slow.put(ctx, "/snapshot/create", snapshotCreate{"/" + newState, "/" + memoryFile, kind})
}

// PID is the process of a machine's Firecracker.
func PID(ctx context.Context, m vmm.VM) (int, error) { return m.(*vm).process.(*spawned).pid(ctx) }
