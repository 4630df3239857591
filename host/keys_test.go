package host_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/agekey"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store/storetest"
)

// configured opens a home whose host.yaml has the key setting.
func configured(t testing.TB, dir, key string) *host.Host {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, host.ConfigFile), []byte("version: 1\nkey: "+key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// bundled verifies the bundle of a run with one public key.
func bundled(t testing.TB, h *host.Host, run, public string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.zip")
	var b bytes.Buffer
	if err := h.Proofs().Bundle(t.Context(), &b, "", run, host.BundleOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	e, err := proof.OpenBundle(path)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = proof.Verify(t.Context(), e, proof.Trust{Keys: note.VerifierList(v)})
	return err
}

func shipped(t *testing.T, h *host.Host) string {
	t.Helper()
	id := host.NewRunID(storetest.Start())
	record(t, h, id, storetest.Events(5))
	if err := h.Shipping().Ship(t.Context(), false, func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	return id
}

func newIdentity(t testing.TB) string {
	t.Helper()
	id := filepath.Join(t.TempDir(), "identity")
	if _, err := agekey.NewIdentity(id); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestKeyMoves: a key in the clear signs for one that is encrypted with age, and that for another one.
// Earlier runs verify as before, and later ones through the statements of rotation.
func TestKeyMoves(t *testing.T) {
	dir := t.TempDir()
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	before := shipped(t, h)
	first, err := h.Keys().Public()
	if err != nil {
		t.Fatal(err)
	}
	id := newIdentity(t)
	h = configured(t, dir, "age:"+id)
	var none *hostkey.NoKeyError
	if _, err := h.Keys().Signing(); !errors.As(err, &none) || !strings.Contains(none.Hint(), "key rotate --from") {
		t.Errorf("before the key is moved: %v", err)
	}
	if _, err := h.Keys().Rotate(t.Context(), "age:"+id); err == nil {
		t.Error("moved from its current storage")
	}
	if _, err := h.Keys().Rotate(t.Context(), "drawer"); err == nil {
		t.Error("moved from an invalid storage")
	}
	second, err := h.Keys().Rotate(t.Context(), "file")
	if err != nil {
		t.Fatal(err)
	}
	if second.Public == first {
		t.Error("the key is the one that was in the clear")
	}
	if _, err := os.Stat(filepath.Join(dir, "keys", hostkey.KeyFile)); err == nil {
		t.Error("the old key is still there in the clear")
	}
	if again, err := h.Keys().Rotate(t.Context(), "file"); err != nil || again.Public != second.Public {
		t.Errorf("the same again: %v", err)
	}
	other := newIdentity(t)
	h = configured(t, dir, "age:"+other)
	third, err := h.Keys().Rotate(t.Context(), "age:"+id)
	if err != nil {
		t.Fatal(err)
	}
	after := shipped(t, h)
	if h.Keys().InClear() != "" {
		t.Error("a key in the clear is reported")
	}
	for name, c := range map[string]struct {
		run, public string
		holds       bool
	}{
		"the old run, its key": {before, first, true}, "the old run, the new key": {before, third.Public, false},
		"the new run, the first key": {after, first, true}, "the new run, its key": {after, third.Public, true},
	} {
		if err := bundled(t, h, c.run, c.public); (err == nil) != c.holds {
			t.Errorf("%s: %v", name, err)
		}
	}
	if checked, err := h.Checks().Fsck(t.Context(), host.FsckOptions{}); err != nil || len(checked.Problems) > 0 {
		t.Errorf("fsck: %v, %v", checked.Problems, err)
	}
}

// TestKeyMoveCutOff: a move that was interrupted after it published the new key leaves the old one in the clear. The next
// call removes it. A key that was not retired stays.
func TestKeyMoveCutOff(t *testing.T) {
	dir := t.TempDir()
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Keys().Signing(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "keys", hostkey.KeyFile)
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h = configured(t, dir, "age:"+newIdentity(t))
	if _, err := h.Keys().Rotate(t.Context(), "file"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if h.Keys().InClear() != path {
		t.Error("a key in the clear is not reported")
	}
	if _, err := h.Keys().Rotate(t.Context(), "file"); err != nil {
		t.Error(err)
	}
	if h.Keys().InClear() != "" {
		t.Error("it is still there")
	}
	foreign, _, err := note.GenerateKey(rand.Reader, "custody-foreign")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(foreign+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Keys().Rotate(t.Context(), "file"); err == nil || h.Keys().InClear() == "" {
		t.Errorf("a key that is not retired is removed: %v", err)
	}
}

// TestLockedHost: without the secret that opens the key, no run begins and nothing is signed; everything that only reads works.
func TestLockedHost(t *testing.T) {
	dir := t.TempDir()
	id := newIdentity(t)
	h := configured(t, dir, "age:"+id)
	run := shipped(t, h)
	public, err := h.Keys().Public()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(id, id+".away"); err != nil {
		t.Fatal(err)
	}
	if h, err = host.Open(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Begin(t.Context(), host.RunOptions{ID: host.NewRunID(storetest.Start())}); err == nil || !strings.Contains(err.Error(), "the identity that decrypts the host's key is missing") {
		t.Errorf("a run begins: %v", err)
	}
	if _, err := h.Keys().Rotate(t.Context(), ""); err == nil {
		t.Error("the key is rotated")
	}
	if again, err := h.Keys().Public(); err != nil || again != public {
		t.Errorf("public key %s, %v", again, err)
	}
	if err := h.Proofs().Bundle(t.Context(), io.Discard, "", run, host.BundleOptions{}); err == nil {
		t.Error("a bundle is signed")
	}
	if err := h.Tidy(t.Context(), func(string) {}); err != nil {
		t.Errorf("tidy: %v", err)
	}
	if checked, err := h.Checks().Fsck(t.Context(), host.FsckOptions{}); err != nil || len(checked.Problems) > 0 {
		t.Errorf("fsck: %v, %v", checked.Problems, err)
	}
	if err := os.Rename(id+".away", id); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Keys().Signing(); err != nil {
		t.Error(err)
	}
}

func TestKeyKinds(t *testing.T) {
	for key, want := range map[string]bool{
		"file": true, `""`: true, "age:/media/key/identity": true, "age:passphrase": true, "age:credential/custody": true, "vault-transit:transit/host": true, "ssh-agent:/run/custody/agent.sock": true, "ssh-agent:agent": false, "ssh-agent": false,
		"age": false, `"age:"`: false, "age:identity": false, "Age:/x": false, "vault": false, `"file:"`: false, "file:/x": false, "vault-transit": false, "'vault-transit:'": false, "vault-transit:transit/": false, "vault-transit:a/../b": false, "vault-transit:/a/b": false, "vault-transit:host": true,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, host.ConfigFile), []byte("version: 1\nkey: "+key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var mistake *host.ConfigError
		if _, err := host.Open(dir); (err == nil) != want || err != nil && !errors.As(err, &mistake) {
			t.Errorf("key: %s: %v", key, err)
		}
	}
}
