package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit/witness"
	"github.com/custody-project/custody/host"
)

// TestGivenWitnesses: "all", the keys of some of host.yaml's witnesses, or the file of a policy.
func TestGivenWitnesses(t *testing.T) {
	dir := t.TempDir()
	var keys [3]string
	text := "version: 1\nlog:\n  witnesses:\n"
	for i := range keys {
		at := filepath.Join(dir, fmt.Sprint("w", i))
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		key, err := witness.Generate(at, fmt.Sprintf("w%d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = key
		if i < 2 {
			text += fmt.Sprintf("    - {key: %q, url: 'https://w%d.example'}\n", key, i)
		}
	}
	home := func(name, config string) host.ManifestLog {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, host.ConfigFile), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := host.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		return h.ManifestLog()
	}
	both, none := home("both", text), home("none", "version: 1\n")
	file := filepath.Join(dir, "policy")
	if err := os.WriteFile(file, []byte("witness a "+keys[2]+" https://a.example\nquorum a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		log   host.ManifestLog
		given []string
		want  string // names of the policy's witnesses, or the error
	}{
		{both, []string{"all"}, "w0.example w1.example"},
		{both, []string{keys[1]}, "w1.example"},
		{both, []string{keys[1], keys[0]}, "w0.example w1.example"},
		{both, []string{keys[2]}, "is not in log.witnesses of host.yaml"},
		{both, []string{file}, "w2.example"},
		{none, []string{file}, "w2.example"},
		{none, []string{"all"}, "host.yaml names no witnesses under log"},
		{both, []string{filepath.Join(dir, "missing")}, "missing"},
	} {
		p, err := tc.log.GivenWitnesses(t.Context(), tc.given)
		if err != nil {
			if !strings.Contains(err.Error(), tc.want) || strings.HasPrefix(tc.want, "w") {
				t.Errorf("%.80q: %v, want %s", tc.given, err, tc.want)
			}
			continue
		}
		var names []string
		for _, peer := range p.Peers() {
			names = append(names, peer.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != tc.want {
			t.Errorf("%.80q: got %s, want %s", tc.given, got, tc.want)
		}
	}
}
