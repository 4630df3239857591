package privsep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm/confine"
)

// Worker describes an unprivileged process of this program. It runs with a uid that no other process has, without
// capabilities, in pid, ipc, uts and mount namespaces of its own, whose root directory is read-only and contains nothing
// but the program, Binds, and two device nodes, and in a control group. It ends with this process, also if that is killed.
type Worker struct {
	Program string   // path of the program; empty: this one's
	Args    []string // of the program
	Env     []string
	Files   []*os.File // become descriptors 4, 5, ...; 3 is the connection
	Binds   []confine.Bind
	Stderr  *os.File // nil discards
	Memory  int64    // limit in bytes, in addition to what the control groups of VMs allow their monitors
	Network *os.File // its network namespace; nil: that of this process
	Guard   Guard    // nil: its sockets are not limited
	Kinds   Kinds    // of the connection
	// Prepare, if set, is called with the worker's uid before it starts, for example to give it a directory.
	Prepare func(uid int) error
}

// Guard limits what the processes of a control group can do. The group is of version 2.
type Guard interface{ Attach(group *os.File) error }

// Process is a started worker.
//
//	Start --> running --the process ends, Close--> ended
type Process struct {
	*Conn
	uid   *confine.Lease
	group *confine.Group

	handle *os.Process
	waited chan struct{} // closed when the process was reaped
	state  *os.ProcessState

	running sync.WaitGroup // for Conn.Run
	failure error          // of Run
	closing sync.Once
	closed  error
}

// Start starts a worker that can make the calls of handlers.
func (w Worker) Start(ctx context.Context, handlers map[string]Handler) (p *Process, err error) {
	if err := confine.Sweep(); err != nil {
		return nil, fmt.Errorf("clean up after killed processes: %w", err)
	}
	p = &Process{waited: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start a worker: %w", err), p.Close())
			p = nil
		}
	}()
	if p.uid, err = confine.LeaseUID(); err != nil {
		return p, err
	}
	if p.group, err = confine.NewGroup(p.uid.UID(), 1, w.Memory); err != nil {
		return p, err
	}
	if w.Guard != nil {
		unified, err := p.group.Unified()
		if err == nil {
			err = w.Guard.Attach(unified)
		}
		if err != nil {
			return p, err
		}
	}
	if w.Prepare != nil {
		if err := w.Prepare(p.uid.UID()); err != nil {
			return p, err
		}
	}
	here, there, err := Pair()
	if err != nil {
		return p, err
	}
	defer there.Close()
	p.Conn = New(here, handlers)
	p.Kinds = w.Kinds
	if err := p.spawn(w, there); err != nil {
		return p, err
	}
	p.running.Go(func() { p.failure = p.Run(context.WithoutCancel(ctx)) })
	return p, nil
}

// UID returns the worker's uid.
func (p *Process) UID() int { return p.uid.UID() }

// UsedMemory returns what the process uses, see confine.UsedMemory.
func (p *Process) UsedMemory() (int64, error) { return p.group.UsedMemory() }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.waited }

// spawn starts the process on a thread that waits for it: the kernel kills the process when that thread ends
// (PR_SET_PDEATHSIG), and so when this process ends.
func (p *Process) spawn(w Worker, connection *os.File) error {
	started := make(chan error, 1)
	confine.OffMainThread(func() {
		var err error
		p.handle, err = w.enter(p.uid.UID(), connection)
		started <- err
		if err == nil {
			p.state, _ = p.handle.Wait()
			close(p.waited)
		}
	})
	if err := <-started; err != nil {
		return err
	}
	return p.group.Add(p.handle.Pid)
}

// enter confines the calling thread and starts the process from it.
func (w Worker) enter(uid int, connection *os.File) (*os.Process, error) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	program := w.Program
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	if w.Network != nil {
		if err := unix.Setns(int(w.Network.Fd()), unix.CLONE_NEWNET); err != nil {
			return nil, fmt.Errorf("enter the worker's network namespace: %w", err)
		}
	}
	if err := w.root(program).Enter(); err != nil {
		return nil, err
	}
	if err := confine.LeaveKeyring(); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set no_new_privs: %w", err)
	}
	// The process must not inherit descriptors that this one inherited from its caller.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("keep descriptors from the process (needs Linux 5.11): %w", err)
	}
	stderr := w.Stderr
	if stderr == nil {
		stderr = null
	}
	process, err := os.StartProcess(programName, append([]string{"custody"}, w.Args...), &os.ProcAttr{
		Dir:   "/",
		Env:   w.Env,
		Files: append([]*os.File{null, null, stderr, connection}, w.Files...),
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
			Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
			Pdeathsig:  syscall.SIGKILL,
			Setsid:     true,
		},
	})
	if errors.Is(err, unix.ENOENT) { // of its dynamic linker, which the worker's root directory does not have
		err = fmt.Errorf("%s is not statically linked: build it with CGO_ENABLED=0, as make build does (%w)", program, err)
	}
	return process, err
}

// programName is the program's path in the worker's root directory.
const programName = "/custody"

// root returns the worker's root directory.
func (w Worker) root(program string) confine.Root {
	binds := []confine.Bind{{Path: program, Name: programName, Flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV}}
	for _, path := range []string{"/dev/null", "/dev/urandom"} {
		binds = append(binds, confine.Bind{Path: path, Flags: unix.MS_NOSUID | unix.MS_NOEXEC})
	}
	return confine.Root{Binds: append(binds, w.Binds...)}
}

// Kill kills the process, and does not wait for its end. Close must follow.
func (p *Process) Kill() error {
	if err := p.handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Close kills the process, unless it has ended, and releases its uid and control group. It returns an error if the
// process violated the protocol.
func (p *Process) Close() error {
	p.closing.Do(func() { p.closed = p.close() })
	return p.closed
}

func (p *Process) close() error {
	var errs []error
	if p.handle != nil {
		errs = append(errs, p.Kill())
		<-p.waited
	}
	if p.Conn != nil {
		p.Conn.Close()
		p.running.Wait()
		errs = append(errs, p.failure)
	}
	if p.group != nil {
		errs = append(errs, p.group.Remove())
	}
	if p.uid != nil {
		p.uid.Release()
	}
	return errors.Join(errs...)
}
