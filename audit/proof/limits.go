package proof

const (
	maxBundle  = 64 << 30 // bytes of all files
	maxEntries = 5 * 1_000_000
	maxSmall   = 64 << 10 // bytes of host.pub and of the time stamp
)
