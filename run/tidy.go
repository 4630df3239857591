package run

import (
	"context"
	"errors"
	"os"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/vmm/qemu"
)

// Tidy closes the records of runs that died, revokes their credentials and removes what is left of their VMs. It does
// all that it can, and returns the errors of the rest.
func Tidy(ctx context.Context, h *host.Host, notice func(string)) error {
	err := errors.Join(h.Tidy(ctx, notice), revokeLeft(ctx, h))
	if os.Geteuid() != 0 { // then no VM was started from here
		return err
	}
	return errors.Join(err, qemu.Sweep())
}
