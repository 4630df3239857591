package console

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ForbidCores prevents core files of this process and of those that it starts: their memory holds keys and secret values.
// The resource limit covers files; a program to which the kernel pipes cores gets none of this process either.
func ForbidCores() error {
	err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if err == nil {
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	return nil
}
