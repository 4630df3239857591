// Package state stores the snapshots of a host's paused sandboxes: encrypted files with a manifest and named parts.
// It knows nothing about machines. docs/state.md describes the format and what is promised.
//
//	          Create            Commit            Claim, Share
//	nothing ---------> written --------> stored <--------------> open
//	   ^                  |                |        Release       | Consume
//	   |  Abort, kill     |                | Delete, Erase,       | (after Claim)
//	   +------------------+----------------+ Sweep, budget        |
//	   +----------------------------------------------------------+
//
// A run has at most one stored snapshot. The flock of its file states who uses it: a Claim has it exclusively, readers
// share it, and what removes a snapshot takes it exclusively first. The kernel releases it when its process ends.
package state
