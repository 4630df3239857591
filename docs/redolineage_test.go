package docs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

// family is a scene with runs that continue each other: r-root is resumed as r-child, which is forked as r-fork-a and r-fork-b.
type family struct {
	*scene
	dirs map[string]string
}

func newFamily(t *testing.T) *family {
	f := &family{scene: newScene(t), dirs: map[string]string{}}
	f.run(t, "r-root", nil)
	f.run(t, "r-child", f.parent("resume", "r-root"))
	f.run(t, "r-fork-a", f.parent("fork", "r-child"))
	f.run(t, "r-fork-b", f.parent("fork", "r-child"))
	return f
}

func (f *family) parent(op, run string) *audit.Parent {
	p := must(proof.ParentOf(context.Background(), f.dirs[run]))
	p.Op = op
	return &p
}

// run writes a run that continues another one, with an entry in the log.
func (f *family) run(t *testing.T, run string, parent *audit.Parent) {
	t.Helper()
	f.runOf(t, f.key, run, parent)
}

func (f *family) runOf(t *testing.T, key hostkey.Key, run string, parent *audit.Parent) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), run)
	log := must(wal.Create(dir, wal.Options{Run: run, Sealer: statement.NewSealer(key, statement.Facts{})}))
	rec := audit.NewRecorder(log, redact.New(make([]byte, 32)))
	must(rec.Record(t.Context(), audit.Event{Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Parent: parent}}))
	for i := range 3 {
		ev := audit.Event{Observer: audit.Guest, Kind: audit.KindOutput, Output: &audit.Output{Stream: "stdout", Text: audit.Text(fmt.Sprintln("<line>", i))}}
		must(rec.Record(t.Context(), ev))
	}
	if err := log.Close(t.Context(), wal.Sealed); err != nil {
		t.Fatal(err)
	}
	f.dirs[run] = dir
	f.enter(t, dir)
	f.log.publish(f.cosigner)
}

// bundle returns the files of a run's bundle with those of these ancestors.
func (f *family) bundle(t *testing.T, run string, ancestors ...string) map[string][]byte {
	t.Helper()
	options := proof.BundleOptions{HostKey: f.key.Public, Signer: f.key, Log: f.log, Since: f.before, Rotations: [][]byte{f.rotation}}
	o := options
	for _, a := range ancestors {
		o.Ancestors = append(o.Ancestors, proof.BundledRun{Dir: f.dirs[a], Options: options})
	}
	var b bytes.Buffer
	if err := proof.WriteBundle(t.Context(), &b, f.dirs[run], o); err != nil {
		t.Fatal(err)
	}
	return prooftest.Unpack(t, b.Bytes())
}

// TestRedoLineage: all checkers follow the parents of a run to the root ancestor, and reach the same verdict.
func TestRedoLineage(t *testing.T) {
	t.Parallel()
	type files = map[string][]byte
	first, second := fmt.Sprintf("%020d.ancestor", 1), fmt.Sprintf("%020d.ancestor", 2)
	whole := func(t *testing.T, f *family) files { return f.bundle(t, "r-fork-a", "r-child", "r-root") }
	stating := func(change func(*audit.Parent)) func(*testing.T, *family) files {
		return func(t *testing.T, f *family) files {
			p := f.parent("fork", "r-child")
			change(p)
			f.run(t, "r-fork-a", p)
			return whole(t, f)
		}
	}
	changed := func(change func(files)) func(*testing.T, *family) files {
		return func(t *testing.T, f *family) files {
			b := whole(t, f)
			change(b)
			return b
		}
	}
	for name, c := range map[string]struct {
		make func(*testing.T, *family) files
		want error // nil: it holds
		say  string
	}{
		"three generations": {whole, nil, "fork of r-child, last manifest"},
		"the other fork":    {func(t *testing.T, f *family) files { return f.bundle(t, "r-fork-b", "r-child", "r-root") }, nil, "resume of r-root, last manifest"},
		"a root":            {func(t *testing.T, f *family) files { return f.bundle(t, "r-root") }, nil, ""},
		"parent missing":    {func(t *testing.T, f *family) files { return f.bundle(t, "r-fork-a") }, nil, "whose record is not here"},
		"root missing":      {func(t *testing.T, f *family) files { return f.bundle(t, "r-fork-a", "r-child") }, nil, "whose record is not here"},
		"erased": {func(t *testing.T, f *family) files {
			erase(t, f.dirs["r-root"], f.key, 2)
			f.enter(t, f.dirs["r-root"])
			f.log.publish(f.cosigner)
			return whole(t, f)
		}, nil, ""},
		"wrong root":          {stating(func(p *audit.Parent) { p.Root = strings.Repeat("0", 64) }), verdict.ErrParent, ""},
		"wrong manifest":      {stating(func(p *audit.Parent) { p.Manifest = p.Root }), verdict.ErrParent, ""},
		"wrong seq":           {stating(func(p *audit.Parent) { p.Seq = 0 }), verdict.ErrParent, ""},
		"wrong run":           {stating(func(p *audit.Parent) { p.Run = "r-root" }), verdict.ErrParent, ""},
		"wrong run, not here": {stating(func(p *audit.Parent) { p.Run = "" }), verdict.ErrParent, ""},
		"itself":              {stating(func(p *audit.Parent) { p.Run = "r-fork-a" }), verdict.ErrCycle, ""},
		"cycle": {func(t *testing.T, f *family) files {
			p := f.parent("fork", "r-child")
			p.Run = "r-fork-a"
			f.run(t, "r-root", p)
			f.run(t, "r-child", f.parent("resume", "r-root"))
			f.run(t, "r-fork-a", f.parent("fork", "r-child"))
			return whole(t, f)
		}, verdict.ErrCycle, ""},
		"parent swapped":  {func(t *testing.T, f *family) files { return f.bundle(t, "r-fork-a", "r-fork-b", "r-child") }, verdict.ErrParent, ""},
		"order":           {changed(func(b files) { b[first], b[second] = b[second], b[first] }), verdict.ErrParent, ""},
		"parent left out": {changed(func(b files) { delete(b, first) }), verdict.ErrStray, ""},
		"one too many":    {changed(func(b files) { b[fmt.Sprintf("%020d.ancestor", 3)] = b[second] }), verdict.ErrStray, ""},
		"no bundle":       {changed(func(b files) { b[second] = []byte("x") }), verdict.ErrBundle, ""},
		"nested": {func(t *testing.T, f *family) files {
			b := whole(t, f)
			b[first] = prooftest.Bundle(f.bundle(t, "r-child", "r-root")).Pack(t)
			return b
		}, verdict.ErrStray, ""},
		"ancestor altered": {func(t *testing.T, f *family) files {
			b := whole(t, f)
			of := prooftest.Unpack(t, b[second])
			seg := of[fmt.Sprintf("%020d.seg", 1)]
			seg[len(seg)-2] ^= 1
			b[second] = of.Seal(t, f.key).Pack(t)
			return b
		}, verdict.ErrDoesNotHold, ""},
		"of a stranger": {func(t *testing.T, f *family) files {
			stranger := must(hostkey.LoadOrCreate(filepath.Join(t.TempDir(), "keys")))
			f.runOf(t, stranger, "r-root", nil)
			f.run(t, "r-child", f.parent("resume", "r-root"))
			b := f.bundle(t, "r-child")
			var out bytes.Buffer
			o := proof.BundleOptions{HostKey: stranger.Public, Signer: stranger, Log: f.log, Since: f.before}
			if err := proof.WriteBundle(t.Context(), &out, f.dirs["r-root"], o); err != nil {
				t.Fatal(err)
			}
			b[first] = out.Bytes()
			return b
		}, verdict.ErrCannotBeJudged, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFamily(t)
			bundle := f.seal(t, c.make(t, f))
			want, err := ours(t, bundle, f.trust)
			if c.want != nil && !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("verify: %v, want %v", err, c.want)
			}
			newCheckers(t).agree(name, want, err, append([]string{bundle}, f.arguments...)...)
			if code, out := theirs(t, bundle, f.arguments...); code != want || !strings.Contains(out, c.say) {
				t.Errorf("%d, want %d: %s", code, want, out)
			}
		})
	}
}
