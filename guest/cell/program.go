package cell

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// program is a list of system calls that a new process makes, one after the
// other, before it executes another program.
//
// A Go program cannot run Go code between clone and execve, and starting a
// second Go program in each cell, only to set the cell up, costs more than most
// commands do (about 30 ms under TCG). So the parent writes the calls down
// beforehand, with every pointer resolved, and a few instructions of assembly
// walk through the list in the child. The child shares the parent's memory
// (CLONE_VM, as vfork does) but touches nothing of it except its header and
// what its calls point to; it uses no stack. It shares neither descriptors nor
// signal handlers, and all signals are blocked until the list unblocks them.
//
// The first word is the number of calls; each call is eight words: number, six
// arguments, flags.
type program struct {
	words []uint64
	names []string
	keep  []any // what the words point to
}

// header is what the assembly and the parent share.
type header struct {
	index uint64 // of the call that failed
	errno uint64 // 0 if none failed
	list  unsafe.Pointer
	live  []any // only for the garbage collector: memory that the child may still read
}

const callWords = 8

// Flags of a call; the assembly uses their values.
const (
	mayFail   = 1 // continue after an error
	candidate = 2 // execve of one of several paths: continue, remember an error other than "not found"
	chain     = 4 // after the call, continue with the list in the header
)

// call adds a call. An argument is an int, a uintptr, a string (passed as a C
// string, as a cstring is), a []string (an array of them) or an unsafe.Pointer to memory that Go does not move.
func (p *program) call(name string, nr uintptr, args ...any) { p.add(name, 0, nr, args) }

// try adds a call whose failure does not matter.
func (p *program) try(name string, nr uintptr, args ...any) { p.add(name, mayFail, nr, args) }

func (p *program) add(name string, flags uint64, nr uintptr, args []any) {
	words := [callWords]uint64{0: uint64(nr), callWords - 1: flags}
	for i, a := range args {
		words[1+i] = p.word(a)
	}
	if p.words == nil {
		p.words = []uint64{0}
	}
	p.words = append(p.words, words[:]...)
	p.words[0]++
	p.names = append(p.names, name)
}

func (p *program) word(arg any) uint64 {
	switch a := arg.(type) {
	case int:
		return uint64(a)
	case uintptr:
		return uint64(a)
	case string:
		return p.word(cstring(a + "\x00"))
	case cstring:
		p.keep = append(p.keep, a)
		return uint64(uintptr(unsafe.Pointer(&a[0])))
	case []string:
		return p.word(p.list(cstrings(a)))
	case unsafe.Pointer:
		p.keep = append(p.keep, a)
		return uint64(uintptr(a))
	}
	panic(fmt.Sprintf("argument of type %T", arg))
}

// cstring is a string with a NUL behind it. The child reads it where it lies.
type cstring []byte

func cstrings(in []string) []cstring {
	out := make([]cstring, len(in))
	for i, s := range in {
		out[i] = cstring(s + "\x00")
	}
	return out
}

// list makes an array of pointers with a null pointer behind it, an argument for several calls.
func (p *program) list(in []cstring) unsafe.Pointer {
	words := make([]uint64, len(in)+1)
	for i, s := range in {
		words[i] = p.word(s)
	}
	p.keep = append(p.keep, words)
	return unsafe.Pointer(&words[0])
}

// callError is a call of a program that failed.
type callError struct {
	name  string
	errno syscall.Errno
}

func (e *callError) Error() string { return e.name + ": " + e.errno.Error() }
func (e *callError) Unwrap() error { return e.errno }

// child is a process that walks through programs.
//
//	start --> prologue --> sleeps in its last call --> run --> another program
//	             |                                      |
//	             +----------- a call failed ------------+--> exits, error returned
type child struct {
	process
	head *header
	told int // it writes a byte here when it sleeps, and the end of file comes when it has executed or exited
	wake int // a byte written here wakes it
}

// process is a process that must be reaped.
type process struct {
	pid   int
	pidfd int
}

// start clones with the given flags into the control group and runs the
// program to its end, which must be an execve.
func (p *program) start(flags uint64, group int) (process, error) {
	c := &child{head: &header{}, wake: -1}
	var report int
	var err error
	if c.told, report, err = pipe(); err != nil {
		return process{}, err
	}
	defer unix.Close(c.told)
	c.load(p)
	c.process, err = c.clone(flags, group)
	unix.Close(report)
	if err != nil {
		return process{}, err
	}
	return c.process, c.outcome(p)
}

// load makes p the child's next list.
func (c *child) load(p *program) {
	c.head.list = unsafe.Pointer(&p.words[0])
	c.head.live = append(c.head.live, p)
}

// outcome waits until the child has executed another program and so has left
// our memory; if it could not, it is reaped.
func (c *child) outcome(p *program) error {
	for c.readByte() {
	}
	runtime.KeepAlive(c.head)
	if errno := syscall.Errno(c.head.errno); errno != 0 {
		c.wait()
		return &callError{p.names[c.head.index], errno}
	}
	return nil
}

// readByte reads one byte from the child. It returns false at the end of file.
func (c *child) readByte() bool {
	var b [1]byte
	for {
		n, err := unix.Read(c.told, b[:])
		if err != unix.EINTR {
			return n == 1
		}
	}
}

// Descriptors of a sleeping child, in addition to its standard streams.
const (
	fdWake = 3
	fdTell = 4
	fdNext = 5 // and above: none
)

// startSleeper runs a prologue in a new child, which then sleeps until run.
// stdio are duplicated into it, and all other descriptors closed there.
//
// With sentry, the thread that makes the child ends with it: a thread of gVisor that has been to another PID
// namespace and back can make no PID namespaces any more.
func (p *program) startSleeper(group, childNS int, stdio [3]int, sentry bool) (*child, error) {
	c := &child{head: &header{}}
	var ends [2]int
	var err error
	if c.told, ends[0], err = pipe(); err != nil {
		return nil, err
	}
	if ends[1], c.wake, err = pipe(); err != nil {
		unix.Close(c.told)
		unix.Close(ends[0])
		return nil, err
	}
	for i, fd := range []int{stdio[0], stdio[1], stdio[2]} {
		p.call("set up standard streams", unix.SYS_DUP3, fd, i, 0)
	}
	p.call("set up pipes", unix.SYS_DUP3, ends[1], fdWake, unix.O_CLOEXEC)
	p.call("set up pipes", unix.SYS_DUP3, ends[0], fdTell, unix.O_CLOEXEC)
	p.call("close descriptors", unix.SYS_CLOSE_RANGE, fdNext, uintptr(^uint32(0)), 0)
	buf := unsafe.Pointer(new(uint64))
	p.call("tell", unix.SYS_WRITE, fdTell, buf, 1)
	p.add("sleep", chain, unix.SYS_READ, []any{fdWake, buf, 1})
	c.load(p)
	enter := inNamespace
	if sentry {
		enter = onEndingThread
	}
	err = enter(childNS, "pid", unix.CLONE_NEWPID, func() (err error) { c.process, err = c.clone(0, group); return })
	unix.Close(ends[0])
	unix.Close(ends[1])
	if err != nil {
		c.close()
		return nil, err
	}
	if !c.readByte() {
		err := c.outcome(p)
		c.close()
		return nil, fmt.Errorf("prepare the process: %w", err)
	}
	return c, nil
}

// run wakes the child to go through p, which must end with an execve. The
// child's pipes are closed. It is reaped if it failed.
func (c *child) run(p *program) error {
	defer c.close()
	c.load(p)
	if _, err := unix.Write(c.wake, []byte{0}); err != nil {
		c.wait()
		return fmt.Errorf("wake the process: %w", err)
	}
	return c.outcome(p)
}

func (c *child) close() {
	unix.Close(c.told)
	unix.Close(c.wake)
}

// lowest is above the descriptors that a child duplicates its descriptors to.
const lowest = 16

// pipe returns a pipe whose ends are not below lowest.
func pipe() (r, w int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("pipe: %w", err)
	}
	for i, fd := range ends {
		if fd >= lowest {
			continue
		}
		ends[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, lowest)
		unix.Close(fd)
		if err != nil {
			return -1, -1, fmt.Errorf("pipe: %w", err)
		}
	}
	return ends[0], ends[1], nil
}

// setHostname sets the name of the machine in the process's UTS namespace.
func (p process) setHostname(name string) error {
	return inNamespace(p.pidfd, "uts", unix.CLONE_NEWUTS, func() error { return unix.Sethostname([]byte(name)) })
}

// inNamespace calls f on a thread that is in another process's namespace of
// the given kind; with the pid namespace, only the thread's children are.
func inNamespace(pidfd int, kind string, flag int, f func() error) error {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/"+kind, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the own %s namespace: %w", kind, err)
	}
	defer unix.Close(home)
	if err := unix.Setns(pidfd, flag); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the cell's %s namespace: %w", kind, err)
	}
	defer func() {
		if unix.Setns(home, flag) == nil {
			runtime.UnlockOSThread()
		} // else the thread ends with its goroutine
	}()
	return f()
}

// onEndingThread is inNamespace on a thread that ends afterwards instead of leaving the namespace.
func onEndingThread(pidfd int, kind string, flag int, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock it
		if err := unix.Setns(pidfd, flag); err != nil {
			done <- fmt.Errorf("enter the cell's %s namespace: %w", kind, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// clone makes the child out of the calling thread, with all signals blocked meanwhile.
func (c *child) clone(flags uint64, group int) (process, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	args := &struct {
		cloneArgs
		pidfd int32
	}{}
	args.flags = flags | unix.CLONE_VM | unix.CLONE_PIDFD | unix.CLONE_CLEAR_SIGHAND
	args.pidfdAt = uint64(uintptr(unsafe.Pointer(&args.pidfd)))
	args.exitSignal = uint64(unix.SIGCHLD)
	if group >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = uint64(group)
	}
	all, old := ^uint64(0), uint64(0)
	maskSignals(&all, &old)
	pid := spawn(unsafe.Pointer(args), unsafe.Sizeof(args.cloneArgs), unsafe.Pointer(c.head))
	maskSignals(&old, nil)
	runtime.KeepAlive(args)
	if pid < 0 {
		return process{}, fmt.Errorf("clone: %w", syscall.Errno(-pid))
	}
	return process{pid: pid, pidfd: int(args.pidfd)}, nil
}

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidfdAt, childTID, parentTID, exitSignal   uint64
	stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func maskSignals(set, old *uint64) {
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// wait reaps the process, however long it takes, and closes its pidfd.
func (p process) wait() unix.WaitStatus {
	defer unix.Close(p.pidfd)
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(p.pid, &ws, 0, nil); err != unix.EINTR {
			return ws
		}
	}
}

// spawn calls clone3. In the child it walks through the list of the header and
// never returns; in the parent it returns the pid or a negative errno.
// The memory behind both pointers must not be on a stack, which can move:
// without go:noescape the compiler takes care of that.
func spawn(args unsafe.Pointer, size uintptr, head unsafe.Pointer) int
