package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/vmm"
)

// noKVM is a mount namespace with the given file in place of /dev/kvm.
func noKVM(file string) []string {
	return []string{"unshare", "--mount", "sh", "-c", "[ -e /dev/kvm ] || : >/dev/kvm; mount --bind " + file + ` /dev/kvm && exec "$@"`, "sh"}
}

func TestCandidatesAreTheTiers(t *testing.T) {
	var names []string
	for _, c := range hostd.Tiers(host.Isolation{}) {
		names = append(names, c.Tier)
		if c.Note == "" {
			t.Errorf("%s has no note", c.Tier)
		}
	}
	if !slices.Equal(names, vmm.Tiers()) {
		t.Errorf("candidates %v, tiers %v", names, vmm.Tiers())
	}
}

// Requiring a tier that is not available is an error before there is a run. A device
// that only has the name of KVM is none.
func TestRequiredTier(t *testing.T) {
	t.Parallel()
	regular := filepath.Join(t.TempDir(), "kvm")
	if err := os.WriteFile(regular, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	project := func(d *door, text string) { d.project("version: 1\n" + text) }
	host := func(d *door, text string) { d.write(filepath.Join(d.home, "host.yaml"), "version: 1\n"+text) }
	for name, c := range map[string]struct {
		device  string
		prepare func(*door)
		flags   []string
		says    string // empty: it runs under software emulation
	}{
		"nobody requires one":      {"/dev/null", nil, nil, ""},
		"the flag":                 {"/dev/null", nil, []string{"--isolation", "qemu-kvm"}, "qemu-kvm is required and not available: /dev/kvm is not a usable KVM device"},
		"the flag, a regular file": {regular, nil, []string{"--isolation", "qemu-kvm"}, "qemu-kvm is required and not available: /dev/kvm is not a usable KVM device"},
		"custody.yaml":             {"/dev/null", func(d *door) { project(d, "isolation: qemu-kvm\n") }, nil, "qemu-kvm is required and not available"},
		"host.yaml":                {"/dev/null", func(d *door) { host(d, "isolation: {require: qemu-kvm}\n") }, nil, "qemu-kvm is required and not available"},
		"software emulation":       {"/dev/null", func(d *door) { project(d, "isolation: qemu-tcg\n") }, []string{"--isolation", "qemu-tcg"}, ""},
		"and flag differ": {
			"/dev/null", func(d *door) { host(d, "isolation: {require: qemu-kvm}\n") }, []string{"--isolation", "qemu-tcg"},
			"the isolation is contradictory: isolation.require in host.yaml requires qemu-kvm, --isolation requires qemu-tcg",
		},
		"unknown":              {"/dev/null", nil, []string{"--isolation", "chroot"}, `unknown isolation "chroot": the tiers are firecracker, qemu-kvm, gvisor, qemu-tcg`},
		"unknown in the file":  {"/dev/null", func(d *door) { project(d, "isolation: chroot\n") }, nil, `custody.yaml:2:12: isolation cannot be "chroot"`},
		"unknown in host.yaml": {"/dev/null", func(d *door) { host(d, "isolation: {require: chroot}\n") }, nil, `isolation.require "chroot": want one of firecracker, qemu-kvm, gvisor, qemu-tcg`},
		"a probe of no time":   {"/dev/null", func(d *door) { host(d, "isolation: {probe: soon}\n") }, nil, "soon is not a duration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDoor(t)
			if c.prepare != nil {
				c.prepare(d)
			}
			s := d.wrapped(slices.Concat([]string{"run"}, c.flags, []string{"--", "true"}), noKVM(c.device)...)
			if c.says == "" {
				if s.code != 0 {
					t.Fatalf("exit code %d: %s", s.code, s.stderr)
				}
				d.hasTier(vmm.QEMUTCG)
				return
			}
			if s.code != exitFailed || !strings.Contains(s.stderr, c.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s", s.code, exitFailed, c.says, s.stderr)
			}
			if entries, _ := os.ReadDir(filepath.Join(d.home, "runs")); len(entries) > 0 {
				t.Error("there is a run")
			}
		})
	}
}

// hasTier reports whether the last run's record names this tier, and the driver that gave it.
func (d *door) hasTier(want string) {
	d.Helper()
	var run, vm bool
	for _, r := range d.records("last") {
		switch {
		case r.Kind == audit.KindRun && r.Lifecycle.Phase == audit.PhaseStart:
			run = r.Lifecycle.Tier == want && r.Lifecycle.TierNote != ""
		case r.Kind == audit.KindVM && (r.VM.Op == "restore" || r.VM.Op == "boot"):
			vm = r.VM.Tier == want && strings.HasPrefix(want, r.VM.Driver)
		}
	}
	if !run || !vm {
		d.Errorf("the record does not name the tier %s: run %v, vm %v", want, run, vm)
	}
}

// kindsOfARun are the kinds of records of a run that does a bit of everything, as kindOf has them.
var kindsOfARun = []string{
	"exec", "exit", "file create", "file read", "file write",
	"flow attempt",
	"copy end", "copy list",
	"dns allow", "dns deny", "flow close", "flow deny", "flow open",
	"output", "policy", "run end", "run start",
	"secret deliver", "secret mint", "secret revoke",
	"step end", "step start", "vm destroy", "vm restore",
}

// TestTiersRecordAlike compares what the tiers whose guests observe record of the same run.
func TestTiersRecordAlike(t *testing.T) {
	must := os.Getenv("CUSTODY_TEST_TIER")
	if must == "" {
		must = vmm.QEMUTCG
	}
	records := map[string][]string{}
	for _, tier := range []string{vmm.Firecracker, vmm.QEMUKVM, vmm.QEMUTCG} {
		t.Run(tier, func(t *testing.T) {
			d := newDoor(t)
			d.inTier(tier)
			if s := d.custody("run", "-q", "--", "true"); tier != must && s.code == exitFailed && strings.Contains(s.stderr, tier+" is required and not available") {
				t.Logf("not on this host: %s", s.stderr)
				return
			}
			kinds := map[string]bool{}
			for _, r := range d.doesABit() {
				kinds[fmt.Sprintf("%s %s", r.Observer, kindOf(r))] = true
			}
			d.hasTier(tier)
			// How often a lease is renewed, and whether a renewal comes too late, depends on the tier's speed.
			delete(kinds, "host secret renew")
			delete(kinds, "host secret refuse")
			records[tier] = slices.Sorted(maps.Keys(kinds))
		})
	}
	if len(records[must]) < len(kindsOfARun) {
		t.Errorf("%s records only %q", must, records[must])
	}
	for tier, kinds := range records {
		if !slices.Equal(kinds, records[must]) {
			t.Errorf("%s records\n%q, %s\n%q", tier, kinds, must, records[must])
		}
	}
}

// kindOf is the kind of a record and what happened, without the observer, which depends on the tier.
func kindOf(r audit.Record) string {
	what := ""
	switch {
	case r.Lifecycle != nil:
		what = string(r.Lifecycle.Phase)
	case r.File != nil:
		what = string(r.File.Op)
	case r.DNS != nil:
		what = string(r.DNS.Verdict)
	case r.Flow != nil:
		what = string(r.Flow.State)
	case r.Secret != nil:
		what = string(r.Secret.Op)
	case r.VM != nil:
		what = r.VM.Op
	case r.Copy != nil:
		what = string(r.Copy.Op)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", r.Kind, what))
}
