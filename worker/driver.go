package worker

import (
	"fmt"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/firecracker"
	"github.com/custody-project/custody/vmm/gvisor"
	"github.com/custody-project/custody/vmm/qemu"
)

// remoteDriver returns the driver of a tier for the machine of a server at the other end of a connection.
func remoteDriver(tier string, c *privsep.Conn) (vmm.Driver, error) {
	switch tier {
	case vmm.QEMUKVM, vmm.QEMUTCG:
		return qemu.NewRemote(c, tier == vmm.QEMUKVM), nil
	case vmm.GVisor:
		return gvisor.NewRemote(c), nil
	case vmm.Firecracker:
		return firecracker.NewRemote(c), nil
	}
	return nil, fmt.Errorf("unknown isolation %q", tier)
}
