package sensor

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawFork forks, and the child does nothing but create a file and die: more is
// not allowed in the copy of a process with threads.
//
//go:norace
//go:nosplit
func rawChild(name *byte) {
	fd, _, _ := unix.RawSyscall6(unix.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_WRONLY, 0o600, 0, 0)
	unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
}

func rawFork(name *byte) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	if pid == 0 {
		rawChild(name)
	}
	return int(pid), nil
}
