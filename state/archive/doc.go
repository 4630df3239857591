// Package archive keeps the snapshots of paused sandboxes in object storage, where other hosts of the same tier can fetch them.
// docs/state.md describes what is promised.
//
// An object is the export of a snapshot (package state), which is encrypted with a key that the hosts share, then the SHA-256 of it, 32 bytes.
// The storage accepts each object completely or not at all, and only if its name is free.
package archive
