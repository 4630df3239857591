package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/redteam/simnet"
	"github.com/custody-project/custody/replay/access"
)

// rated starts the service of a user, with quotas of each project.
func rated(t *testing.T, d *door, quotas string) *served {
	t.Helper()
	d.asks = true
	path := filepath.Join(d.home, "host.yaml")
	text, err := os.ReadFile(path)
	check(t, err)
	d.write(path, string(text)+"quotas: {project: {"+quotas+"}}\n")
	return serveFor(t, d, publicDir(t))
}

// TestQuotaNetworkRate: a sandbox of a project without a limit of its own receives and sends no faster than its quota allows. The bounds of time are
// lower ones, so that a slow host passes.
func TestQuotaNetworkRate(t *testing.T) {
	t.Parallel()
	d := newGVisorDoor(t)
	w := d.onSite()
	file := filepath.Join(d.dir, "site.yaml")
	d.write(file, rules("  - allow: "+simnet.Allowed)+"project: site\n")
	d.must(0, "project", "apply", file)
	s := rated(t, d, "network_rate: 256KiB")
	user := *d
	user.env = append(user.env, "CUSTODY_URL="+s.page(), "CUSTODY_TOKEN="+d.newToken("user", string(access.Operator)))
	said := user.must(0, "run", "-q", "--project", "site", "-e", "CA="+string(w.CA()), "--", "bash", "-c", `echo "$CA" >ca.pem`+transfers)
	d.transferred(said.stdout)
}

// TestQuotaDiskRate: a quota that the tier cannot hold is an error that names it, and never a sandbox without the limit.
func TestQuotaDiskRate(t *testing.T) {
	t.Parallel()
	s := rated(t, newGVisorDoor(t), "disk_rate: 2MiB")
	c, err := client.New(s.page(), s.admin.newToken("client", string(access.Operator)))
	check(t, err)
	box, err := c.Create(t.Context(), client.SandboxRequest{})
	check(t, err)
	_, err = box.Start(t.Context(), client.ProcessRequest{Shell: "true"})
	var st unix.Statfs_t
	check(t, unix.Statfs("/sys/fs/cgroup", &st))
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		check(t, err)
		return
	}
	if !client.IsStatus(err, http.StatusGone) || !strings.Contains(err.Error(), "disk_rate") || !strings.Contains(err.Error(), "quotas of host.yaml") {
		t.Errorf("a process in a sandbox without the limit: %v", err)
	}
}
