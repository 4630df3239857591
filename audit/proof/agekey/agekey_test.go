package agekey_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"

	"github.com/custody-project/custody/audit/proof/agekey"
	"github.com/custody-project/custody/audit/proof/hostkey"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

func identity(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "identity")
	_, err := agekey.NewIdentity(path)
	must(t, err)
	return path
}

func source(t testing.TB, dir, from string, change ...func(*agekey.Config)) hostkey.Locked {
	t.Helper()
	c := agekey.Config{From: from, Dir: dir, Getenv: func(string) string { return "" },
		Ask: func(string) (string, error) {
			t.Error("a passphrase is asked for")
			return "", errors.New("no terminal")
		}}
	for _, f := range change {
		f(&c)
	}
	l, err := agekey.New(c)
	must(t, err)
	return hostkey.Locked{Dir: dir, Lock: l}
}

// signs checks that a key's signature is one of the host's published key.
func signs(t testing.TB, dir string, k hostkey.Key) {
	t.Helper()
	public, err := os.ReadFile(filepath.Join(dir, hostkey.PublicFile))
	must(t, err)
	if strings.TrimSpace(string(public)) != k.Public {
		t.Errorf("%s is published, and the key is %s", public, k.Public)
	}
	v, err := k.Verifier()
	must(t, err)
	sig, err := k.Sign([]byte("text"))
	must(t, err)
	if !v.Verify([]byte("text"), sig) {
		t.Error("the signature is not one of the key's")
	}
}

// noneInClear checks that no file below dir has a private key in the form that hostkey.File writes.
func noneInClear(t testing.TB, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("PRIVATE+KEY")) || bytes.Contains(text, []byte("AGE-SECRET")) {
			t.Errorf("%s has a private key in the clear", path)
		}
		files++
		return err
	})
	must(t, err)
	if files == 0 {
		t.Error("no file was looked at")
	}
}

func TestIdentity(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home", "keys")
	id := identity(t)
	keys := make([]hostkey.Key, 8)
	var wg sync.WaitGroup
	for i := range keys { // several processes on first use
		wg.Go(func() {
			var err error
			if keys[i], err = source(t, dir, id).Key(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k.Public != keys[0].Public || k.Public == "" {
			t.Fatalf("keys %s and %s", keys[0].Public, k.Public)
		}
		signs(t, dir, k)
	}
	noneInClear(t, dir)
	info, err := os.Stat(filepath.Join(dir, "host.key.age"))
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}

	_, err = source(t, dir, id).Rotate(t.Context())
	must(t, err)
	second, err := source(t, dir, id).Key(t.Context())
	must(t, err)
	signs(t, dir, second)
	noneInClear(t, dir)
	retired, err := hostkey.Retired(dir)
	must(t, err)
	if len(retired) != 1 || retired[0].Old != keys[0].Public || retired[0].New != second.Public {
		t.Errorf("rotations %+v", retired)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*next*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestAgeReads: the file is what any age program reads.
func TestAgeReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	id := identity(t)
	_, err := source(t, dir, id).Key(t.Context())
	must(t, err)
	text, err := os.ReadFile(id)
	must(t, err)
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	must(t, err)
	sealed, err := os.Open(filepath.Join(dir, "host.key.age"))
	must(t, err)
	defer sealed.Close()
	r, err := age.Decrypt(sealed, ids...)
	must(t, err)
	var key bytes.Buffer
	_, err = key.ReadFrom(r)
	must(t, err)
	if !strings.HasPrefix(key.String(), "PRIVATE+KEY+custody-") {
		t.Error("it is not a signer in note format")
	}
}

func TestCredential(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	id := identity(t)
	env := func(c *agekey.Config) {
		c.Getenv = func(name string) string {
			if name == "CREDENTIALS_DIRECTORY" {
				return filepath.Dir(id)
			}
			return ""
		}
	}
	k, err := source(t, dir, "credential/identity", env).Key(t.Context())
	must(t, err)
	signs(t, dir, k)
	if _, err := source(t, dir, "credential/identity").Key(t.Context()); !strings.Contains(hint(err), "LoadCredentialEncrypted=identity") {
		t.Errorf("without credentials: %v: %s", err, hint(err))
	}
	if _, err := source(t, dir, "credential/other", env).Key(t.Context()); !strings.Contains(hint(err), "credential") {
		t.Errorf("without that credential: %v: %s", err, hint(err))
	}
	again, err := source(t, dir, id).Key(t.Context()) // the same identity from a file
	must(t, err)
	if again.Public != k.Public {
		t.Error("another key")
	}
}

func TestPassphrase(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	asked := 0
	answers := func(words ...string) func(*agekey.Config) {
		asked = 0
		return func(c *agekey.Config) {
			c.Ask = func(string) (string, error) {
				if asked++; asked > len(words) {
					return "", errors.New("nobody is there")
				}
				return words[asked-1], nil
			}
		}
	}
	const word = "five random words or more"
	for _, bad := range [][]string{{}, {"short", "short"}, {word, word + "s"}, {"", ""}} {
		if _, err := source(t, dir, "passphrase", answers(bad...)).Key(t.Context()); err == nil {
			t.Errorf("%q is taken for a new passphrase", bad)
		}
	}
	s := source(t, dir, "passphrase", answers(word, word))
	k, err := s.Key(t.Context())
	must(t, err)
	signs(t, dir, k)
	_, err = s.Key(t.Context())
	must(t, err)
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	s = source(t, dir, "passphrase", answers(word)) // another process
	_, err = s.Rotate(t.Context())
	must(t, err)
	second, err := s.Key(t.Context())
	must(t, err)
	if asked != 1 || second.Public == k.Public {
		t.Errorf("asked %d times, %s", asked, second.Public)
	}
	signs(t, dir, second)
	noneInClear(t, dir)
	if _, err := source(t, dir, "passphrase", answers("another passphrase")).Key(t.Context()); err == nil || hint(err) == "" || strings.Contains(err.Error(), "another passphrase") {
		t.Errorf("a wrong passphrase: %v", err)
	}
}

// TestFails: without the identity or passphrase, no key is returned and none is created, and the errors name the remedy.
func TestFails(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "keys")
	id, other := identity(t), identity(t)
	first, err := source(t, dir, id).Key(t.Context())
	must(t, err)
	before, err := os.ReadFile(filepath.Join(dir, "host.key.age"))
	must(t, err)

	open := filepath.Join(t.TempDir(), "open")
	text, err := os.ReadFile(id)
	must(t, err)
	must(t, os.WriteFile(open, text, 0o600))
	must(t, os.Chmod(open, 0o640))
	inside := filepath.Join(root, "identity")
	must(t, os.WriteFile(inside, text, 0o600))
	torn := filepath.Join(t.TempDir(), "torn")
	must(t, os.WriteFile(torn, text[:len(text)-9], 0o600))
	secret := strings.Split(strings.TrimSpace(string(text)), "\n")[2]

	for name, c := range map[string]struct{ from, hint string }{
		"another identity":  {other, "name the identity"},
		"no such file":      {"/nowhere/identity", "attach the medium"},
		"others can read":   {open, "chmod 600"},
		"beside the key":    {inside, "outside of CUSTODY_HOME"},
		"no identity":       {torn, "custody key identity"},
		"is a directory":    {filepath.Dir(id), "find out"},
		"a passphrase, too": {"passphrase", "name that as key:"},
	} {
		_, err := source(t, dir, c.from, func(c *agekey.Config) {
			c.Ask = func(string) (string, error) { return "any passphrase at all", nil }
		}).Key(t.Context())
		if err == nil || !strings.Contains(hint(err), c.hint) || strings.Contains(err.Error(), secret[:len(secret)-12]) {
			t.Errorf("%s: %v: %s", name, err, hint(err))
		}
	}
	damaged := bytes.Clone(before)
	damaged[len(damaged)-3] ^= 1
	must(t, os.WriteFile(filepath.Join(dir, "host.key.age"), damaged, 0o600))
	if _, err := source(t, dir, id).Key(t.Context()); err == nil {
		t.Error("a damaged key is taken")
	}
	must(t, os.Remove(filepath.Join(dir, "host.key.age")))
	var none *hostkey.NoKeyError
	if _, err := source(t, dir, id).Key(t.Context()); !errors.As(err, &none) {
		t.Errorf("without the key: %v", err)
	}
	if _, err := hostkey.LoadOrCreate(dir); !errors.As(err, &none) || !strings.Contains(hint(err), "host.yaml") {
		t.Errorf("a key in the clear is made beside the one that was lost: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "host.key.age"), before, 0o600))
	again, err := source(t, dir, id).Key(t.Context())
	must(t, err)
	if again.Public != first.Public {
		t.Error("another key")
	}
}

func TestCheck(t *testing.T) {
	for from, want := range map[string]bool{
		"passphrase": true, "credential/x": true, "/media/key/identity": true,
		"": false, "credential/": false, "credential/../x": false, "credential/..": false, "identity": false, "/a/../b": false, "/a/": false, "Passphrase": false,
	} {
		if err := agekey.Check(from); (err == nil) != want {
			t.Errorf("%q: %v", from, err)
		}
	}
}

func TestNewIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "identity")
	recipient, err := agekey.NewIdentity(path)
	must(t, err)
	if !strings.HasPrefix(recipient, "age1") {
		t.Errorf("recipient %s", recipient)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := agekey.NewIdentity(path); err == nil {
		t.Error("an identity is overwritten")
	}
}
