package fleet

import (
	"cmp"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/quota"
)

// perProcessor is how many virtual CPUs sandboxes can have for each processor of the host, unless host.yaml says otherwise.
const perProcessor = 16

// Size returns the size of this host for the queue: what is not set is taken from the machine.
func Size(h quota.Host) (quota.Host, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return h, fmt.Errorf("the memory of this host: %w", err)
	}
	h.CPUs = cmp.Or(h.CPUs, int64(runtime.NumCPU())*perProcessor)
	h.Memory = cmp.Or(h.Memory, int64(info.Totalram)*int64(info.Unit))
	return h, nil
}
