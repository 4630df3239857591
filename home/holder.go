package home

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockedBy names the process that holds a run's lock if that is visible here and no custody: nobody
// writes such a run, whatever its lock says.
func (h *Home) lockedBy(run string) (who string, stranger bool) {
	info, err := os.Stat(filepath.Join(h.RunDir(run), "lock"))
	if err != nil {
		return "", false
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	locks, err := os.Open("/proc/locks")
	if err != nil || !is {
		return "", false
	}
	defer locks.Close()
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		var n, pid int
		var kind, mode, access, file string
		if _, err := fmt.Sscan(strings.TrimSpace(lines.Text()), new(string), &kind, &mode, &access, &pid, &file); err != nil {
			continue
		}
		if _, err := fmt.Sscan(file[strings.LastIndexByte(file, ':')+1:], &n); err != nil || uint64(n) != stat.Ino || kind != "FLOCK" || access != "WRITE" {
			continue
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || pid == os.Getpid() || strings.HasPrefix(string(name), "custody") {
			return "", false
		}
		return fmt.Sprintf("pid %d (%s)", pid, strings.TrimSpace(string(name))), true
	}
	return "", false
}
