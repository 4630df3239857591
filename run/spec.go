package run

import (
	"cmp"

	"github.com/custody-project/custody/hostd"
)

// Spec returns the sandbox that the run needs, without what it continues from.
func (o *Options) Spec() (hostd.Spec, error) {
	p, limits := o.Project, o.Project.Limits
	required, err := RequiredTier(o.Isolation, p, o.Home)
	if err != nil {
		return hostd.Spec{}, err
	}
	s := hostd.Spec{
		Template: cmp.Or(o.Template, p.Template), Tier: required, Cold: o.Cold, CPUs: limits.CPUs, Memory: limits.Memory, Disk: limits.Disk,
		DiskRate: limits.DiskRate, NetworkRate: limits.NetworkRate, HashOver: p.Record.Files.HashOver,
	}
	if o.Base != nil {
		s.Project = o.Base.Project
	}
	return s, nil
}
