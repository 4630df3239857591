package run

import (
	"fmt"
	"strings"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/vmm/template"
)

// RequiredTier returns the tier that the host, the project or the user (flag) requires, or "" if none does. It returns an
// error if they require different tiers.
func RequiredTier(flag string, p project.File, h *host.Host) (string, error) {
	var tiers, who []string
	for _, r := range []struct{ tier, who string }{
		{h.Config().Isolation.Require, "isolation.require in " + host.ConfigFile},
		{p.Isolation, "isolation in " + project.Name},
		{flag, "--isolation"},
	} {
		if r.tier == "" {
			continue
		}
		tiers, who = append(tiers, r.tier), append(who, r.who+" requires "+r.tier)
	}
	for _, t := range tiers {
		if t != tiers[0] {
			return "", fmt.Errorf("the isolation is contradictory: %s", strings.Join(who, ", "))
		}
	}
	if len(tiers) == 0 {
		return "", nil
	}
	return tiers[0], nil
}

// Shape is the size of the machine that a project asks for.
func Shape(p project.File) template.Shape {
	return template.Shape{CPUs: p.Limits.CPUs, Memory: p.Limits.Memory, Disk: p.Limits.Disk}
}
