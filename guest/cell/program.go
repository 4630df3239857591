package cell

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// program is a list of system calls for a new process to make, one after the
// other, before it becomes something else through execve.
//
// A Go program cannot run Go code between clone and execve, and starting a
// second Go program in each cell, only to set the cell up, costs more than most
// commands do (about 30 ms under TCG). So the parent writes the calls down
// beforehand, with every pointer resolved, and a few instructions of assembly
// walk through the list in the child. The child shares the parent's memory
// (CLONE_VM, as vfork does) but touches nothing of it except the header below;
// it uses no stack. It shares neither descriptors nor signal handlers, and all
// signals are blocked until the list unblocks them.
//
//	word 0   number of calls
//	word 1   index of the call that failed
//	word 2   errno, 0 while none failed
//	word 3   -
//	word 4.. the calls: number, six arguments, flags
type program struct {
	words []uint64
	names []string
	keep  []any // what the words point to
}

const (
	headWords = 4
	callWords = 8

	wordCount = 0
	wordIndex = 1
	wordErrno = 2
)

// Flags of a call; the assembly knows them by value.
const (
	mayFail   = 1 // go on whatever it returns
	candidate = 2 // execve of one of several paths: go on, remember an error other than "not there"
)

func newProgram() *program { return &program{words: make([]uint64, headWords)} }

// call adds a call. An argument is an int, a uintptr, a string (passed as a C
// string), a []string (an array of them) or an unsafe.Pointer to memory that Go does not move.
func (p *program) call(name string, nr uintptr, args ...any) { p.add(name, 0, nr, args) }

// try adds a call whose failure does not matter.
func (p *program) try(name string, nr uintptr, args ...any) { p.add(name, mayFail, nr, args) }

func (p *program) add(name string, flags uint64, nr uintptr, args []any) {
	words := [callWords]uint64{0: uint64(nr), callWords - 1: flags}
	for i, a := range args {
		words[1+i] = p.word(a)
	}
	p.words = append(p.words, words[:]...)
	p.words[wordCount]++
	p.names = append(p.names, name)
}

func (p *program) word(arg any) uint64 {
	switch a := arg.(type) {
	case int:
		return uint64(a)
	case uintptr:
		return uint64(a)
	case string:
		b := append([]byte(a), 0)
		p.keep = append(p.keep, b)
		return uint64(uintptr(unsafe.Pointer(&b[0])))
	case []string:
		list := make([]uint64, len(a)+1)
		for i, s := range a {
			list[i] = p.word(s)
		}
		p.keep = append(p.keep, list)
		return uint64(uintptr(unsafe.Pointer(&list[0])))
	case unsafe.Pointer:
		p.keep = append(p.keep, a)
		return uint64(uintptr(a))
	}
	panic(fmt.Sprintf("argument of type %T", arg))
}

// callError is a call of a program that failed.
type callError struct {
	name  string
	errno syscall.Errno
}

func (e *callError) Error() string { return e.name + ": " + e.errno.Error() }
func (e *callError) Unwrap() error { return e.errno }

// process is a child that went through its program.
type process struct {
	pid   int
	pidfd int
}

// start clones with the given flags into the cgroup (none when negative) and
// returns when the child has become another program, or could not. childNS,
// unless negative, is a pidfd whose pid namespace the child is born into.
func (p *program) start(flags uint64, cgroup, childNS int) (*process, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	child, err := p.clone(flags, cgroup, childNS)
	unix.Close(ends[1])
	defer unix.Close(ends[0])
	if err != nil {
		return nil, err
	}
	// The child holds the other end until it has executed or exited. Until
	// then it reads the program's memory.
	var b [1]byte
	for {
		if _, err := unix.Read(ends[0], b[:]); err != unix.EINTR {
			break
		}
	}
	runtime.KeepAlive(p)
	if errno := syscall.Errno(p.words[wordErrno]); errno != 0 {
		child.wait()
		return nil, &callError{p.names[p.words[wordIndex]], errno}
	}
	return child, nil
}

// clone makes the child. The thread is the goroutine's own meanwhile: its
// signal mask and the pid namespace of its children are changed and put back.
func (p *program) clone(flags uint64, cgroup, childNS int) (*process, error) {
	runtime.LockOSThread()
	if childNS >= 0 {
		home, err := unix.Open("/proc/thread-self/ns/pid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			return nil, fmt.Errorf("open the own pid namespace: %w", err)
		}
		defer unix.Close(home)
		if err := unix.Setns(childNS, unix.CLONE_NEWPID); err != nil {
			runtime.UnlockOSThread()
			return nil, fmt.Errorf("enter the cell's pid namespace: %w", err)
		}
		defer func() {
			if unix.Setns(home, unix.CLONE_NEWPID) == nil {
				runtime.UnlockOSThread()
			} // else the thread dies with the goroutine
		}()
	} else {
		defer runtime.UnlockOSThread()
	}
	return p.cloneHere(flags, cgroup)
}

func (p *program) cloneHere(flags uint64, cgroup int) (*process, error) {
	var pidfd int32
	args := &cloneArgs{
		flags:      flags | unix.CLONE_VM | unix.CLONE_PIDFD | unix.CLONE_CLEAR_SIGHAND,
		pidfd:      uint64(uintptr(unsafe.Pointer(&pidfd))),
		exitSignal: uint64(unix.SIGCHLD),
	}
	if cgroup >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = uint64(cgroup)
	}
	all, old := ^uint64(0), uint64(0)
	maskSignals(&all, &old)
	pid := spawn(unsafe.Pointer(args), unsafe.Sizeof(*args), unsafe.Pointer(&p.words[0]))
	maskSignals(&old, nil)
	runtime.KeepAlive(args)
	if pid < 0 {
		return nil, fmt.Errorf("clone: %w", syscall.Errno(-pid))
	}
	return &process{pid: int(pid), pidfd: int(pidfd)}, nil
}

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal     uint64
	stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func maskSignals(set, old *uint64) {
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// wait reaps the process, however long it takes, and closes its pidfd.
func (p *process) wait() unix.WaitStatus {
	defer unix.Close(p.pidfd)
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(p.pid, &ws, 0, nil); err != unix.EINTR {
			return ws
		}
	}
}

// spawn calls clone3. In the child it walks through the program at prog and
// never returns; in the parent it returns the pid or a negative errno.
//
//go:noescape
func spawn(args unsafe.Pointer, size uintptr, prog unsafe.Pointer) int
