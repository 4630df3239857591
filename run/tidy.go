package run

import (
	"context"
	"errors"
	"os"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/vmm/confine"
)

// Tidy closes the records of runs whose process died, revokes their credentials and removes the control groups of their
// VMs. It continues after an error, and returns all errors.
func Tidy(ctx context.Context, h *host.Host, notice func(string)) error {
	err := errors.Join(h.Tidy(ctx, notice), revokeLeft(ctx, h), registered(h).Tidy())
	if os.Geteuid() != 0 { // only root starts VMs
		return err
	}
	return errors.Join(err, confine.Sweep())
}
