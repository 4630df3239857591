package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/host"
)

// TestServes: a host has sandboxes of its own tenant and of those that host.yaml names, and a tenant gets no project of another one.
func TestServes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings        string
		serves, refuses []string
		offers, hides   [][2]string // tenant and project
	}{
		"of no tenant": {"", []string{""}, []string{"acme"}, [][2]string{{"", "web"}}, [][2]string{{"acme", "web"}}},
		"of a tenant":  {"tenant: acme\n", []string{"acme"}, []string{"", "beta"}, [][2]string{{"acme", "web"}}, [][2]string{{"", "web"}, {"beta", "web"}}},
		"shared": {
			"tenant: acme\nquotas: {tenants: {(none): {projects: {none: {}}}, acme: {projects: {both: {}}}, beta: {projects: {both: {}, web: {}}}}}\n",
			[]string{"acme", "beta"}, []string{"", "gamma"},
			[][2]string{{"acme", "both"}, {"beta", "both"}, {"beta", "web"}, {"acme", "other"}}, [][2]string{{"acme", "web"}, {"beta", "other"}, {"gamma", "other"}, {"", "none"}},
		},
		"of no tenant, shared": {"quotas: {tenants: {beta: {projects: {web: {}}}}}\n", []string{"", "beta"}, []string{"(none)"}, [][2]string{{"", "other"}, {"beta", "web"}}, [][2]string{{"", "web"}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, host.ConfigFile), []byte("version: 1\n"+c.settings), 0o600))
			h, err := host.Open(dir)
			must(t, err)
			for want, tenants := range map[bool][]string{true: c.serves, false: c.refuses} {
				for _, tenant := range tenants {
					if h.Config().Serves(tenant) != want {
						t.Errorf("it serves %q: %v", tenant, !want)
					}
				}
			}
			for want, pairs := range map[bool][][2]string{true: c.offers, false: c.hides} {
				for _, p := range pairs {
					if h.Config().Offers(p[0], p[1]) != want {
						t.Errorf("it offers %q the project %q: %v", p[0], p[1], !want)
					}
				}
			}
		})
	}
}
