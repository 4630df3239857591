// Package bootid names one boot of one kernel on this host, so that what was found out
// about it can be stored and is not taken for true after the next.
package bootid

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Kernel returns the release of the running kernel, such as 6.1.0-50-amd64.
func Kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "of unknown release"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// Current names the running kernel and its boot.
func Current() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return Kernel() + " " + strings.TrimSpace(string(id)), nil
}
