// Package hostlog is the host-wide log of manifests: one Merkle tree a host, kept by
// Tessera's POSIX driver in the layout of C2SP tlog-tiles, with checkpoints in the
// format of C2SP tlog-checkpoint, cosigned by witnesses (C2SP tlog-witness) if there are any.
//
//	DIR/
//	  checkpoint            the last published one
//	  tile/<level>/...      hashes, tile/entries/... what was added
//	  .state/               Tessera's own: what is integrated and not yet published
//	  append.lock           flock: held around each Add
//	  publish.lock          flock: held around each Publish
//	DIR.checkpoints         every published checkpoint, beside the directory: see below
//	DIR.entries             an index of what the entries are about, made again if it is lost
//
// There is no daemon. Each process opens the log for its own life, and several may have it open concurrently:
//
//	Add      append.lock -> Tessera writes bundle, tiles, tree state (each synced) -> index
//	Publish  publish.lock -> tree state and tiles agree -> they extend the last checkpoint
//	         -> sign -> witnesses -> DIR/checkpoint -> DIR.checkpoints -> old partial tiles go
//
// Tessera excludes other processes by record locks (fcntl), which mean nothing between two
// openers in one process; hence the locks of our own. Its publication, at most every 100 ms and
// on a timer, is not used: Publish signs what is integrated as soon as it is asked, with
// Tessera's own publisher.
//
// # What is found
//
// A published checkpoint is kept in DIR.checkpoints, so that a directory that went back to an older state, a replayed
// checkpoint and a rewritten tree get an error of their own: ErrRolledBack, ErrForked, ErrTilesAltered,
// ErrEntriesAltered, ErrMissing, ErrForged. An attacker who can write both the directory and the file beside it can
// roll both back; a party that has a later checkpoint detects that: a witness, the owner of a bundle, see Reader.Holds.
//
// DIR.checkpoints is bounded: when it has grown to 8 MiB, every second one of its older half is
// left out. The last thousands are always there, and the tree proves the ones between.
package hostlog
