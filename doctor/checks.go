package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/custody-project/custody/doctor/remedy"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project/registry"
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
	return slices.Concat(machine(ctx, c.Host.Dir), c.isolation(ctx), c.vault(ctx), c.projects(), c.record(ctx))
}

// projects checks the registered projects: that they are valid, have the bytes that were registered, and only an administrator can change them.
func (c Checks) projects() (found []Finding) {
	all, problems := registry.Registry{Dir: c.Host.Projects()}.Check()
	for _, err := range problems {
		found = append(found, Finding{"projects", Missing, remedy.Text(err), remedy.Of(err)})
	}
	if len(found) > 0 {
		return found
	}
	names := map[string]bool{}
	for _, v := range all {
		names[v.Project] = true
	}
	return []Finding{{"projects", OK, fmt.Sprintf("%d registered, in %d versions", len(names), len(all)), ""}}
}
