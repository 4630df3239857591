package console

import (
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// OwnStderr returns standard error for the program's own messages, which are masked, and puts /dev/null in its place.
// Libraries write to standard error as they please, such as the bytes of a server that answers with a credential. Only when the
// program crashes, Go's trace goes to standard error unmasked: the masking code may be what crashed.
func OwnStderr() (*os.File, error) {
	fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("keep standard error: %w", err)
	}
	own := os.NewFile(uintptr(fd), "/dev/stderr")
	if err := debug.SetCrashOutput(own, debug.CrashOptions{}); err != nil {
		return nil, fmt.Errorf("report crashes on standard error: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("keep libraries off standard error: %w", err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), 2, 0); err != nil {
		return nil, fmt.Errorf("keep libraries off standard error: %w", err)
	}
	return own, nil
}
