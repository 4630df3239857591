package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/quota"
)

// TestQuotas: host.yaml's quotas are read as docs/operations.md shows them, and a mistake is refused with its line.
func TestQuotas(t *testing.T) {
	open := func(text string) (*host.Host, error) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, host.ConfigFile), []byte("version: 1\n"+text), 0o600))
		return host.Open(dir)
	}
	page, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	_, example, _ := strings.Cut(string(page), "### Quotas")
	_, example, _ = strings.Cut(example, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	h, err := open(example)
	must(t, err)
	c := h.Config().Quotas
	acme, web := c.Of("acme", "web")
	if want := (quota.Limits{Sandboxes: 200, CPUs: 32, StartsPerMinute: 600, TokensPerDay: 50_000_000}); acme != want {
		t.Errorf("acme has %+v, want %+v", acme, want)
	}
	if want := (quota.Limits{Sandboxes: 100, DiskRate: 100 << 20, NetworkRate: 50 << 20}); web != want {
		t.Errorf("web has %+v, want %+v", web, want)
	}
	_, err = open("quotas:\n  tenant:\n    cpus: many\n")
	var mistake *host.ConfigError
	if !errors.As(err, &mistake) || !strings.Contains(err.Error(), "line 4, column 11: quotas.tenant.cpus must be a whole number, not many; write none for no limit") {
		t.Error(err)
	}
}
