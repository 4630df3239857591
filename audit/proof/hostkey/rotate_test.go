package hostkey

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/statement"
)

var errKilled = errors.New("killed")

// TestRotateCutOff ends a rotation before each of its steps, as kill -9 does. The host always
// has a usable key, and the next call continues the rotation.
func TestRotateCutOff(t *testing.T) {
	for _, last := range []string{"next", "statement", "rename", "publish"} {
		t.Run(last, func(t *testing.T) {
			dir := t.TempDir()
			first, err := LoadOrCreate(dir)
			ok(t, err)
			_, err = rotateBy(dir, func(step string) error {
				if step == last {
					return errKilled
				}
				return nil
			})
			if !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			if last != "publish" { // at that step only Rotate's return is missing
				k, err := LoadOrCreate(dir)
				ok(t, err)
				if k.Public != first.Public {
					t.Errorf("the key changed before its time")
				}
			}
			stated, err := Rotate(dir)
			ok(t, err)
			r, err := statement.ReadRotation(stated)
			ok(t, err)
			k, err := LoadOrCreate(dir)
			ok(t, err)
			if r.Old != first.Public || r.New != k.Public || k.Name() != first.Name() {
				t.Errorf("%+v leads from %s to %s", r, first.Public, k.Public)
			}
			if all, err := ReadRotations(dir); err != nil || len(all) != 1 {
				t.Errorf("%d rotations, %v", len(all), err)
			}
			rotated(t, dir, first, stated)
		})
	}
}

// rotated checks what a rotation leaves behind.
func rotated(t *testing.T, dir string, first Key, stated []byte) {
	t.Helper()
	v, err := first.Verifier()
	ok(t, err)
	if _, err := note.Open(stated, note.VerifierList(v)); err != nil {
		t.Errorf("the old key did not sign: %v", err)
	}
	public, err := os.ReadFile(filepath.Join(dir, oldDir, fmt.Sprintf("%s+%08x.pub", first.Name(), first.KeyHash())))
	if err != nil || strings.TrimSpace(string(public)) != first.Public {
		t.Errorf("the old public key: %q, %v", public, err)
	}
	if _, err := os.Stat(filepath.Join(dir, nextFile)); err == nil {
		t.Error("the new key is still in its first place")
	}
	secret, err := os.ReadFile(filepath.Join(dir, KeyFile))
	ok(t, err)
	k, err := parseKey("", strings.TrimSpace(string(secret)))
	ok(t, err)
	if k.Public == first.Public {
		t.Error("the old private key is still there")
	}
}

// TestRotatePublished reads the key immediately after the penultimate step, as any process may.
func TestRotatePublished(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadOrCreate(dir)
	ok(t, err)
	_, err = rotateBy(dir, func(step string) error {
		if step == "publish" {
			return errKilled
		}
		return nil
	})
	if !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	k, err := LoadOrCreate(dir)
	ok(t, err)
	public, err := os.ReadFile(filepath.Join(dir, PublicFile))
	ok(t, err)
	if k.Public == first.Public || strings.TrimSpace(string(public)) != k.Public {
		t.Errorf("key %s, published %s", k.Public, public)
	}
	// A process that has just read the old key file must neither use it nor publish its public half again.
	if err := Publish(dir, first.Public); !errors.Is(err, errStale) {
		t.Errorf("the retired key is published: %v", err)
	}
	other, err := LoadOrCreate(t.TempDir())
	ok(t, err)
	if err := Publish(dir, other.Public); err == nil || errors.Is(err, errStale) {
		t.Errorf("a key from elsewhere is published: %v", err)
	}
	// An old key file that was restored signs nothing.
	ok(t, os.WriteFile(filepath.Join(dir, PublicFile), []byte(k.Public+"\n"), 0o644))
	_, err = Rotate(dir)
	ok(t, err)
	skey := "PRIVATE+KEY" // the old private key is removed; a foreign key is not a successor either
	ok(t, os.WriteFile(filepath.Join(dir, KeyFile), []byte(skey), 0o600))
	if _, err := LoadOrCreate(dir); err == nil {
		t.Error("a broken key file is taken")
	}
}

// TestRotateConcurrently has many processes rotate concurrently: the statements make one chain.
func TestRotateConcurrently(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadOrCreate(dir)
	ok(t, err)
	const n = 8
	done := make(chan error, 2*n)
	for range n {
		go func() { _, err := Rotate(dir); done <- err }()
		go func() { _, err := LoadOrCreate(dir); done <- err }()
	}
	for range 2 * n {
		ok(t, <-done)
	}
	all, err := Retired(dir)
	ok(t, err)
	if len(all) != n || all[0].Old != first.Public {
		t.Fatalf("%d rotations", len(all))
	}
	for i := 1; i < n; i++ {
		if all[i].Old != all[i-1].New {
			t.Errorf("rotation %d does not follow", i)
		}
	}
	k, err := LoadOrCreate(dir)
	ok(t, err)
	if k.Public != all[n-1].New {
		t.Error("the key is not the last one")
	}
}

// A statement whose key is lost must not be followed by another from the same old key.
func TestRotateLostKey(t *testing.T) {
	dir := t.TempDir()
	_, err := LoadOrCreate(dir)
	ok(t, err)
	_, err = rotateBy(dir, func(step string) error {
		if step == "rename" {
			return errKilled
		}
		return nil
	})
	if !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	ok(t, os.Remove(filepath.Join(dir, nextFile)))
	if _, err := Rotate(dir); err == nil || !strings.Contains(err.Error(), nextFile) {
		t.Errorf("got %v", err)
	}
}

// rotateBy rotates an unencrypted key, and calls step before each step.
func rotateBy(dir string, step func(string) error) ([]byte, error) {
	f := Locked{dir, inClear{}}
	return f.rotate(context.Background(), func() (Key, error) { return f.Key(context.Background()) }, time.Now, step)
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
