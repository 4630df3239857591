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

// What a rotation leaves below CUSTODY_HOME/keys, beside the key itself.
const (
	nextFile     = "next.key"  // the new key, until it takes the place of the old one
	rotationsDir = "rotations" // N.rotation, from 1
	oldDir       = "old"       // NAME+HASH.pub, what verifies the retired keys
)

// Rotate gives the host a new key of the same name. Each step is durable before the next:
//
//	next.key  -->  rotations/N.rotation, signed by the old key  -->  old/NAME+HASH.pub
//	          -->  next.key renamed to host.key  -->  host.pub
//
// The old private key is gone then; processes that have loaded it go on signing with it until
// they end. Rotate returns the signed statement, which belongs into the host's log. If it is
// cut off at any moment, the host has a key that works, and calling it again goes on from there.
func Rotate(dir string) (stated []byte, err error) {
	return Locked{dir, inClear{}}.Rotate(context.Background())
}

// Rotate implements Source, as the function Rotate does for a key in the clear.
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

// rotate asks step before each of its steps whether to go on.
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

// replace gives the host a key that follows old, or goes on with that. The caller holds the lock of the directory.
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

// Finish implements Source: it goes on from the statement.
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
		return fmt.Errorf("a rotation of the host's key was stated and not finished, and the new key is not here: put %s back: %w", f.path(nextFile), err)
	}
	if _, err := f.replace(old, time.Now, func(string) error { return nil }); err != nil {
		return fmt.Errorf("finish the rotation of the host's key: %w", err)
	}
	return nil
}

// PublishNext finishes a rotation of a key that is not in a file: if the last statement in dir retires the key that
// is published there, it publishes the key that follows.
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

// finish does the last step of a rotation that was cut off before it.
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
		return nil, nil // Key reports what is wrong, if anything is
	}
	k, err := f.load(KeyFile)
	if err != nil || last.New != k.Public { // it is still the old one, which another lock may open
		return nil, nil
	}
	return all[len(all)-1], Publish(f.Dir, k.Public)
}

// Drop removes the private key of a source that keeps it in a file, once statements in its directory retire the key.
// A source that keeps it elsewhere has nothing to remove. Copies can remain in the disk's free blocks and in back-ups.
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
	return fmt.Errorf("%s holds a key that is not retired: it stays", f.path(KeyFile))
}

// Succeed states durably that the key old is followed by the key whose verifier is next, and
// keeps old's public half. It is what a Source that is not a file does before it signs with
// the new key. If that was stated before, it returns the statement of then.
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
			return nil, fmt.Errorf("%s says that the next key is %.60s..., and that one is not here: put it back as %s, or, if the statement never left this machine, remove it",
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
	if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// lockDir keeps other rotations in dir out.
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
// order; none is no error. Nothing is verified.
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

// Retired returns what the rotations in dir say, in order: which keys were retired, when, and
// what came after them. Nothing is verified.
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
