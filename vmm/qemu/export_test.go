package qemu

import "github.com/custody-project/custody/vmm/confine"

// For tests that start VMs with package vmtest, which imports this package.
var (
	OffMainThread = confine.OffMainThread
	OpenTap       = openTap
)
