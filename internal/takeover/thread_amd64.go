package takeover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Thread is a thread of another process, which is stopped except while it makes a call.
type Thread struct {
	tid     int
	regs    unix.PtraceRegs // of its own program
	memory  uintptr         // scratch memory in the process
	used    uintptr
	filters []filter
}

// scratch is the size of the memory for the arguments of calls.
const scratch = 64 << 10

// ErrKilled is the error of a call for which a seccomp filter would end the process. The call is not made.
var ErrKilled = errors.New("the seccomp filter ends the process")

// Do takes over the process pid while do makes calls in it.
func Do(pid int, do func(*Thread) error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the kernel takes ptrace(2) from this thread only
		defer runtime.UnlockOSThread()
		done <- with(pid, do)
	}()
	return <-done
}

// errBusy means that no thread waits in a system call at the moment.
var errBusy = errors.New("no thread waits in a system call")

// patience is how long with waits for one.
const patience = 10 * time.Second

// with attaches to a thread that waits in a system call: the instruction that made it is there to be used again.
func with(pid int, do func(*Thread) error) error {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		t, err := find(pid)
		if err == nil {
			err = do(t)
			return errors.Join(err, t.end())
		}
		if !errors.Is(err, errBusy) || time.Since(began) > patience {
			return fmt.Errorf("take over the process %d: %w", pid, err)
		}
	}
}

// find attaches to a thread of a process.
func find(pid int) (*Thread, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return nil, err
		}
		t := &Thread{tid: tid}
		err = t.attach()
		if err == nil {
			err = t.prepare()
			if err == nil {
				return t, nil
			}
			err = errors.Join(err, t.detach())
		}
		if !errors.Is(err, errBusy) && !errors.Is(err, unix.ESRCH) { // the thread has ended
			return nil, err
		}
	}
	return nil, errBusy
}

func (t *Thread) attach() error {
	if err := unix.PtraceAttach(t.tid); err != nil {
		return fmt.Errorf("attach to %d: %w", t.tid, err)
	}
	if err := t.await(unix.SIGSTOP); err != nil {
		return err
	}
	if err := unix.PtraceGetRegs(t.tid, &t.regs); err != nil {
		return errors.Join(fmt.Errorf("read the registers: %w", err), t.detach())
	}
	var code [2]byte
	if _, err := unix.PtracePeekText(t.tid, uintptr(t.regs.Rip)-2, code[:]); err != nil || code != [2]byte{0x0f, 0x05} {
		return errors.Join(errBusy, err, t.detach())
	}
	return nil
}

// await waits until the thread stops with a signal. Others, such as those of Go's scheduler, are dropped.
func (t *Thread) await(want unix.Signal) error {
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(t.tid, &status, unix.WALL, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the thread %d: %w", t.tid, err)
		}
		switch {
		case status.Exited() || status.Signaled():
			return fmt.Errorf("the thread %d has ended: %#x", t.tid, uint32(status))
		case status.Stopped() && status.StopSignal() == want:
			return nil
		case status.Stopped():
			if err := t.resume(want); err != nil {
				return err
			}
		}
	}
}

// resume continues to the awaited stop: SIGSTOP comes by itself, SIGTRAP after the next instruction.
func (t *Thread) resume(want unix.Signal) error {
	if want == unix.SIGSTOP {
		return unix.PtraceCont(t.tid, 0)
	}
	return unix.PtraceSingleStep(t.tid)
}

// prepare reads the thread's filters and makes the scratch memory, past the filters.
func (t *Thread) prepare() (err error) {
	if t.filters, err = filtersOf(t.tid); err != nil {
		return err
	}
	return t.unfiltered(func() (err error) {
		t.memory, err = t.make(unix.SYS_MMAP, 0, scratch, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
		return err
	})
}

// unfiltered calls do while no seccomp filter applies to the thread.
func (t *Thread) unfiltered(do func() error) error {
	const suspendSeccomp = 1 << 21 // PTRACE_O_SUSPEND_SECCOMP
	if err := unix.PtraceSetOptions(t.tid, suspendSeccomp); err != nil {
		return fmt.Errorf("suspend the filters: %w", err)
	}
	err := do()
	return errors.Join(err, unix.PtraceSetOptions(t.tid, 0))
}

// end undoes what prepare did, and lets the thread go on.
func (t *Thread) end() error {
	err := t.unfiltered(func() error {
		_, err := t.make(unix.SYS_MUNMAP, t.memory, scratch)
		return err
	})
	return errors.Join(err, unix.PtraceSetRegs(t.tid, &t.regs), t.detach())
}

func (t *Thread) detach() error { return unix.PtraceDetach(t.tid) }

// Call makes a system call with arguments of the types int, uintptr, string (with a final NUL) and []byte. It waits for its end.
func (t *Thread) Call(number uintptr, args ...any) (uintptr, error) {
	defer func() { t.used = 0 }()
	var values [6]uintptr
	for i, arg := range args {
		var err error
		switch arg := arg.(type) {
		case int:
			values[i] = uintptr(arg)
		case uintptr:
			values[i] = arg
		case string:
			values[i], err = t.Put(append([]byte(arg), 0))
		case []byte:
			values[i], err = t.Put(arg)
		default:
			err = fmt.Errorf("an argument of the type %T", arg)
		}
		if err != nil {
			return 0, err
		}
	}
	if t.killed(number, values) {
		return 0, ErrKilled
	}
	return t.make(number, values[:]...)
}

// Put copies bytes to the process, for a pointer to them in the next Call. Later calls use their memory again.
func (t *Thread) Put(b []byte) (uintptr, error) {
	size := (uintptr(len(b)) + 15) &^ 15
	if t.used+size > scratch {
		return 0, errors.New("the arguments are too long")
	}
	at := t.memory + t.used
	t.used += size
	_, err := unix.PtracePokeData(t.tid, at, append(b[:len(b):len(b)], make([]byte, int(size)-len(b))...))
	return at, err
}

// Get returns n bytes that a call has written.
func (t *Thread) Get(at uintptr, n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := unix.PtracePeekData(t.tid, at, b)
	return b, err
}

// make makes a call as it is.
func (t *Thread) make(number uintptr, args ...uintptr) (uintptr, error) {
	var v [6]uintptr
	copy(v[:], args)
	regs := t.regs
	regs.Rip -= 2
	regs.Orig_rax = ^uint64(0) // the interrupted call is not restarted now
	regs.Rax = uint64(number)
	regs.Rdi, regs.Rsi, regs.Rdx, regs.R10, regs.R8, regs.R9 = uint64(v[0]), uint64(v[1]), uint64(v[2]), uint64(v[3]), uint64(v[4]), uint64(v[5])
	err := unix.PtraceSetRegs(t.tid, &regs)
	if err == nil {
		err = unix.PtraceSingleStep(t.tid)
	}
	if err == nil {
		err = t.await(unix.SIGTRAP)
	}
	if err == nil {
		err = unix.PtraceGetRegs(t.tid, &regs)
	}
	if err != nil {
		return 0, fmt.Errorf("make a call in the thread %d: %w", t.tid, err)
	}
	if result := int64(regs.Rax); result < 0 && result > -4096 {
		return 0, unix.Errno(-result)
	}
	return uintptr(regs.Rax), nil
}

// Words returns numbers of 64 bits in memory.
func Words(numbers ...uint64) (b []byte) {
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}
