package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// lockedBy returns the name of the process that holds a run's lock if it is known and is not Custody: no one writes
// such a run, though its lock is held.
func (l RunLogs) lockedBy(run string) (who string, stranger bool) {
	f, err := regular.Open(filepath.Join(l.host.RunDir(run), "lock"))
	if err != nil {
		return "", false
	}
	defer f.Close()
	pid := flock.Holder(f)
	name := flock.Program(pid)
	if name == "" || pid == os.Getpid() || strings.HasPrefix(name, "custody") {
		return "", false
	}
	return fmt.Sprintf("pid %d (%s)", pid, name), true
}
