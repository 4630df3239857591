package confine

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// OffMainThread runs f on a separate thread, which ends when f returns. It avoids the main thread, which
// would not end and whose namespaces /proc/self shows.
func OffMainThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: f may leave the thread unusable for other goroutines
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		done := make(chan struct{})
		OffMainThread(func() {
			defer close(done)
			f()
		})
		<-done
		runtime.UnlockOSThread()
	}()
}

// LeaveKeyring gives the calling thread an empty session keyring. Otherwise the process would inherit the
// caller's keys, such as Kerberos tickets and keys of encrypted directories.
func LeaveKeyring() error {
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if err == nil {
		return nil
	}
	// If both calls fail alike, the kernel has no keyrings, or a seccomp filter denies them to this thread and so to its children.
	if _, none := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); errors.Is(none, err) {
		return nil
	}
	return fmt.Errorf("leave the session's keyring: %w", err)
}
