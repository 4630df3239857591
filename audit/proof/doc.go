// Package proof makes a run's record something that an outsider can check with
// nothing but the files and a public key.
//
// Each segment of package wal is one RFC 6962 Merkle tree. Its manifest is a
// C2SP signed note (golang.org/x/mod/sumdb/note, Ed25519) over two lines:
//
//	custody manifest v1
//	{"v":1,"run":"r-...","segment":0,"first":1,"last":873,...,"prev":"","root":"..."}
//
//	— custody-host+1a2b3c4d AbCd...
//
// The first line keeps a signature on a manifest from being one on anything
// else. The second is canonical: the encoding that this package makes of it, and
// no other. prev is the SHA-256 of the whole signed note before:
//
//	manifest 0 <--prev-- manifest 1 <--prev-- manifest 2 (closing: sealed)
//	    | root               | root               | root
//	leaf hashes          leaf hashes          leaf hashes
//	    |                    |                    |
//	records 1..873       records 874..1500    records 1501..1502
//
// The leaf hashes stand in a file of their own beside the segment, 32 bytes
// each. They are checked against the signed root first, then each record against
// its leaf, so that a finding names the record and not just the segment.
package proof
