package proof_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

func stateHost(t testing.TB, root key, public string) []byte {
	t.Helper()
	h, err := statement.NewHost(public, time.Now())
	check(t, err)
	signed, err := h.Sign(root.signer)
	check(t, err)
	return signed
}

// TestFleet: a verifier that trusts only the root key of a fleet trusts what the fleet's hosts signed: a run of one of
// them, in a bundle that another one wrote.
func TestFleet(t *testing.T) {
	root, other := newKeyNamed(t, "fleet.example"), newKeyNamed(t, "fleet.example")
	web, store := newKeyNamed(t, "custody-web"), newKeyNamed(t, "custody-store")
	l := &treeLog{signer: web.signer}
	run := newRun(t, web, "r-one")
	l.log(t, run)
	l.publish(t)
	pack := func(o proof.BundleOptions) files {
		o.HostKey, o.Log = web.public, l
		var b bytes.Buffer
		check(t, proof.WriteBundle(t.Context(), &b, run, o))
		return unpack(t, b.Bytes())
	}
	aboutWeb, aboutStore := stateHost(t, root, web.public), stateHost(t, root, store.public)
	truth := pack(proof.BundleOptions{Signer: store.signer, Hosts: [][]byte{aboutWeb, aboutStore}})
	own := pack(proof.BundleOptions{Signer: web.signer, Hosts: [][]byte{aboutWeb}})
	if string(truth["host.pub"]) != web.public+"\n" {
		t.Errorf("host.pub is %q", truth["host.pub"])
	}
	fleet := proof.Trust{Fleets: root.trusted}
	for title, f := range map[string]files{"by another host": truth, "by its host": own} {
		r, err := f.verify(t, fleet)
		if err != nil || r.KeyName != "custody-web" || r.Hosts[0].Key != web.public {
			t.Errorf("%s: %+v, %v", title, r.Hosts, err)
		}
	}
	both, err := note.NewVerifier(web.public)
	check(t, err)
	writer, err := note.NewVerifier(store.public)
	check(t, err)
	_, err = truth.verify(t, proof.Trust{Keys: note.VerifierList(both, writer)}) // the hosts' own keys suffice too
	check(t, err)
	_, err = truth.verify(t, proof.Trust{Fleets: other.trusted})
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrUnknownKey, 0)
	_, err = truth.verify(t, proof.Trust{Keys: root.trusted}) // a root key is not a host's key
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrUnknownKey, 0)

	one, two := name(1, ".host"), name(2, ".host")
	forged := func(from, to string) func(files) {
		return func(f files) { f[one] = bytes.Replace(f[one], []byte(from), []byte(to), 1) }
	}
	for title, c := range map[string]struct {
		change  func(f files)
		finding *verdict.Finding
	}{
		"of another root":              {func(f files) { f[one] = stateHost(t, other, web.public) }, verdict.ErrUnknownKey},
		"the writer's of another root": {func(f files) { f[two] = stateHost(t, other, store.public) }, verdict.ErrUnknownKey},
		"signed by the host itself":    {func(f files) { f[one] = stateHost(t, web, web.public) }, verdict.ErrUnknownKey},
		"about another key":            {func(f files) { f[one] = stateHost(t, root, newKeyNamed(t, "custody-web").public) }, verdict.ErrUnknownKey},
		"dropped":                      {func(f files) { f[one] = f[two]; delete(f, two) }, verdict.ErrUnknownKey},
		"another time":                 {forged(`"time":"2`, `"time":"1`), verdict.ErrHostForged},
		"another name":                 {forged(`"host":"custody-web"`, `"host":"custody-store"`), verdict.ErrHostForged},
		"a name of another":            {func(f files) { f[one] = misnamed(t, root, web.public) }, verdict.ErrHostForged},
		"another kind":                 {func(f files) { f[one] = f[name(1, ".manifest")] }, verdict.ErrHostForged},
		"a rotation":                   {forged("custody host v1", "custody rotation v1"), verdict.ErrHostForged},
		"renumbered":                   {func(f files) { f[name(3, ".host")] = f[two]; delete(f, two) }, verdict.ErrStray},
		"the writer's key in host.pub": {func(f files) { f["host.pub"] = []byte(store.public + "\n") }, verdict.ErrHostKey},
	} {
		t.Run(title, func(t *testing.T) {
			f := maps.Clone(truth)
			c.change(f)
			_, err := files(f).seal(t, store).verify(t, fleet)
			var v *verdict.Verdict
			if !errors.As(err, &v) || v.Finding != c.finding {
				t.Errorf("got %v, want %q", err, c.finding)
			}
		})
	}
	var b bytes.Buffer
	o := proof.BundleOptions{HostKey: web.public, Signer: store.signer, Log: l, Hosts: [][]byte{aboutWeb, aboutStore},
		Attachments: []statement.Attachment{{Name: "report/a", Data: []byte("a")}}, By: "x", Time: time.Now()}
	if err := proof.WriteBundle(t.Context(), &b, run, o); err == nil {
		t.Error("another host attaches files to a run")
	}
}

// misnamed is a statement that the key of one host is that of another.
func misnamed(t testing.TB, root key, public string) []byte {
	t.Helper()
	h, err := statement.NewHost(public, time.Now())
	check(t, err)
	h.Host = "custody-other"
	line, err := json.Marshal(h)
	check(t, err)
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("custody host v1\n%s\n", line)}, root.signer)
	check(t, err)
	return signed
}

func FuzzParseHost(f *testing.F) {
	k := newKeyNamed(f, "custody-web")
	h, err := statement.NewHost(k.public, time.Now())
	check(f, err)
	line, err := json.Marshal(h)
	check(f, err)
	f.Add(fmt.Sprintf("custody host v1\n%s\n", line))
	f.Fuzz(func(t *testing.T, text string) {
		h, err := statement.ParseHost(text)
		if err != nil {
			return
		}
		if line, err := json.Marshal(h); err != nil || fmt.Sprintf("custody host v1\n%s\n", line) != text {
			t.Errorf("%q is read as %+v", text, h)
		}
	})
}
