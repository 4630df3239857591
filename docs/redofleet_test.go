package docs_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
)

// signerOf derives a key from a name.
func signerOf(t *testing.T, name string) hostkey.Key {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	return hostkey.Key{Signer: must(note.NewSigner(skey)), Public: vkey}
}

// TestRedoFleet: with only a fleet's root key the script, the page and verify reach the same verdict about another host's run.
func TestRedoFleet(t *testing.T) {
	t.Parallel()
	root, other, web, store := signerOf(t, "fleet.example"), signerOf(t, "fleet.example"), signerOf(t, "custody-web"), signerOf(t, "custody-store")
	run := record(t, "r-1", web, false, nil)
	s := &scene{key: store, log: &tree{signer: web}}
	s.enter(t, run)
	s.log.publish()
	state := func(by hostkey.Key, public string) []byte {
		return must(must(statement.NewHost(public, time.Now())).Sign(by))
	}
	var b bytes.Buffer
	o := proof.BundleOptions{HostKey: web.Public, Signer: store, Log: s.log, Hosts: [][]byte{state(root, web.Public), state(root, store.Public)}}
	if err := proof.WriteBundle(t.Context(), &b, run, o); err != nil {
		t.Fatal(err)
	}
	truth := prooftest.Unpack(t, b.Bytes())
	one, two := "00000000000000000001.host", "00000000000000000002.host"
	replace := func(file, from, to string) func(map[string][]byte) {
		return func(f map[string][]byte) { f[file] = bytes.Replace(f[file], []byte(from), []byte(to), 1) }
	}
	others := newCheckers(t)
	fleet := proof.Trust{Fleets: note.VerifierList(must(root.Verifier()))}
	for title, c := range map[string]struct {
		change func(map[string][]byte)
		want   int
	}{
		"the truth":                     {func(map[string][]byte) {}, 0},
		"of another root":               {func(f map[string][]byte) { f[one] = state(other, web.Public) }, 2},
		"the writer's of another root":  {func(f map[string][]byte) { f[two] = state(other, store.Public) }, 2},
		"signed by the host itself":     {func(f map[string][]byte) { f[one] = state(web, web.Public) }, 2},
		"dropped":                       {func(f map[string][]byte) { f[one] = f[two]; delete(f, two) }, 2},
		"another time":                  {replace(one, `"time":"2`, `"time":"1`), 1},
		"another name":                  {replace(one, `"host":"custody-web"`, `"host":"custody-store"`), 1},
		"another kind":                  {func(f map[string][]byte) { f[one] = f["00000000000000000001.manifest"] }, 1},
		"numbered anew":                 {func(f map[string][]byte) { f["00000000000000000003.host"] = f[two]; delete(f, two) }, 1},
		"the writer's key in host.pub":  {func(f map[string][]byte) { f["host.pub"] = []byte(store.Public + "\n") }, 1},
		"a key without a statement":     {func(f map[string][]byte) { f["host.pub"] = []byte(other.Public + "\n") }, 1},
		"the root signs for the writer": {func(f map[string][]byte) { f[two] = f[one] }, 2},
	} {
		files := maps.Clone(truth)
		c.change(files)
		path := s.seal(t, files)
		got, err := ours(t, path, fleet)
		if got != c.want {
			t.Errorf("%s: verify says %d (%v), want %d", title, got, err, c.want)
		}
		others.agree(title, got, err, path, "--fleet-key", root.Public)
	}
	path := write(t, truth)
	for _, flags := range [][]string{{"--key", web.Public, "--key", store.Public}, {"--fleet-key", other.Public, "--fleet-key", root.Public}} {
		others.agree(fmt.Sprint(flags), 0, nil, append([]string{path}, flags...)...)
	}
	others.agree("a root key is not a host's", 2, nil, path, "--key", root.Public)
}
