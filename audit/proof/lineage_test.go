package proof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

// TestParentOf: the parent of a run is known only once its record is closed.
func TestParentOf(t *testing.T) {
	k, ctx := newKey(t), context.Background()
	dir := filepath.Join(t.TempDir(), "r-parent")
	l, err := wal.Create(dir, wal.Options{Run: "r-parent", Sealer: statement.NewSealer(k.signer, facts), SegmentAge: time.Hour})
	check(t, err)
	_, err = l.Append(ctx, output(t, "line\n"))
	check(t, err)
	if _, err := proof.ParentOf(ctx, dir); !errors.Is(err, verdict.ErrLive) {
		t.Errorf("live: %v", err)
	}
	check(t, l.Close(ctx, wal.Interrupted))
	p, err := proof.ParentOf(ctx, dir)
	check(t, err)
	last := glob(t, dir, wal.ManifestSuffix)
	m, signed := manifestOf(t, last[len(last)-1])
	if p.Run != "r-parent" || p.Seq != 1 || p.Root != m.Root.String() || p.Manifest != statement.Digest(signed).String() {
		t.Errorf("%+v", p)
	}
	if p.Seq != m.Last || len(p.Root) != 64 || len(p.Manifest) != 64 {
		t.Errorf("%+v, the manifest ends at seq %d", p, m.Last)
	}
	if r, err := verifyDir(t, dir, k.trusted); err != nil || r.Head.String() != p.Manifest {
		t.Errorf("%v, head %s", err, r.Head)
	}
	check(t, os.Remove(last[len(last)-1]))
	if _, err := proof.ParentOf(ctx, dir); !errors.Is(err, verdict.ErrTailCut) {
		t.Errorf("cut: %v", err)
	}
	if _, err := proof.ParentOf(ctx, filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

// family writes runs that continue each other:
//
//	r-root --resume--> r-child --fork--> r-fork-a
//	                      `------fork--> r-fork-b
type family struct {
	*world
	dirs map[string]string
}

func newFamily(t testing.TB) *family {
	f := &family{world: newWorld(t), dirs: map[string]string{}}
	f.run(t, "r-root", nil)
	f.run(t, "r-child", f.parent(t, audit.OpResume, "r-root"))
	f.run(t, "r-fork-a", f.parent(t, audit.OpFork, "r-child"))
	f.run(t, "r-fork-b", f.parent(t, audit.OpFork, "r-child"))
	return f
}

func (f *family) parent(t testing.TB, op, run string) *audit.Parent {
	t.Helper()
	p, err := proof.ParentOf(t.Context(), f.dirs[run])
	check(t, err)
	p.Op = op
	return &p
}

// run writes a run with a parent, and logs it. It replaces an earlier one of the same name.
func (f *family) run(t testing.TB, run string, parent *audit.Parent) string {
	t.Helper()
	dir := newChild(t, f.key, run, parent)
	f.dirs[run] = dir
	f.log.log(t, dir)
	f.log.publish(t, f.witness)
	return dir
}

// newChild writes a closed run of three records whose first one names a parent.
func newChild(t testing.TB, k key, run string, parent *audit.Parent) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), run)
	l, err := wal.Create(dir, wal.Options{Run: run, Sealer: statement.NewSealer(k.signer, facts), SegmentAge: time.Hour})
	check(t, err)
	start, err := red.Seal(&audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindRun,
		Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Parent: parent}})
	check(t, err)
	for _, event := range []redact.Sealed{start, output(t, run), output(t, "end")} {
		_, err := l.Append(t.Context(), event)
		check(t, err)
	}
	check(t, l.Close(t.Context(), wal.Sealed))
	return dir
}

// bundleOf returns the bundle of a run with its ancestors.
func (f *family) bundleOf(t testing.TB, run string, ancestors ...string) files {
	t.Helper()
	o := f.options()
	for _, a := range ancestors {
		o.Ancestors = append(o.Ancestors, proof.BundledRun{Dir: f.dirs[a], Options: f.options()})
	}
	var b, again bytes.Buffer
	check(t, proof.WriteBundle(t.Context(), &b, f.dirs[run], o))
	check(t, proof.WriteBundle(t.Context(), &again, f.dirs[run], o))
	if !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Error("the same record gives different bundles")
	}
	return unpack(t, b.Bytes())
}

// verifyRun verifies a run in its directory, with those of its ancestors.
func (f *family) verifyRun(t testing.TB, run string, deleted map[string]*statement.Deletion) (proof.Report, error) {
	t.Helper()
	e, err := proof.OpenDir(f.dirs[run])
	check(t, err)
	defer e.Close()
	e.Log = f.log
	e.Ancestors = func(_ context.Context, run string) (*proof.Evidence, *statement.Deletion, error) {
		if d := deleted[run]; d != nil || f.dirs[run] == "" {
			return nil, d, nil
		}
		a, err := proof.OpenDir(f.dirs[run])
		if err == nil {
			a.Log = f.log
		}
		return a, nil, err
	}
	return proof.Verify(t.Context(), e, proof.Trust{Keys: f.trusted})
}

// states returns what a report says about the ancestors.
func states(r proof.Report) string {
	var all []string
	for _, a := range r.Lineage {
		all = append(all, fmt.Sprintf("%s %s %s", a.Op, a.Run, a.State))
	}
	return strings.Join(all, ", ")
}

// TestLineage verifies lineages, in directories and in bundles.
func TestLineage(t *testing.T) {
	const whole = "fork r-child verified, resume r-root verified"
	other := func(t *testing.T, f *family, change func(*audit.Parent)) {
		p := f.parent(t, audit.OpFork, "r-child")
		change(p)
		f.run(t, "r-fork-a", p)
	}
	for name, c := range map[string]struct {
		change  func(*testing.T, *family)
		lineage string
		want    error // nil: it holds
	}{
		"three generations": {func(*testing.T, *family) {}, whole, nil},
		"wrong root": {func(t *testing.T, f *family) {
			other(t, f, func(p *audit.Parent) { p.Root = strings.Repeat("0", 64) })
		}, "", verdict.ErrParent},
		"wrong seq": {func(t *testing.T, f *family) { other(t, f, func(p *audit.Parent) { p.Seq++ }) }, "", verdict.ErrParent},
		"wrong manifest": {func(t *testing.T, f *family) {
			other(t, f, func(p *audit.Parent) { p.Manifest = p.Root })
		}, "", verdict.ErrParent},
		"upper case": {func(t *testing.T, f *family) {
			other(t, f, func(p *audit.Parent) { p.Root = strings.ToUpper(p.Root) })
		}, "", verdict.ErrParent},
		"another run": {func(t *testing.T, f *family) {
			other(t, f, func(p *audit.Parent) { p.Run = "r-root" })
		}, "", verdict.ErrParent},
		"parent swapped": {func(t *testing.T, f *family) { f.dirs["r-child"] = f.dirs["r-fork-b"] }, "", verdict.ErrParent},
		"parent written again": {func(t *testing.T, f *family) {
			f.run(t, "r-child", f.parent(t, audit.OpResume, "r-root"))
		}, "", verdict.ErrParent},
		"root written again": {func(t *testing.T, f *family) { f.run(t, "r-root", nil) }, "fork r-child verified", verdict.ErrParent},
		"itself": {func(t *testing.T, f *family) {
			other(t, f, func(p *audit.Parent) { p.Run = "r-fork-a" })
		}, "", verdict.ErrCycle},
		"cycle": {func(t *testing.T, f *family) {
			p := f.parent(t, audit.OpFork, "r-child")
			p.Run = "r-fork-a"
			f.run(t, "r-root", p)
			f.run(t, "r-child", f.parent(t, audit.OpResume, "r-root"))
			f.run(t, "r-fork-a", f.parent(t, audit.OpFork, "r-child"))
		}, whole, verdict.ErrCycle},
		"altered ancestor": {func(t *testing.T, f *family) {
			reframe(t, segPath(f.dirs["r-root"], 1), func(fs []frame) []frame { return fs[1:] })
		}, "fork r-child verified", verdict.ErrMissing},
		"erased in an ancestor": {func(t *testing.T, f *family) {
			f.erase(t, "r-root", 2)
		}, whole, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFamily(t)
			c.change(t, f)
			b := f.bundleOf(t, "r-fork-a", "r-child", "r-root")
			for form, verify := range map[string]func() (proof.Report, error){
				"directory": func() (proof.Report, error) { return f.verifyRun(t, "r-fork-a", nil) },
				"bundle":    func() (proof.Report, error) { return b.verify(t, f.trust()) },
			} {
				r, err := verify()
				if c.want == nil {
					check(t, err)
				} else if !errors.Is(err, c.want) || !errors.Is(err, verdict.ErrDoesNotHold) {
					t.Errorf("%s: %v, want %v", form, err, c.want)
				}
				if got := states(r); got != c.lineage {
					t.Errorf("%s: %q, want %q", form, got, c.lineage)
				}
				if name == "erased in an ancestor" && r.Lineage[1].Erased != 1 {
					t.Errorf("%s: %+v", form, r.Lineage)
				}
			}
		})
	}
}

// erase erases a record of a run that is logged.
func (f *family) erase(t testing.TB, run string, seq uint64) {
	t.Helper()
	w := *f.world
	w.one = f.dirs[run]
	eraseRecord(t, &w, seq)
}

// TestLineageIncomplete: an ancestor that is not in the evidence is named, and no finding.
func TestLineageIncomplete(t *testing.T) {
	f := newFamily(t)
	for want, ancestors := range map[string][]string{
		"fork r-child missing":                          nil,
		"fork r-child verified, resume r-root missing":  {"r-child"},
		"fork r-child verified, resume r-root verified": {"r-child", "r-root"},
	} {
		r, err := f.bundleOf(t, "r-fork-b", ancestors...).verify(t, f.trust())
		check(t, err)
		if got := states(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	p := f.parent(t, "", "r-root")
	deletion := &statement.Deletion{Run: "r-root"}
	if _, err := f.verifyRun(t, "r-child", map[string]*statement.Deletion{"r-root": deletion}); !errors.Is(err, verdict.ErrParent) {
		t.Errorf("deleted with another manifest: %v", err)
	}
	check(t, deletion.Manifest.UnmarshalText([]byte(p.Manifest)))
	r, err := f.verifyRun(t, "r-child", map[string]*statement.Deletion{"r-root": deletion})
	check(t, err)
	if got := states(r); got != "resume r-root deleted" || r.Lineage[0].Parent.Manifest != p.Manifest {
		t.Errorf("%q, %+v", got, r.Lineage)
	}
	delete(f.dirs, "r-root")
	if r, err = f.verifyRun(t, "r-child", nil); err != nil || states(r) != "resume r-root missing" {
		t.Errorf("%v, %q", err, states(r))
	}
}

// TestLineageStrays: a bundle has the ancestors of its run, in order, and nothing else.
func TestLineageStrays(t *testing.T) {
	f := newFamily(t)
	whole := f.bundleOf(t, "r-fork-a", "r-child", "r-root")
	name := func(n uint64) string { return wal.FileName(n, ".ancestor") }
	nested := func(b files) files { // the parent's bundle has a lineage of its own
		b[name(1)] = f.bundleOf(t, "r-child", "r-root").pack(t)
		return b
	}
	for what, c := range map[string]struct {
		change func(b files) files
		want   error
	}{
		"order":     {func(b files) files { b[name(1)], b[name(2)] = b[name(2)], b[name(1)]; return b }, verdict.ErrParent},
		"one more":  {func(b files) files { b[name(3)] = b[name(2)]; return b }, verdict.ErrStray},
		"none of 1": {func(b files) files { delete(b, name(1)); return b }, verdict.ErrStray},
		"no bundle": {func(b files) files { b[name(2)] = []byte("x"); return b }, verdict.ErrBundle},
		"nested":    {nested, verdict.ErrStray},
		"trailer":   {func(b files) files { b[name(1)] = b[name(1)][:len(b[name(1)])-1]; return b }, verdict.ErrBundle},
		"no parent": {func(files) files {
			b := f.bundleOf(t, "r-root")
			b[name(1)] = whole[name(1)]
			return b
		}, verdict.ErrStray},
	} {
		b := c.change(maps.Clone(whole)).seal(t, f.key)
		if _, err := b.verify(t, f.trust()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

// TestLineageOfAnotherKey: the record of an ancestor that an unknown key signed leaves the question open.
func TestLineageOfAnotherKey(t *testing.T) {
	f := newFamily(t)
	other := newKeyNamed(t, "another-host")
	f.dirs["r-root"] = newChild(t, other, "r-root", nil)
	f.log.log(t, f.dirs["r-root"])
	f.run(t, "r-child", f.parent(t, audit.OpResume, "r-root"))
	r, err := f.verifyRun(t, "r-child", nil)
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrUnknownKey, 0)
	if states(r) != "resume r-root doubtful" {
		t.Errorf("%q", states(r))
	}
}
