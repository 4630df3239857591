package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// lockedBy returns the process that holds a run's lock. stranger reports that its name is known and that it is not Custody,
// so that no process writes the run.
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
