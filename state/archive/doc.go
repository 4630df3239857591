// Package archive keeps the snapshots of paused sandboxes in object storage, where other hosts of the same tier can fetch them.
// docs/state.md describes what is promised.
//
// An object is the export of a snapshot (package state), which is encrypted with a key that the hosts share, then the SHA-256 of it, 32 bytes.
// The storage accepts each object completely or not at all, and only if its name is free.
//
// The caller removes the local snapshot when Put has returned without an error, and the archived one when the fetched one was resumed:
//
//	snap, err := store.Claim(ctx, binding)
//	...
//	receipt, err := a.Put(ctx, snap, deadline, bases)
//	if err != nil {
//		return errors.Join(err, snap.Release())
//	}
//	return snap.Consume()
package archive
