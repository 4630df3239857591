package hostkey

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestKeyRace has many concurrent first users, who all must get the same key.
func TestKeyRace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home", "keys")
	public := make([]string, 16)
	var wg sync.WaitGroup
	for i := range public {
		wg.Go(func() {
			k, err := LoadOrCreate(dir)
			if err != nil {
				t.Error(err)
				return
			}
			public[i] = k.Public
		})
	}
	wg.Wait()
	for _, p := range public {
		if p != public[0] || p == "" {
			t.Fatalf("keys %q and %q", p, public[0])
		}
	}
	for name, mode := range map[string]os.FileMode{KeyFile: 0o600, PublicFile: 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		ok(t, err)
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), mode)
		}
	}
	entries, err := os.ReadDir(dir)
	ok(t, err)
	if len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
	text, err := os.ReadFile(filepath.Join(dir, PublicFile))
	ok(t, err)
	if strings.TrimSpace(string(text)) != public[0] {
		t.Errorf("%s holds %q, want %q", PublicFile, text, public[0])
	}
}

// TestKeyForms makes many keys, since some hold a '+' in their base64.
func TestKeyForms(t *testing.T) {
	for range 60 {
		k, err := LoadOrCreate(t.TempDir())
		ok(t, err)
		v, err := k.Verifier()
		ok(t, err)
		sig, err := k.Sign([]byte("text"))
		ok(t, err)
		if !v.Verify([]byte("text"), sig) {
			t.Fatal("the public key does not verify the key's signature")
		}
	}
}

func TestKeyRefused(t *testing.T) {
	dir := t.TempDir()
	k, err := LoadOrCreate(dir)
	ok(t, err)
	path := filepath.Join(dir, KeyFile)
	secret, err := os.ReadFile(path)
	ok(t, err)

	ok(t, os.Chmod(path, 0o640))
	var mode *ModeError
	if _, err = LoadOrCreate(dir); !errors.As(err, &mode) || !strings.Contains(mode.Hint(), "chmod 600") {
		t.Errorf("mode 0640: %v", err)
	}
	ok(t, os.Chmod(path, 0o600))
	for _, bad := range []string{"x", "PRIVATE+KEY+x+00000000+AAAA", strings.TrimSpace(string(secret))[:60]} {
		ok(t, os.WriteFile(path, []byte(bad), 0o600))
		_, err = LoadOrCreate(dir)
		if err == nil || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("key %q: %v", bad, err)
		}
	}
	ok(t, os.WriteFile(path, secret, 0o600))
	public, err := os.ReadFile(filepath.Join(dir, PublicFile))
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(dir, PublicFile), append([]byte("x"), public...), 0o600))
	if _, err = LoadOrCreate(dir); err == nil {
		t.Error("a public key that does not belong to it is accepted")
	}
	ok(t, os.Remove(filepath.Join(dir, PublicFile)))
	again, err := LoadOrCreate(dir)
	ok(t, err)
	if again.Public != k.Public {
		t.Errorf("the key changed")
	}
	if _, err := again.Verifier(); err != nil {
		t.Error(err)
	}
}
