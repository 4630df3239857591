package confine

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3"
)

// UsedMemory returns the memory of the processes of a control group that no other process shares, in bytes: anonymous memory and files in
// memory, without the cache of files. group is its path below the root of control groups.
func UsedMemory(group string) (int64, error) {
	dir, names := "/sys/fs/cgroup", []string{"anon", "shmem"}
	if cgroups.Mode() != cgroups.Unified {
		dir, names = "/sys/fs/cgroup/memory", []string{"total_rss", "total_shmem"}
	}
	f, err := os.Open(filepath.Join(dir, group, "memory.stat"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var sum int64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if !slices.Contains(names, name) {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	if err := lines.Err(); err != nil || sum > 0 {
		return sum, err
	}
	return 0, errors.New("the control group " + group + " uses no memory")
}
