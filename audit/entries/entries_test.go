package entries

import (
	"path/filepath"
	"testing"
)

// TestSynchronous: an index that can be rebuilt need not survive a power loss; one that contains alarms must.
func TestSynchronous(t *testing.T) {
	for name, c := range map[string]struct {
		open func(string) (*Index, error)
		want int
	}{"made again": {Open, 1}, "kept": {OpenKept, 2}} {
		t.Run(name, func(t *testing.T) {
			x, err := c.open(filepath.Join(t.TempDir(), "index"))
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			var got int
			if err := x.db.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&got); err != nil || got != c.want {
				t.Errorf("synchronous is %d, want %d: %v", got, c.want, err)
			}
		})
	}
}
