package host_test

import (
	"bytes"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
)

// continued are the events of a run that continues another one.
func continued(parent *audit.Parent) iter.Seq[audit.Event] {
	return func(yield func(audit.Event) bool) {
		start := audit.Lifecycle{Phase: audit.PhaseStart, Parent: parent}
		_ = yield(audit.Event{Time: time.Now(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &start}) &&
			yield(audit.Event{Time: time.Now(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusPaused}})
	}
}

// TestLineage: a host verifies the ancestors of its runs, and includes them in bundles.
func TestLineage(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	h, err := host.Open(dir)
	must(t, err)
	parentOf := func(run string) *audit.Parent {
		p, err := proof.ParentOf(ctx, h.RunDir(run))
		must(t, err)
		p.Op = audit.OpFork
		return &p
	}
	root := sampleruns.Record(t, dir, continued(nil))
	child := sampleruns.Record(t, dir, continued(parentOf(root)))
	one := sampleruns.Record(t, dir, continued(parentOf(child)))
	two := sampleruns.Record(t, dir, continued(parentOf(child)))
	wrong := parentOf(child)
	wrong.Run = root
	stray := sampleruns.Record(t, dir, continued(wrong))

	st, err := h.Reader(ctx)
	must(t, err)
	defer st.Close()
	keys, err := h.Fleet().Known()
	must(t, err)
	trust := proof.Trust{Keys: keys}
	bundled := func(run string, o host.BundleOptions) (proof.Report, error) {
		var b bytes.Buffer
		must(t, h.Proofs().Bundle(ctx, &b, "", run, o))
		path := filepath.Join(t.TempDir(), "b.tar")
		must(t, os.WriteFile(path, b.Bytes(), 0o600))
		e, err := proof.OpenBundle(path)
		must(t, err)
		defer e.Close()
		return proof.Verify(ctx, e, trust)
	}
	states := func(r proof.Report) (all []proof.AncestorState) {
		for _, a := range r.Lineage {
			all = append(all, a.State)
		}
		return all
	}
	for _, run := range []string{one, two} {
		for form, verify := range map[string]func() (proof.Report, error){
			"host":   func() (proof.Report, error) { return h.Checks().Verify(ctx, st, "", run, trust) },
			"bundle": func() (proof.Report, error) { return bundled(run, host.BundleOptions{}) },
		} {
			r, err := verify()
			must(t, err)
			if s := states(r); len(s) != 2 || r.Lineage[0].Run != child || r.Lineage[1].Run != root || s[0] != proof.AncestorVerified || s[1] != proof.AncestorVerified {
				t.Errorf("%s: %+v", form, r.Lineage)
			}
		}
	}
	if _, err := h.Checks().Verify(ctx, st, "", stray, trust); !errors.Is(err, verdict.ErrParent) {
		t.Errorf("wrong parent on the host: %v", err)
	}
	if _, err := bundled(stray, host.BundleOptions{}); !errors.Is(err, verdict.ErrParent) {
		t.Errorf("wrong parent in a bundle: %v", err)
	}
	some := host.BundleOptions{Select: &proof.Selection{What: "some", Shows: func(uint64) bool { return true }}}
	if r, err := bundled(one, some); err != nil || len(r.Lineage) != 1 || r.Lineage[0].State != proof.AncestorMissing {
		t.Errorf("a selection: %v, %+v", err, r.Lineage)
	}
	if r, err := h.Checks().Verify(ctx, st, "another-tenant", one, trust); err == nil {
		t.Errorf("of another tenant: %+v", r)
	}
}
