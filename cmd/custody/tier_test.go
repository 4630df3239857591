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
	"github.com/custody-project/custody/redteam/simnet"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/vmm"
)

// noKVM is a mount namespace with the given file in place of /dev/kvm.
func noKVM(file string) []string {
	return []string{"unshare", "--mount", "sh", "-c", "[ -e /dev/kvm ] || : >/dev/kvm; mount --bind " + file + ` /dev/kvm && exec "$@"`, "sh"}
}

func TestCandidatesAreTheTiers(t *testing.T) {
	var names []string
	for _, c := range run.Tiers(host.Isolation{}) {
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
		"host and flag differ": {
			"/dev/null", func(d *door) { host(d, "isolation: {require: qemu-kvm}\n") }, []string{"--isolation", "qemu-tcg"},
			"the isolation is contradictory: isolation.require in host.yaml requires qemu-kvm, --isolation requires qemu-tcg",
		},
		"unknown":              {"/dev/null", nil, []string{"--isolation", "chroot"}, `isolation "chroot" is not known: the tiers are firecracker, qemu-kvm, gvisor, qemu-tcg`},
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
		case r.Kind == audit.KindVM && r.VM.Op == "restore":
			vm = r.VM.Tier == want && strings.HasPrefix(want, r.VM.Driver)
		}
	}
	if !run || !vm {
		d.Errorf("the record does not name the tier %s: run %v, vm %v", want, run, vm)
	}
}

// kindsOfARun are the kinds of records of a run that does a bit of everything, with observer and
// result. They are the same in every isolation tier.
var kindsOfARun = []string{
	"guest exec", "guest exit", "guest file create", "guest file read", "guest file write",
	"guest flow attempt",
	"host copy end", "host copy list",
	"host dns allow", "host dns deny", "host flow close", "host flow deny", "host flow open",
	"host output", "host policy", "host run end", "host run start",
	"host secret deliver", "host secret mint", "host secret revoke",
	"host step end", "host step start", "host vm destroy", "host vm restore",
}

// TestTiersRecordAlike runs the same project with each tier that works on this host.
func TestTiersRecordAlike(t *testing.T) {
	works := 0
	for _, c := range run.Tiers(host.Isolation{}) {
		t.Run(c.Tier, func(t *testing.T) {
			d, _ := newSite(t)
			if os.Getenv(firecrackerEnv) != "" {
				d.write(filepath.Join(d.home, "host.yaml"), firecrackerSettings(""))
			}
			d.env = append(d.env, "TOKEN=a-secret-of-the-test")
			d.project(rules("  - allow: "+simnet.Allowed) + `secrets:
  token: {from: "env:TOKEN", deliver: {env: TOKEN, file: token}}
steps:
  - name: works
    secrets: [token]
    run: |
      test "$(cat /run/secrets/token)" = "$TOKEN"
      echo content >file
      curl -sS --cacert ca.pem https://` + simnet.Allowed + `/page
      curl -sS --max-time 20 https://evil.example/ || true
      curl -sS --max-time 20 https://93.184.66.66/ || true
`)
			s := d.custody("run", "--isolation", c.Tier, "--workdir", d.dir)
			if s.code == exitFailed && strings.Contains(s.stderr, c.Tier+" is required and not available") {
				t.Logf("not on this host: %s", s.stderr)
				return
			}
			works++
			d.exited(0, s)
			d.hasTier(c.Tier)
			d.verified("last")
			kinds := map[string]bool{}
			for _, r := range d.records("last") {
				kinds[kindOf(r)] = true
			}
			// How often a lease is renewed, and whether a renewal comes too late, depends on the tier's speed.
			delete(kinds, "host secret renew")
			delete(kinds, "host secret refuse")
			if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, kindsOfARun) {
				t.Errorf("the record has\n%q, want\n%q", got, kindsOfARun)
			}
		})
	}
	if works == 0 {
		t.Error("no tier works here")
	}
}

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
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Observer, r.Kind, what))
}
