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
//	DIR.checkpoints         every published checkpoint: see below
//	DIR.entries             an index of what the entries are about, rebuilt if it is lost
//
// There is no daemon. Each process opens the log, and several may have it open concurrently:
//
//	Add      append.lock -> Tessera writes bundle, tiles, tree state (each synced) -> index
//	Publish  publish.lock -> tree state and tiles agree -> they extend the last checkpoint
//	         -> sign -> witnesses -> DIR/checkpoint -> DIR.checkpoints -> remove old partial tiles
//
// Tessera excludes other processes by record locks (fcntl), which do not exclude two openers in one process; hence
// append.lock and publish.lock. Publish does not use Tessera's publication, which runs on a timer, at most every 100 ms:
// it immediately signs what is integrated, with Tessera's own publisher.
//
// # What is detected
//
// A published checkpoint is kept in DIR.checkpoints, so that a directory that was reset to an older state, a replayed
// checkpoint and a rewritten tree are detected, each with a separate error: ErrRolledBack, ErrForked, ErrTilesAltered,
// ErrEntriesAltered, ErrMissing, ErrForged. An attacker who can write both the directory and DIR.checkpoints can
// roll both back. A party with a later checkpoint detects that: a witness or the owner of a bundle, see Reader.Holds.
//
// DIR.checkpoints is bounded: when it has grown to 8 MiB, every second checkpoint of its older half is
// removed. The last thousands always stay, and the tree proves those in between.
package hostlog
