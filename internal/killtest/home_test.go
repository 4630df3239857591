package killtest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
)

// atHome makes the host one of package host: `loadtest write` over a directory with a host.yaml.
func (w *world) atHome(t *testing.T, dir string, port, monitor int) {
	t.Helper()
	program := filepath.Join(dir, "loadtest")
	build := exec.Command("go", "build", "-o", program, "../loadtest")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build loadtest: %v: %s", err, out)
	}
	w.home = filepath.Join(dir, "home")
	w.runs = filepath.Join(w.home, "runs")
	check(t, os.MkdirAll(w.runs, 0o700))
	check(t, os.WriteFile(filepath.Join(w.home, host.ConfigFile), fmt.Appendf(nil, `version: 1
tenant: acme
transport: {url: "nats://127.0.0.1:%d", monitor: "http://127.0.0.1:%d", wait: 40s}
`, port, monitor), 0o600))
	w.host.args = []string{program, "write", "-home", w.home, "-rate", "3000", "-batch", "8"}
}

// bundleAtHome is bundle where package home has the logs, after a look of fsck at everything.
func (w *world) bundleAtHome(t *testing.T) (judge func(dir string) proof.Report) {
	t.Helper()
	h, err := host.Open(w.home)
	check(t, err)
	found, err := h.Checks().Fsck(t.Context(), host.FsckOptions{})
	check(t, err)
	for _, p := range found.Problems {
		t.Errorf("fsck: %s: %v", p.Name(), p)
	}
	keys, err := h.Keys().Trusted()
	check(t, err)
	return func(dir string) proof.Report {
		run := filepath.Base(dir)
		return verify(t, run, keys, func(f io.Writer) error { return h.Proofs().Bundle(t.Context(), f, "", run, host.BundleOptions{}) })
	}
}
