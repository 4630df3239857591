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

// Limit is the longest wait of Lock. No holder needs this long.
const Limit = 30 * time.Second

// noticeAfter is how long a wait lasts before it is reported.
const noticeAfter = 3 * time.Second

// HeldError is a lock that another process kept for the whole wait.
type HeldError struct {
	Path    string
	PID     int    // of the holder; 0: unknown
	Program string // its name, "" if unknown
	Err     error  // why the wait ended
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is locked by %s: %v", e.Path, holder(e.PID, e.Program), e.Err)
}

// Unwrap returns why the wait ended.
func (e *HeldError) Unwrap() error { return e.Err }

// Hint returns what to do about it.
func (e *HeldError) Hint() string {
	return "let that process finish, or end it: a lock ends with its process"
}

func holder(pid int, program string) string {
	switch {
	case pid == 0:
		return "another process"
	case program == "":
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s (pid %d)", program, pid)
}

type noticeKey struct{}

// WithNotice returns a context whose waits for locks are reported: tell is called once for each that lasts over 3 s,
// from the goroutine that waits.
func WithNotice(ctx context.Context, tell func(text string)) context.Context {
	return context.WithValue(ctx, noticeKey{}, tell)
}

// Lock takes the flock of f, unix.LOCK_EX or unix.LOCK_SH. Closing f gives it up. The wait ends
// with ctx and after Limit; the error is then a HeldError.
func Lock(ctx context.Context, f *os.File, how int) error { return LockWithin(ctx, f, how, Limit) }

// LockWithin is Lock with another limit. It polls, since a blocking flock cannot be cancelled.
func LockWithin(ctx context.Context, f *os.File, how int, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("gave up after %v", limit))
	defer cancel()
	tell, _ := ctx.Value(noticeKey{}).(func(string))
	begun := time.Now()
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if tell != nil && time.Since(begun) >= noticeAfter {
			pid := Holder(f)
			tell(fmt.Sprintf("waiting for %s, held by %s", f.Name(), holder(pid, Program(pid))))
			tell = nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			pid := Holder(f)
			return &HeldError{f.Name(), pid, Program(pid), context.Cause(ctx)}
		}
	}
}

// Program returns the name of a process, "" if it is not known.
func Program(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
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
