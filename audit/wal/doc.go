// Package wal is the record on disk: one directory a run, written by one
// process, fsynced before anything is acknowledged.
//
//	RUN/
//	  lock                            flock held while a process writes the run
//	  00000000000000000001.seg        records, named by their first seq
//	  00000000000000000001.leaves     the segment's leaf hashes, from the Sealer
//	  00000000000000000001.manifest   the signed summary, from the Sealer; its presence means sealed
//	  00000000000000000873.seg        the segment that is being written has neither
//	  00000000000000000873.4096.torn  bytes that recovery cut at that offset, if any
//
// A segment is a sequence of frames. Integers are little-endian.
//
//	0       4        8        12     13           29
//	+-------+--------+--------+------+------------+---------------------+
//	| magic | length | crc32c | 0x00 | salt       | record              |
//	| CWF1  | uint32 | uint32 |      | 16 random  | length bytes, JSON  |
//	+-------+--------+--------+------+------------+---------------------+
//	                          |<- the leaf: SHA-256 over all of this -->|
//
// The checksum (CRC-32C, polynomial of RFC 3720 appendix B.4) covers length and
// everything after the checksum; it detects accidental damage, not attacks. The zero byte
// is RFC 6962's prefix of a leaf (section 2.1), so that the file has the preimage of the leaf
// hash as it is hashed. The salt prevents that a leaf hash
// reveals an erased record.
//
// A record that was erased (see Erase) leaves a frame of the same length with another magic, its leaf, and none of its
// contents. The rest is zeros.
//
//	0       4        8        12     44       52       53
//	+-------+--------+--------+------+--------+--------+-----+----------+
//	| magic | length | crc32c | leaf | seq    | n      | run | 0, 0 ... |
//	| CWE1  | uint32 | uint32 | 32   | uint64 | 1 byte | n   |          |
//	+-------+--------+--------+------+--------+--------+-----+----------+
//
// The record is the sealed object with its head prepended. It is never
// re-encoded:
//
//	{"v":1,"run":"r-...","seq":17,  +  "time":"...","kind":"exec",...}
//
// # Life of a segment
//
//	(none) --first record--> active --SegmentAge, SegmentBytes, Rotate, Close--> sealed
//	                           |
//	                           +--process died--> Recover cuts the torn tail --> active
//
// # When writing fails
//
//	         write or fsync fails,
//	         or Room fails: OnStall
//	writing ------------------------------> stalled --+ every 100 ms: go back to the
//	   ^                                       |   ^  | last durable offset, write all
//	   +---------------------------------------+   +--+ that is not durable again
//	         it succeeds: OnResume
//
// In strict mode Append blocks when the buffer is full, and Sync until the record
// is durable: nothing is lost, nothing is written twice. In degrade mode events
// beyond the buffer are dropped; each takes a seq, and when the disk accepts records again a gap record names
// the first and the last of them.
package wal
