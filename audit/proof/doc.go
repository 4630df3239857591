// Package proof makes a run's record verifiable by an outsider with
// only the files and a public key.
//
// Each segment of package wal is one RFC 6962 Merkle tree (package merkle). Its manifest is a signed note (package
// statement) that has the tree's root, and in prev the SHA-256 of the whole signed note before:
//
//	manifest 0 <--prev-- manifest 1 <--prev-- manifest 2 (closing: sealed)
//	    | root               | root               | root
//	leaf hashes          leaf hashes          leaf hashes
//	    |                    |                    |
//	records 1..873       records 874..1500    records 1501..1502
//
// The leaf hashes are in a separate file beside the segment, 32 bytes
// each. Verify checks them against the signed root first, then each record against
// its leaf, so that a finding names the record and not just the segment.
package proof
