package proof_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/audit/proof"
)

// TestKeyRace has many concurrent first users, who all must get the same key.
func TestKeyRace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home", "keys")
	public := make([]string, 16)
	var wg sync.WaitGroup
	for i := range public {
		wg.Go(func() {
			k, err := proof.LoadOrCreateKey(dir)
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
	for name, mode := range map[string]os.FileMode{proof.KeyFile: 0o600, proof.PublicFile: 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		check(t, err)
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), mode)
		}
	}
	entries, err := os.ReadDir(dir)
	check(t, err)
	if len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
	text, err := os.ReadFile(filepath.Join(dir, proof.PublicFile))
	check(t, err)
	if strings.TrimSpace(string(text)) != public[0] {
		t.Errorf("%s holds %q, want %q", proof.PublicFile, text, public[0])
	}
}

// TestKeyForms makes many keys, since some hold a '+' in their base64.
func TestKeyForms(t *testing.T) {
	for range 60 {
		k, err := proof.LoadOrCreateKey(t.TempDir())
		check(t, err)
		v, err := k.Verifier()
		check(t, err)
		sig, err := k.Sign([]byte("text"))
		check(t, err)
		if !v.Verify([]byte("text"), sig) {
			t.Fatal("the public key does not verify the key's signature")
		}
	}
}

func TestKeyRefused(t *testing.T) {
	dir := t.TempDir()
	k, err := proof.LoadOrCreateKey(dir)
	check(t, err)
	path := filepath.Join(dir, proof.KeyFile)
	secret, err := os.ReadFile(path)
	check(t, err)

	check(t, os.Chmod(path, 0o640))
	var mode *proof.KeyModeError
	if _, err = proof.LoadOrCreateKey(dir); !errors.As(err, &mode) || !strings.Contains(mode.Hint(), "chmod 600") {
		t.Errorf("mode 0640: %v", err)
	}
	check(t, os.Chmod(path, 0o600))
	for _, bad := range []string{"x", "PRIVATE+KEY+x+00000000+AAAA", strings.TrimSpace(string(secret))[:60]} {
		check(t, os.WriteFile(path, []byte(bad), 0o600))
		_, err = proof.LoadOrCreateKey(dir)
		if err == nil || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("key %q: %v", bad, err)
		}
	}
	check(t, os.WriteFile(path, secret, 0o600))
	edit(t, filepath.Join(dir, proof.PublicFile), func(b []byte) []byte { return append([]byte("x"), b...) })
	if _, err = proof.LoadOrCreateKey(dir); err == nil {
		t.Error("a public key that does not belong to it is accepted")
	}
	check(t, os.Remove(filepath.Join(dir, proof.PublicFile)))
	again, err := proof.LoadOrCreateKey(dir)
	check(t, err)
	if again.Public != k.Public {
		t.Errorf("the key changed")
	}
	if _, err := again.Verifier(); err != nil {
		t.Error(err)
	}
}
