package host_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/witness"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store/storetest"
)

// witnessed returns a host whose log a real witness cosigns, and the trust of an auditor in that witness.
func witnessed(t *testing.T) (*host.Host, proof.Trust) {
	t.Helper()
	dir, other := t.TempDir(), t.TempDir()
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := h.Keys().Signing()
	if err != nil {
		t.Fatal(err)
	}
	hostKey, err := note.NewVerifier(key.Public)
	if err != nil {
		t.Fatal(err)
	}
	vkey, err := witness.Generate(other, "witness.example")
	if err != nil {
		t.Fatal(err)
	}
	signer, verifier, err := witness.Load(other)
	if err != nil {
		t.Fatal(err)
	}
	w, err := witness.New(witness.Config{Dir: other, Signer: signer, Verifier: verifier, Logs: []note.Verifier{hostKey}, PerSecond: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(w)
	t.Cleanup(func() {
		s.Close()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	text := fmt.Sprintf("version: 1\nlog: {witnesses: [{key: %q, url: %q}]}\n", vkey, s.URL)
	if err := os.WriteFile(filepath.Join(dir, host.ConfigFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err = host.Open(dir); err != nil {
		t.Fatal(err)
	}
	return h, proof.Trust{Keys: note.VerifierList(hostKey), Witnesses: []note.Verifier{verifier}, Quorum: 1, Within: time.Hour}
}

// TestBundleShowsPast: a bundle has the first checkpoint over the run's end that witnesses cosigned, no matter when the bundle
// is made. The checkpoint comes from the run's directory or from the log.
func TestBundleShowsPast(t *testing.T) {
	h, trust := witnessed(t)
	var runs []string
	for i := range 2 {
		runs = append(runs, host.NewRunID(storetest.Start().Add(time.Duration(i)*time.Second)))
		events := storetest.Events(20)
		for j := range events {
			events[j].Time = time.Now() // older ones would have been seen late
		}
		record(t, h, runs[i], events)
		if err := h.Shipping().Ship(t.Context(), false, func(s string) { t.Log(s) }); err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(h.RunDir(runs[0]), "witnessed")
	for _, change := range []struct {
		title string
		do    func() error
		want  bool // the checkpoint is shown
	}{
		{"unchanged", func() error { return nil }, true},
		{"the log no longer has it", func() error { return os.Rename(filepath.Join(h.Dir, "log.checkpoints"), filepath.Join(h.Dir, "aside")) }, true},
		{"both are missing", func() error { return os.Remove(kept) }, false},
		{"the run no longer has it", func() error { return os.Rename(filepath.Join(h.Dir, "aside"), filepath.Join(h.Dir, "log.checkpoints")) }, true},
		{"the run has one of another log", func() error { return os.WriteFile(kept, []byte("x\n1\ny\n\n— x y\n\n"), 0o600) }, true},
	} {
		t.Run(change.title, func(t *testing.T) {
			if err := change.do(); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := h.Proofs().Bundle(t.Context(), &b, "", runs[0], host.BundleOptions{}); err != nil {
				t.Fatal(err)
			}
			shown := ""
			for name, data := range prooftest.Unpack(t, b.Bytes()) {
				if strings.HasSuffix(name, ".witnessed") {
					shown += string(data)
				}
			}
			if !change.want {
				if shown != "" {
					t.Errorf("shown: %s", shown)
				}
				return
			}
			if want := "\n\n" + verifierName(t, h) + "\n1\n"; !strings.Contains(shown, want) {
				t.Errorf("the first checkpoint is not shown: %s", shown)
			}
			path := filepath.Join(t.TempDir(), "b.tar")
			if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			e, err := proof.OpenBundle(path)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			r, err := proof.Verify(t.Context(), e, trust)
			if err != nil || r.Published.Witnessed.IsZero() || r.Published.Delay > time.Minute {
				t.Errorf("%+v, %v", r.Published, err)
			}
		})
	}
	e, closeEvidence, err := h.Proofs().OfRun(t.Context(), "", runs[0])
	if err != nil {
		t.Fatal(err)
	}
	r, err := proof.Verify(t.Context(), e, trust)
	if err := errors.Join(err, closeEvidence()); err != nil || r.Published.Witnessed.IsZero() {
		t.Errorf("%+v, %v", r.Published, err)
	}
}

func verifierName(t *testing.T, h *host.Host) string {
	t.Helper()
	key, err := h.Keys().Signing()
	if err != nil {
		t.Fatal(err)
	}
	return key.Name()
}
