// Package flock waits for locks on files, for a bounded time.
package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limit is the longest wait for a lock. No holder needs this long.
const Limit = 30 * time.Second

// HeldError is a lock that another process kept for the whole wait.
type HeldError struct {
	Path string
	PID  int   // of the holder; 0: unknown
	Err  error // why the wait ended
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is locked by another process: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s is locked by process %d: %v", e.Path, e.PID, e.Err)
}

// Unwrap returns why the wait ended.
func (e *HeldError) Unwrap() error { return e.Err }

// Lock takes the flock of f, unix.LOCK_EX or unix.LOCK_SH. Closing f gives it up. The wait ends
// with ctx and after Limit; the error is then a HeldError. Lock polls, since a blocking flock cannot be cancelled.
func Lock(ctx context.Context, f *os.File, how int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("gave up after %v", Limit))
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return &HeldError{f.Name(), Holder(f), context.Cause(ctx)}
		}
	}
}

// Holder returns the process that holds the flock of f, or 0 if none does or it is not known. A line of /proc/locks is
// "1: FLOCK ADVISORY WRITE 118 fe:01:1234 0 EOF", with the device in hex.
func Holder(f *os.File) int {
	var s unix.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || unix.Fstat(int(f.Fd()), &s) != nil {
		return 0
	}
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(s.Dev)), unix.Minor(uint64(s.Dev)), s.Ino)
	for line := range strings.Lines(string(locks)) {
		if w := strings.Fields(line); len(w) == 8 && w[1] == "FLOCK" && w[5] == id {
			pid, _ := strconv.Atoi(w[4])
			return max(pid, 0) // -1: in another PID namespace
		}
	}
	return 0
}
