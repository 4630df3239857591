package qemu

// For the tests that start VMs by way of vmtest, which imports this package.
var (
	OffMainThread = offMainThread
	OpenTap       = openTap
)
