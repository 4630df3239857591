package entries

import (
	"path/filepath"
	"testing"
)

// TestSynchronous: an index that can be made again need not survive a loss of power, one that holds alarms does.
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
