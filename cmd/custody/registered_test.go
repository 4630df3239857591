package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

// registeredShop is a project that an admin registers.
const registeredShop = `version: 1
project: shop
isolation: gvisor
resolvers: ["udp://192.0.2.1"]
egress:
- {allow: "*.example.com", ports: [tcp/443, tcp/8443]}
secrets:
  key: {from: "file:%s", deliver: {env: KEY}}
limits: {time: 5m}
steps:
- {name: hello, run: 'test "$KEY" = in-the-file && echo hello', secrets: [key]}
`

// narrowShop narrows it.
const narrowShop = `version: 1
egress:
- {allow: a.example.com}
limits: {time: 4m}
steps: [{name: other, run: echo narrowed}]
`

func digestOf(text string) string { return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(text))) }

// newShop returns a user of a host on which the project shop is registered, and the file as it was registered.
func newShop(t *testing.T) (d *door, shop string) {
	d = newGVisorDoor(t)
	d.asks = true
	key := filepath.Join(d.dir, "key")
	if err := os.WriteFile(key, []byte("in-the-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	shop = fmt.Sprintf(registeredShop, key)
	d.write(filepath.Join(d.dir, "shop.yaml"), shop)
	d.write(filepath.Join(d.dir, "narrow.yaml"), narrowShop)
	d.must(0, "project", "apply", "shop.yaml")
	return d, shop
}

func (d *door) began(run string) audit.Lifecycle {
	d.Helper()
	return *d.records(run, "run")[0].Lifecycle
}

// TestRegistered: a run of a registered project uses its file without a question, and the record names the version.
func TestRegistered(t *testing.T) {
	t.Parallel()
	d, shop := newShop(t)
	d.project("version: 1\nproject: mine\nsteps: [{name: s, run: echo mine}]\n")
	said := d.must(0, "run", "--project", "shop")
	if said.stdout != "hello\n" {
		t.Errorf("it prints %q", said.stdout)
	}
	d.contains(said.stderr, "custody.yaml here is not used: the run is of the registered project shop, version 1; --policy custody.yaml narrows it", "registered project shop, version 1")
	l := d.began("last")
	if l.Project != "shop" || l.ProjectVersion != 1 || l.ProjectAuthor != "root" || l.ProjectDigest != digestOf(shop) || l.NarrowingDigest != "" {
		t.Errorf("%+v", l)
	}
	d.contains(d.must(0, "timeline", "last").stdout, "project shop, registered version 1 of root")

	// The next version is for the next run.
	d.write(filepath.Join(d.dir, "shop.yaml"), shop+"# changed\n")
	d.must(0, "project", "apply", "shop.yaml")
	d.must(125, "run", "--project", "shop", "--policy", "narrow.yaml") // not trusted
	said = d.must(0, "run", "--project", "shop", "--policy", "narrow.yaml", "--trust")
	if said.stdout != "narrowed\n" {
		t.Errorf("it prints %q", said.stdout)
	}
	l = d.began("last")
	if l.Project != "shop" || l.ProjectVersion != 2 || l.ProjectDigest != digestOf(shop+"# changed\n") || l.NarrowingDigest != digestOf(narrowShop) {
		t.Errorf("%+v", l)
	}
	d.verified("last")

	// So is a file that claims the name.
	d.project("project: shop\n" + narrowShop)
	d.must(0, "run", "--trust")
	if l = d.began("last"); l.ProjectVersion != 2 || l.NarrowingDigest != digestOf("project: shop\n"+narrowShop) {
		t.Errorf("%+v", l)
	}
}

// TestRegisteredPolicySet: the policy of a live run of a registered project stays within the version that it began with.
func TestRegisteredPolicySet(t *testing.T) {
	t.Parallel()
	d, shop := newShop(t)
	cmd, _ := d.begun("run", "-q", "--trust", "--project", "shop", "--policy", "narrow.yaml", "--", "sh", "-c", "echo 'begun !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!!'; exec sleep 100")
	set := func(code int, file, says string) {
		t.Helper()
		d.write(filepath.Join(d.dir, "set.yaml"), file)
		said := d.must(code, "policy", "set", "--trust", "last", "set.yaml")
		d.contains(said.stdout+said.stderr, says)
	}
	set(125, "version: 1\negress:\n- {allow: \"*.com\"}\n", "a whole top-level domain cannot be allowed")
	set(125, "version: 1\negress:\n- {allow: \"*.example.com\"}\n- {allow: example.com}\n",
		"the new policy asks for more than the registered project shop (version 1) allows")
	set(125, "version: 1\negress:\n- {allow: a.example.com, ports: [tcp/444]}\n", "the new policy:3:3: egress: a.example.com tcp/444: the closest rule does not allow tcp/444")
	set(125, "version: 1\negress:\n- {allow: a.example.com, mode: direct}\n", "the closest rule has the other mode")
	set(125, "version: 1\nproject: other\n", "project: other; the project allows shop")
	set(0, "version: 1\negress:\n- {allow: \"*.b.example.com\", ports: [tcp/8443]}\n", "generation 2")

	// What is registered or withdrawn meanwhile does not change the limit of the run.
	d.write(filepath.Join(d.dir, "shop.yaml"), strings.Replace(shop, "*.example.com", "*.example.org", 1))
	d.must(0, "project", "apply", "shop.yaml")
	d.must(0, "project", "rm", "shop")
	set(125, "version: 1\negress:\n- {allow: a.example.org}\n", "no rule allows this destination")
	set(0, "version: 1\negress:\n- {allow: a.example.com}\n", "generation 3")
	d.contains(d.must(125, "run", "--project", "shop").stderr, "the project shop was withdrawn by root")
	for d.custody("timeline", "last").code != 0 { // the store gets a live run's first segment after a second
		time.Sleep(50 * time.Millisecond)
	}
	if l := d.began("last"); l.ProjectVersion != 1 {
		t.Errorf("%+v", l)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// TestRegisteredSources: the commands of a registered project run in the root directory, and those of a file that narrows it
// do too, although the file is in another one.
func TestRegisteredSources(t *testing.T) {
	t.Parallel()
	const where = `version: 1
project: %s
isolation: gvisor
secrets: {where: {from: 'cmd:%s', deliver: {env: WHERE}}}
steps: [{name: s, run: 'test "$WHERE" = the-directory-is-/', secrets: [where]}]
`
	d := newGVisorDoor(t)
	d.env = append(d.env, "SUDO_UID=65534")
	for name, command := range map[string]string{"there": `printf the-directory-is-%s "$PWD"`, "here": "./custody-get"} {
		file := filepath.Join(d.dir, name+".yaml")
		d.write(file, fmt.Sprintf(where, name, command))
		d.must(0, "project", "apply", file)
	}
	get := filepath.Join(d.dir, "custody-get")
	if err := os.WriteFile(get, []byte("#!/bin/sh\necho the-directory-is-/\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.must(0, "run", "--project", "there")
	d.must(0, "run", "--project", "there", "--policy", "there.yaml", "--trust")
	d.contains(d.must(125, "run", "--project", "here", "--policy", "here.yaml", "--trust").stderr, "nothing was started")
}
