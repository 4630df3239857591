package host_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store/storetest"
)

// TestBundleOfAnotherHost: a bundle of another host's run has that host's key, and verifies with only the fleet's root key. Two
// homes share a store and have keys of different names, like two machines.
func TestBundleOfAnotherHost(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "shared.db")
	mine, other := homeOf(t, "acme", dsn), homeOf(t, "beta", dsn)
	named(t, other, "custody-other")
	run, own := host.NewRunID(storetest.Start()), host.NewRunID(storetest.Start())
	must(t, recordFor(t, other, run, 10))
	must(t, recordFor(t, mine, own, 10))
	public, err := other.Keys().Public()
	must(t, err)
	myKey, err := mine.Keys().Public()
	must(t, err)

	if _, err := mine.Fleet().Root(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a fleet exists before it was created: %v", err)
	}
	if _, err := mine.Fleet().Enrol(public, false); err == nil {
		t.Error("a host is enrolled without a root key")
	}
	root, err := mine.Fleet().Create("fleet.example")
	must(t, err)
	if _, err := mine.Fleet().Create("fleet.example"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the root key is replaced: %v", err)
	}
	signed, err := mine.Fleet().Enrol(public, false)
	must(t, err)
	_, err = mine.Fleet().Enrol(myKey, false)
	must(t, err)
	if again, err := mine.Fleet().Enrol(public, false); err != nil || !bytes.Equal(again, signed) {
		t.Errorf("enrolled twice: %v", err)
	}

	v, err := note.NewVerifier(root)
	must(t, err)
	check := func(h *host.Host, tenant, run, want string) {
		t.Helper()
		var b bytes.Buffer
		must(t, h.Proofs().Bundle(t.Context(), &b, tenant, run, host.BundleOptions{}))
		if got := string(prooftest.Unpack(t, b.Bytes())["host.pub"]); got != want+"\n" {
			t.Errorf("host.pub is %q, want %q", got, want)
		}
		path := filepath.Join(t.TempDir(), "bundle.tar")
		must(t, os.WriteFile(path, b.Bytes(), 0o600))
		e, err := proof.OpenBundle(path)
		must(t, err)
		defer e.Close()
		r, err := proof.Verify(t.Context(), e, proof.Trust{Fleets: note.VerifierList(v), Unlogged: true})
		if err != nil || r.KeyName != strings.SplitN(want, "+", 2)[0] {
			t.Errorf("%s: signed by %s: %v", run, r.KeyName, err)
		}
	}
	check(mine, "beta", run, public)
	check(mine, "acme", own, myKey)

	known, err := mine.Fleet().Known()
	must(t, err)
	e, done, err := mine.Proofs().OfRun(t.Context(), "beta", run)
	must(t, err)
	if _, err := proof.Verify(t.Context(), e, proof.Trust{Keys: known, Unlogged: true}); err != nil {
		t.Errorf("the run in the store: %v", err)
	}
	must(t, done())
	var b bytes.Buffer
	if err := mine.Proofs().Bundle(t.Context(), &b, "beta", run, host.BundleOptions{Attachments: []statement.Attachment{{Name: "report/a", Data: []byte("a")}}}); err == nil {
		t.Error("files are attached to another host's run")
	}

	// The host stores its statement, and puts it into its own bundles.
	if err := other.Fleet().Add(signed); err == nil {
		t.Error("a statement of an unknown root is kept")
	}
	must(t, os.WriteFile(filepath.Join(other.Dir, host.ConfigFile), []byte("version: 1\ntenant: beta\nstore: "+dsn+"\nfleet: {root: \""+root+"\"}\n"), 0o600))
	other, err = host.Open(other.Dir)
	must(t, err)
	must(t, other.Fleet().Add(signed))
	if err := other.Fleet().Add(bytes.Replace(signed, []byte(`"time":"2`), []byte(`"time":"1`), 1)); err == nil {
		t.Error("a forged statement is kept")
	}
	check(other, "beta", run, public)
	if _, err := other.Keys().Rotate(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	rotated, err := other.Keys().Public()
	must(t, err)
	check(other, "beta", run, public) // the key that signed the run, through its statement
	if _, err := mine.Fleet().Enrol(rotated, false); err == nil {
		t.Error("a second key of the same name is enrolled")
	}
	_, err = mine.Fleet().Enrol(rotated, true)
	must(t, err)
	hosts, err := mine.Fleet().Hosts()
	must(t, err)
	if len(hosts) != 3 {
		t.Errorf("%d hosts", len(hosts))
	}
}

// named gives a home a key of the given name.
func named(t *testing.T, h *host.Host, name string) {
	t.Helper()
	key, err := os.ReadFile(keyOfName(t, name))
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(h.Dir, "keys"), 0o700))
	must(t, os.WriteFile(filepath.Join(h.Dir, "keys", hostkey.KeyFile), key, 0o600))
}

func keyOfName(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	_, err := hostkey.Locked{Dir: dir, Lock: hostkey.InClear()}.NewRoot(name)
	must(t, err)
	return filepath.Join(dir, hostkey.RootFile)
}

// TestFleetConfig: the fleet settings of host.yaml are checked, and a root key can be encrypted.
func TestFleetConfig(t *testing.T) {
	open := func(fleet string) (*host.Host, error) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, host.ConfigFile), []byte("version: 1\nfleet: "+fleet+"\n"), 0o600))
		return host.Open(dir)
	}
	for _, bad := range []string{`{root: x}`, `{key: "vault-transit:a/b"}`, `{key: "age:relative"}`, `{keys: file}`} {
		if _, err := open(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	h, err := open("{key: \"age:" + newIdentity(t) + "\"}")
	must(t, err)
	_, err = h.Fleet().Create("fleet.example")
	must(t, err)
	if text, err := os.ReadFile(filepath.Join(h.Dir, "fleet", "root.key.age")); err != nil || bytes.Contains(text, []byte("PRIVATE")) {
		t.Errorf("the root key: %v", err)
	}
	public, err := h.Keys().Public()
	must(t, err)
	_, err = h.Fleet().Enrol(public, false)
	must(t, err)
	for _, name := range []string{"", "a b", "a+b"} {
		h, err := open("{key: file}")
		must(t, err)
		if _, err := h.Fleet().Create(name); err == nil {
			t.Errorf("a fleet is called %q", name)
		}
	}
}
