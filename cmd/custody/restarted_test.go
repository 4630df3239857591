package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/store"
)

// TestHostRestarted: custody serve, which keeps running, gets sandboxes and signatures from custody host also after that one was restarted:
// for runs, for bundles of the page, and for the log of accesses, which was open meanwhile.
func TestHostRestarted(t *testing.T) {
	t.Parallel()
	s := newSeparated(t)
	page := &server{door: s.admin, base: s.page()}
	page.token = s.admin.newToken("auditor", "auditor")
	bundles := func() {
		t.Helper()
		for _, run := range got[struct{ Runs []store.Run }](page, "runs").Runs {
			if status, body := page.ask("GET", "runs/"+run.ID+"/bundle", nil); status != http.StatusOK {
				t.Errorf("the bundle of %s: %d, %.300s", run.ID, status, body)
			}
		}
	}
	s.user.must(0, "run", "-q", "--", "true")
	bundles()
	s.host.Process.Kill()
	s.host.Wait()
	s.user.contains(s.user.must(exitFailed, "run", "-q", "--", "true").stderr, "custody host does not answer")
	s.startHost(strings.TrimPrefix(s.admin.env[0], hostd.SocketEnv+"="))
	bundles()
	s.user.must(0, "run", "-q", "--", "true")
	bundles()
	s.user.must(0, "verify", "last")
	s.stop()
	for _, log := range decode[store.Run](s.admin, s.admin.must(0, "runs", "--access", "--json").stdout) {
		if log.Status != store.Sealed {
			t.Errorf("the log of accesses %s is %s", log.ID, log.Status)
		}
		s.admin.verified(log.ID)
	}
}
