package doctor

import (
	"context"
	"slices"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/vmm/template"
)

// Checks check a host and its state.
type Checks struct {
	Host      *host.Host
	Templates template.Store
	Notice    func(string) // receives progress messages of long checks
}

// All returns the findings about the machine, the isolation tier of runs, Vault if the environment names one, and the storage and
// delivery of records.
func (c Checks) All(ctx context.Context) []Finding {
	return slices.Concat(machine(ctx, c.Host.Dir), c.isolation(ctx), c.vault(ctx), c.record(ctx))
}
