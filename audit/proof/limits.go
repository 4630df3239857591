package proof

import "github.com/custody-project/custody/audit/proof/archive"

// Files of a bundle that belong neither to the record nor to the log.
const (
	bundleReadme    = "README.txt"
	hostKeyFile     = "host.pub"    // the host's public key, one line
	selectionFile   = "selection"   // the signed statement
	attachmentsFile = "attachments" // the signed statement
	trailerFile     = "trailer"     // the signed statement; the last file
)

const (
	maxBundle  = 64 << 30 // bytes of all files
	maxEntries = 5 * 1_000_000
	maxSmall   = 64 << 10 // bytes of host.pub and of the time stamp

	maxAncestor  = archive.MaxSize // bytes of the bundle of an ancestor
	maxAncestors = 1000
)
