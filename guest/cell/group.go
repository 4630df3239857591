package cell

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// group is a control group (cgroup v2).
type group struct {
	path string
	fd   int
	id   uint64 // what bpf_get_current_cgroup_id returns in it

	values map[string]string // of the files that set has written
}

func makeGroup(path string) (*group, error) {
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open control group %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("stat control group %s: %w", path, err)
	}
	return &group{path: path, fd: fd, id: st.Ino}, nil
}

// set writes the files of a control group, in order: name, value, name, value.
// It does not repeat a value that it has written before.
func (g *group) set(pairs ...string) error {
	if g.values == nil {
		g.values = map[string]string{}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if g.values[pairs[i]] == pairs[i+1] {
			continue
		}
		if err := os.WriteFile(filepath.Join(g.path, pairs[i]), []byte(pairs[i+1]), 0); err != nil {
			return fmt.Errorf("set a limit of the guest: %w", err)
		}
		g.values[pairs[i]] = pairs[i+1]
	}
	return nil
}

// count reads one number of a file of "name number" lines; 0 if the name is missing.
func (g *group) count(file, name string) int {
	b, err := os.ReadFile(filepath.Join(g.path, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, _ := strconv.Atoi(v)
			return n
		}
	}
	return 0
}

// CPU returns the processor time that the processes of all cells have used, 0 if the kernel does not count it.
func (b *Block) CPU() time.Duration {
	return time.Duration(b.group.count("cpu.stat", "usage_usec")) * time.Microsecond
}

func (g *group) kill() error {
	if err := os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0); err != nil {
		return fmt.Errorf("kill a cell: %w", err)
	}
	return nil
}

// remove removes the group, whose processes have ended. It waits until the kernel allows the removal.
func (g *group) remove() error {
	unix.Close(g.fd)
	var err error
	for wait := 50 * time.Microsecond; wait < time.Second; wait *= 2 {
		if err = unix.Rmdir(g.path); err != unix.EBUSY {
			break
		}
		time.Sleep(wait)
	}
	if err != nil {
		return fmt.Errorf("remove control group %s: %w", g.path, err)
	}
	return nil
}
