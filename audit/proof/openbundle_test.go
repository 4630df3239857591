package proof

import (
	"errors"
	"testing"

	"github.com/custody-project/custody/audit/proof/verdict"
)

// TestInspector: what a bundle holds is counted, files and bytes.
func TestInspector(t *testing.T) {
	for title, c := range map[string]struct {
		name       string
		size, most int64
	}{
		"files": {bundleReadme, 1, 5_000_000},
		"bytes": {"00000000000000000001.seg", 64 << 20, 1024},
	} {
		check := inspector()
		for range c.most {
			if err := check(c.name, c.size); err != nil {
				t.Fatalf("%s: %v", title, err)
			}
		}
		if err := check(c.name, c.size); !errors.Is(err, verdict.ErrBundleSize) {
			t.Errorf("%s: %v", title, err)
		}
	}
}
