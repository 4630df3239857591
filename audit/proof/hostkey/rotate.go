package hostkey

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// Files of a rotation below CUSTODY_HOME/keys, in addition to the key.
const (
	nextFile     = "next.key"  // the new key, until it replaces the old one
	rotationsDir = "rotations" // N.rotation, from 1
	oldDir       = "old"       // NAME+HASH.pub, what verifies the retired keys
)

// Rotate gives the host a new key of the same name. Each step is durable before the next:
//
//	next.key  -->  rotations/N.rotation, signed by the old key  -->  old/NAME+HASH.pub
//	          -->  next.key renamed to host.key  -->  host.pub
//
// The old private key is removed; processes that have loaded it continue to sign with it until
// they end. Rotate returns the signed statement, which the caller must add to the host's log. If it is
// interrupted at any point, the host has a usable key, and another call continues the rotation.
func Rotate(dir string) (stated []byte, err error) {
	return Locked{dir, inClear{}}.Rotate(context.Background())
}

// Rotate implements Source, like the function Rotate for an unencrypted key.
func (f Locked) Rotate(ctx context.Context) (stated []byte, err error) {
	own := func() (Key, error) { return f.Key(ctx) }
	stated, err = f.rotate(ctx, own, time.Now, func(string) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("rotate the host's key: %w", err)
	}
	return stated, nil
}

// TakeOver implements Source.
func (f Locked) TakeOver(ctx context.Context, old Key) (stated []byte, err error) {
	given := func() (Key, error) { return old, nil }
	stated, err = f.rotate(ctx, given, time.Now, func(string) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("take over the host's key: %w", err)
	}
	return stated, nil
}

// rotate calls step before each of its steps; an error of step stops it.
func (f Locked) rotate(ctx context.Context, retiring func() (Key, error), now func() time.Time, step func(name string) error) ([]byte, error) {
	unlock, err := lockDir(ctx, f.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if stated, err := f.finish(); stated != nil || err != nil {
		return stated, err
	}
	old, err := retiring()
	if err != nil {
		return nil, err
	}
	return f.replace(old, now, step)
}

// replace gives the host a successor of old, or continues such a replacement. The caller holds the lock of the directory.
func (f Locked) replace(old Key, now func() time.Time, step func(name string) error) ([]byte, error) {
	if err := step("next"); err != nil {
		return nil, err
	}
	if err := f.create(nextFile, old.Name()); err != nil {
		return nil, err
	}
	next, err := f.load(nextFile)
	if err != nil {
		return nil, err
	}
	if err := step("statement"); err != nil {
		return nil, err
	}
	stated, err := succeed(f.Dir, old, next.Public, now())
	if err != nil {
		return nil, err
	}
	if err := step("rename"); err != nil {
		return nil, err
	}
	if err := os.Rename(f.path(nextFile), f.path(KeyFile)); err != nil {
		return nil, err
	}
	if err := durable.SyncDir(f.Dir); err != nil {
		return nil, err
	}
	if err := step("publish"); err != nil {
		return nil, err
	}
	return stated, Publish(f.Dir, next.Public)
}

// Finish implements Source: it continues after the statement.
func (f Locked) Finish(ctx context.Context) error {
	unlock, err := lockDir(ctx, f.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	if stated, err := f.finish(); stated != nil || err != nil {
		return err
	}
	old, err := f.load(KeyFile)
	if err != nil {
		return err
	}
	retired, err := IsRetired(f.Dir, old.Public)
	if err != nil || !retired {
		return err
	}
	if _, err := f.load(nextFile); err != nil {
		return fmt.Errorf("a rotation of the host's key was stated and not finished, and the new key is missing: restore %s: %w", f.path(nextFile), err)
	}
	if _, err := f.replace(old, time.Now, func(string) error { return nil }); err != nil {
		return fmt.Errorf("finish the rotation of the host's key: %w", err)
	}
	return nil
}

// PublishNext completes a rotation of a key that is not in a file: if the last statement in dir retires the key that
// is published there, it publishes its successor.
func PublishNext(ctx context.Context, dir string) error {
	unlock, err := lockDir(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := Retired(dir)
	if err != nil || len(all) == 0 {
		return err
	}
	public, err := regular.ReadFile(filepath.Join(dir, PublicFile))
	if last := all[len(all)-1]; err == nil && string(public) == last.Old+"\n" {
		err = Publish(dir, last.New)
	}
	return err
}

// IsRetired reports whether a rotation in dir retires the key.
func IsRetired(dir, public string) (bool, error) {
	all, err := Retired(dir)
	return slices.ContainsFunc(all, func(r statement.Rotation) bool { return r.Old == public }), err
}

// finish does the last step of an interrupted rotation.
func (f Locked) finish() ([]byte, error) {
	all, err := ReadRotations(f.Dir)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	last, err := statement.ReadRotation(all[len(all)-1])
	if err != nil {
		return nil, err
	}
	public, err := regular.ReadFile(filepath.Join(f.Dir, PublicFile))
	if err != nil || string(public) == last.New+"\n" {
		return nil, nil // Key reports the error, if there is one
	}
	k, err := f.load(KeyFile)
	if err != nil || last.New != k.Public { // still the old key, which another lock may decrypt
		return nil, nil
	}
	return all[len(all)-1], Publish(f.Dir, k.Public)
}

// Drop removes the private key of a source that stores it in a file, once statements in its directory retire the key.
// For other sources it does nothing. Copies can remain in free disk blocks and in backups.
func Drop(source Source) error {
	if dir, ok := source.(File); ok {
		source = Locked{string(dir), inClear{}}
	}
	f, ok := source.(Locked)
	if !ok {
		return nil
	}
	k, err := f.load(KeyFile)
	if errors.Is(err, errAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	retired, err := Retired(f.Dir)
	if err != nil {
		return err
	}
	for _, r := range retired {
		if r.Old != k.Public {
			continue
		}
		if err := os.Remove(f.path(KeyFile)); err != nil {
			return err
		}
		return durable.SyncDir(f.Dir)
	}
	return fmt.Errorf("%s has a key that is not retired, and is not removed", f.path(KeyFile))
}

// Succeed durably states that the key whose verifier is next succeeds the key old, and
// stores old's public half. A Source that is not a file calls it before it signs with
// the new key. If it was already stated, Succeed returns the earlier statement.
func Succeed(ctx context.Context, dir string, old Key, next string) (stated []byte, err error) {
	unlock, err := lockDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return succeed(dir, old, next, time.Now())
}

func succeed(dir string, old Key, next string, at time.Time) ([]byte, error) {
	all, err := ReadRotations(dir)
	if err != nil {
		return nil, err
	}
	for i, signed := range all {
		r, err := statement.ReadRotation(signed)
		switch {
		case err != nil:
			return nil, err
		case r.Old == old.Public && r.New != next:
			return nil, fmt.Errorf("%s states that the next key is %.60s..., which is missing: restore it as %s, or, if the statement never left this machine, remove it",
				wal.FileName(uint64(i+1), statement.RotationSuffix), r.New, nextFile)
		case r.Old == old.Public:
			return signed, keepOld(dir, old)
		}
	}
	r, err := statement.NewRotation(old.Public, next, at)
	if err != nil {
		return nil, err
	}
	signed, err := r.Sign(old)
	if err != nil {
		return nil, err
	}
	if err := makeDir(dir, rotationsDir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, rotationsDir, wal.FileName(uint64(len(all)+1), statement.RotationSuffix))
	if err := durable.ReplaceShared(path, signed, 0o644); err != nil {
		return nil, err
	}
	return signed, keepOld(dir, old)
}

func keepOld(dir string, old Key) error {
	if err := makeDir(dir, oldDir); err != nil {
		return err
	}
	name := fmt.Sprintf("%s+%08x.pub", old.Name(), old.KeyHash())
	return durable.ReplaceShared(filepath.Join(dir, oldDir, name), []byte(old.Public+"\n"), 0o644)
}

func makeDir(dir, name string) error {
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// lockDir excludes other rotations in dir.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := flock.Lock(ctx, d, unix.LOCK_EX); err != nil {
		d.Close()
		return nil, err
	}
	return func() { d.Close() }, nil
}

// ReadRotations returns the host's signed rotations in dir, usually CUSTODY_HOME/keys, in
// order; having none is not an error. It verifies nothing.
func ReadRotations(dir string) ([][]byte, error) {
	var all [][]byte
	for n := uint64(1); ; n++ {
		signed, err := regular.ReadFile(filepath.Join(dir, rotationsDir, wal.FileName(n, statement.RotationSuffix)))
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read rotations: %w", err)
		}
		all = append(all, signed)
	}
}

// Retired parses the rotations in dir, in order: which keys were retired, when, and
// their successors. It verifies nothing.
func Retired(dir string) ([]statement.Rotation, error) {
	signed, err := ReadRotations(dir)
	if err != nil {
		return nil, err
	}
	var all []statement.Rotation
	for i, s := range signed {
		r, err := statement.ReadRotation(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", wal.FileName(uint64(i+1), statement.RotationSuffix), err)
		}
		all = append(all, r)
	}
	return all, nil
}

// leads reports whether rotations lead from one key to another.
func leads(all []statement.Rotation, from, to string) bool {
	for range all {
		for _, r := range all {
			if r.Old == from {
				from = r.New
				break
			}
		}
		if from == to {
			return true
		}
	}
	return false
}
