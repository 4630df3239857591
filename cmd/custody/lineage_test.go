package main

import (
	"fmt"
	"iter"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
)

// continuing are the events of a run that continues another one, and is paused at the end.
func continuing(parent *audit.Parent) iter.Seq[audit.Event] {
	return func(yield func(audit.Event) bool) {
		for _, l := range []audit.Lifecycle{{Phase: audit.PhaseStart, Project: "lineage", Tier: "qemu-tcg", Parent: parent}, {Phase: audit.PhaseEnd, Status: audit.StatusPaused}} {
			if !yield(audit.Event{Time: time.Now(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &l}) {
				return
			}
		}
	}
}

// TestLineage: verify, bundle, timeline, verify.py and the page follow the parents of a run.
func TestLineage(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	of := func(op, run string) *audit.Parent {
		p, err := proof.ParentOf(t.Context(), filepath.Join(d.home, "runs", run))
		if err != nil {
			t.Fatal(err)
		}
		p.Op = op
		return &p
	}
	root := sampleruns.Record(t, d.home, continuing(nil))
	child := sampleruns.Record(t, d.home, continuing(of(audit.OpResume, root)))
	one := sampleruns.Record(t, d.home, continuing(of(audit.OpFork, child)))
	two := sampleruns.Record(t, d.home, continuing(of(audit.OpFork, child)))
	wrong := of(audit.OpFork, child)
	wrong.Root = strings.Repeat("0", 64)
	forged := sampleruns.Record(t, d.home, continuing(wrong))

	contains := func(text string, all ...string) {
		t.Helper()
		for _, want := range all {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	}
	line := []string{"parent    fork of " + child + " at seq 2, manifest ", ": verified, 2 records", "ancestor  resume of " + root}
	contains(d.must(0, "verify", one).stdout, line...)
	contains(d.must(0, "timeline", one).stdout, "fork of "+child+" at seq 2, manifest ")
	contains(d.must(0, "verify", "--json", one).stdout, `"lineage":[{"op":"fork","run":"`+child+`","seq":2,`, `"state":"verified"`)
	d.must(1, "verify", forged)
	d.must(67, "verify", "--detailed", forged)

	bundle := filepath.Join(t.TempDir(), "b.tar")
	d.must(0, "bundle", two, "-o", bundle)
	key := filepath.Join(d.home, "keys", "host.pub")
	contains(d.must(0, "verify", "--key", key, bundle).stdout, line...)
	out, err := exec.Command("python3", "-I", "../../docs/verify.py", bundle, "--key", key).CombinedOutput()
	if err != nil {
		t.Errorf("verify.py: %v", err)
	}
	contains(string(out), "HOLDS: run "+two, "fork of "+child, "resume of "+root)

	if _, err := exec.LookPath("chromium"); err != nil {
		return
	}
	s := d.serving("--run", one)
	p := browser.Open(t, s.link, 1280, 800)
	p.WaitTextIn(".run-head", "Fork of", child)
	p.ClickText(".run-head summary", "Lineage")
	p.WaitTextIn(".lineage", root, child, one, two, "compare")
}

// TestLineageErased: an erased record of a parent, and a parent whose whole record retention deleted, are no findings about
// the child. An erasure after the child began does not change what the child states.
func TestLineageErased(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	parent := sampleruns.Record(t, d.home, sampleruns.Review())
	p, err := proof.ParentOf(t.Context(), filepath.Join(d.home, "runs", parent))
	if err != nil {
		t.Fatal(err)
	}
	p.Op = audit.OpResume
	of := d.records(parent, "output", "exec", "file")
	d.must(0, "erase", parent, fmt.Sprint(of[0].Seq), "--reason", "a request", "--by", "dpo")
	child := sampleruns.Record(t, d.home, continuing(&p))
	d.contains(d.must(0, "verify", child).stdout, "resume of "+parent, "verified, 1 of ", " records erased")
	d.retaining("delete_after: 1ms")
	time.Sleep(time.Millisecond)
	d.must(0, "prune")
	d.retaining("delete_after: 100h")
	again := sampleruns.Record(t, d.home, continuing(&p))
	d.contains(d.must(0, "verify", again).stdout, "resume of "+parent, "erased: the host deleted the whole record on ", "delete_after: 1ms")
	bundle := filepath.Join(t.TempDir(), "b.tar")
	d.must(0, "bundle", again, "-o", bundle)
	d.contains(d.must(0, "verify", bundle).stdout, "resume of "+parent, "not here: ask for the record with this manifest")
	p.Manifest = p.Root
	d.must(1, "verify", sampleruns.Record(t, d.home, continuing(&p)))
}
