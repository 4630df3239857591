package archive

import (
	"fmt"
	"strings"

	"github.com/custody-project/custody/store"
)

const (
	suffix   = ".snapshot"
	probes   = "probe/"
	tenantOf = "tenant-" // before a tenant's name, which can be empty, "." or ".."
)

// Name returns the name of the object of a run: tenant-TENANT/RUN.snapshot.
func Name(tenant, run string) (string, error) {
	dir, err := tenantPrefix(tenant)
	if err != nil {
		return "", err
	}
	if !store.ValidRun(run) {
		return "", fmt.Errorf("%.80q is not the ID of a run", run)
	}
	return dir + run + suffix, nil
}

func tenantPrefix(tenant string) (string, error) {
	if len(tenant) > store.MaxName || tenant != "" && !store.ValidRun("t"+tenant) {
		return "", fmt.Errorf("%.80q is not the name of a tenant", tenant)
	}
	return tenantOf + tenant + "/", nil
}

// runOf returns the run of an object below a tenant's prefix.
func runOf(name, prefix string) (string, bool) {
	rest, inside := strings.CutPrefix(name, prefix)
	run, found := strings.CutSuffix(rest, suffix)
	return run, inside && found && store.ValidRun(run)
}
