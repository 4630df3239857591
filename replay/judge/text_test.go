package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/wal"
)

// TestPrintPause: verify points out where an old run could have been given another end.
func TestPrintPause(t *testing.T) {
	for name, c := range map[string]struct {
		closing wal.Closing
		pause   time.Duration
		want    bool
	}{
		"sealed":              {wal.Sealed, time.Hour, false},
		"sealed, long":        {wal.Sealed, time.Hour + time.Second, true},
		"interrupted":         {wal.Interrupted, time.Second, true},
		"interrupted, a year": {wal.Interrupted, 8760 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			printReport(&b, proof.Report{Closing: c.closing, Pause: c.pause, Paused: 7})
			want := "the longest pause between two seals is " + c.pause.String() + ", after seq 7\n"
			if got := b.String(); strings.Contains(got, want) != c.want || strings.Contains(got, "its end was sealed at") != (c.closing == wal.Interrupted) {
				t.Errorf("it prints\n%s", got)
			}
		})
	}
}
