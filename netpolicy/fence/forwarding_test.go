package fence

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// An incomplete line of a killed process is ignored, and later notes are not.
func TestNotesAfterATornLine(t *testing.T) {
	t.Parallel()
	for _, torn := range []string{"", "ipv4/conf/e", "ipv4/conf/eth0/forwarding 0", "ipv4/conf/eth0/forwarding 0 1"} {
		path := filepath.Join(t.TempDir(), "notes")
		must(t, os.WriteFile(path, []byte("ipv4/conf/wan/forwarding 0 1\n"+torn), 0o600))
		notes, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
		must(t, err)
		defer notes.Close()
		f := &forwarding{notes: notes}
		must(t, f.note(change{"ipv6/conf/all/forwarding", "0", "1"}))
		got, err := f.noted()
		must(t, err)
		for _, want := range []change{{"ipv4/conf/wan/forwarding", "0", "1"}, {"ipv6/conf/all/forwarding", "0", "1"}} {
			if !slices.Contains(got, want) {
				t.Errorf("after %q the notes hold %v, not %v", torn, got, want)
			}
		}
	}
}
