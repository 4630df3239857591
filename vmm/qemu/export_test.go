package qemu

// For tests that start VMs with package vmtest, which imports this package.
var (
	OffMainThread = offMainThread
	OpenTap       = openTap
)
