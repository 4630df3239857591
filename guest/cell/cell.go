// Package cell runs a step's command inside the guest so that it is root for
// its own purposes and nothing to init, the sensors and the kernel.
//
// A cell has mount, PID, IPC, UTS and cgroup namespaces and a control group of
// its own. Its root is the run's overlay; /proc and /sys are read-only, /dev
// has no device of the VM. Its processes have few capabilities, a seccomp filter,
// no_new_privs and a Landlock domain. All cells of a run share the overlay and
// the network namespace.
package cell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// DefaultPath is where commands are looked for when the step's environment has no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// DefaultDir is where a command without a directory runs.
const DefaultDir = "/workspace"

// Watcher is told which control group belongs to which step, before anything runs in it.
type Watcher interface {
	Track(cgroupID uint64, step, root string) error
	Untrack(cgroupID uint64) error
}

// Config says what a run's cells stand on.
type Config struct {
	Root    string // the mounted overlay, with proc, sys, dev/pts, dev/shm and run in it
	Group   string // directory of the control group that holds the cells' own
	Memory  int64  // bytes all cells may use together
	PIDs    int    // processes and threads in all cells together
	Watcher Watcher
}

// Block makes cells. The namespaces and mounts of the next one are prepared
// while nothing waits for them.
//
// Its methods may be called from any goroutine.
type Block struct {
	config  Config
	group   *group
	confine *confinement
	reaper  int // descriptor of its executable
	next    chan prepared
	work    sync.WaitGroup // preparations under way

	mu     sync.Mutex // guards the fields below
	serial int
	closed bool
}

type prepared struct {
	*shell
	err error
}

// New applies the limits and prepares the first cell.
func New(c Config) (*Block, error) {
	g, err := makeGroup(c.Group)
	if err != nil {
		return nil, err
	}
	err = g.set("memory.max", fmt.Sprint(c.Memory), "memory.oom.group", "0", "pids.max", fmt.Sprint(c.PIDs), "cpu.weight", "100")
	if err != nil {
		return nil, err
	}
	last, err := lastCapability()
	if err != nil {
		return nil, err
	}
	b := &Block{config: c, group: g, next: make(chan prepared, 1)}
	if b.confine, err = newConfinement(c.Root, last); err != nil {
		return nil, err
	}
	if b.reaper, err = reaperFile(); err != nil {
		return nil, err
	}
	b.prepare()
	return b, nil
}

func lastCapability() (int, error) {
	b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return 0, fmt.Errorf("read the kernel's capabilities: %w", err)
	}
	var n int
	if _, err := fmt.Sscan(string(b), &n); err != nil {
		return 0, fmt.Errorf("read the kernel's capabilities: %w", err)
	}
	return n, nil
}

// prepare makes the next cell, unless one is on its way or the block is closed.
func (b *Block) prepare() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.serial++
	n := b.serial
	b.work.Go(func() {
		s, err := b.newShell(n)
		b.next <- prepared{s, err}
	})
}

// Close removes the cell that was prepared last and the group. No cell may run.
func (b *Block) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	p := <-b.next
	b.work.Wait()
	var err error
	if p.shell != nil {
		p.end()
		err = p.group.remove()
	}
	unix.Close(b.reaper)
	unix.Close(b.confine.ruleset)
	return errors.Join(err, b.group.remove())
}

// Start implements channel.Runner.
func (b *Block) Start(_ context.Context, cmd channel.Command) (channel.Cell, error) {
	s := <-b.next
	if s.err != nil {
		b.prepare()
		return nil, fmt.Errorf("prepare a cell: %w", s.err)
	}
	c := &cell{block: b, shell: s.shell}
	if err := c.start(cmd); err != nil {
		c.shell.end()
		c.Close()
		return nil, err
	}
	return c, nil
}

// cell is a command in its shell.
type cell struct {
	block *Block
	shell *shell
	pipes pipes

	mu   sync.Mutex // guards main, which is nil once the main process has been reaped
	main *process
}

func (c *cell) start(cmd channel.Command) error {
	if w := c.block.config.Watcher; w != nil {
		if err := w.Track(c.shell.group.id, cmd.Step, c.block.config.Root); err != nil {
			return fmt.Errorf("sensors refuse the step: %w", err)
		}
	}
	var err error
	if c.pipes, err = c.shell.openPipes(cmd.TTY); err != nil {
		return err
	}
	c.main, err = c.block.execute(c.shell, cmd, c.pipes.theirs)
	c.pipes.closeTheirs()
	if err != nil {
		c.pipes.closeOurs()
	}
	return err
}

// execute starts the command in the shell's namespaces.
func (b *Block) execute(s *shell, cmd channel.Command, stdio [3]int) (*process, error) {
	dir := cmd.Dir
	if dir == "" {
		dir = DefaultDir
	}
	p := newProgram()
	p.call("enter the cell", unix.SYS_SETNS, s.first.pidfd, unix.CLONE_NEWNS|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS|unix.CLONE_NEWCGROUP)
	for i, fd := range stdio {
		p.call("set up standard streams", unix.SYS_DUP3, fd, i, 0)
	}
	p.call("start a session", unix.SYS_SETSID)
	if cmd.TTY != nil {
		p.call("take the terminal", unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0)
	}
	p.call("set umask", unix.SYS_UMASK, 0o022)
	p.call(enterDir, unix.SYS_CHDIR, dir)
	b.confine.apply(p)
	setLimits(p)
	unblockSignals(p)
	for _, path := range candidates(cmd) {
		p.add("execute", candidate, unix.SYS_EXECVE, []any{path, cmd.Argv, cmd.Env})
	}
	proc, err := p.start(0, s.group.fd, s.first.pidfd)
	return proc, explain(err, cmd.Argv[0], dir)
}

const enterDir = "enter directory"

// explain tells the command's own faults, for which shells have exit codes, from ours.
func explain(err error, name, dir string) error {
	var failed *callError
	if !errors.As(err, &failed) {
		return err
	}
	switch {
	case failed.name == enterDir:
		return &channel.ExecError{Code: 126, Err: fmt.Errorf("directory %q: %w", dir, failed.errno)}
	case failed.name == "execute" && failed.errno == unix.ENOENT:
		return &channel.ExecError{Code: 127, Err: fmt.Errorf("%q: command not found", name)}
	case failed.name == "execute":
		return &channel.ExecError{Code: 126, Err: fmt.Errorf("%q: %w", name, failed.errno)}
	}
	return fmt.Errorf("set up the cell: %w", err)
}

// candidates are the paths that the command's name may stand for, as execvp(3) has it.
func candidates(cmd channel.Command) []string {
	name := cmd.Argv[0]
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := DefaultPath
	for _, kv := range cmd.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	var list []string
	for _, dir := range filepath.SplitList(path) {
		list = append(list, filepath.Join(dir, name))
	}
	if len(list) == 0 {
		list = []string{name}
	}
	return list
}

// Pipes implements channel.Cell.
func (c *cell) Pipes() (stdin io.WriteCloser, stdout, stderr io.ReadCloser) {
	return c.pipes.stdin, c.pipes.stdout, c.pipes.stderr
}

// Signal implements channel.Cell: it goes to the main process's group.
func (c *cell) Signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.main == nil {
		return nil
	}
	return unix.Kill(-c.main.pid, sig)
}

// Resize implements channel.Cell.
func (c *cell) Resize(w channel.Winsize) error { return c.pipes.resize(w) }

// Wait implements channel.Cell.
func (c *cell) Wait() channel.Exit {
	// The pid stays the main process's until it is reaped, so first wait without reaping.
	for unix.Waitid(unix.P_PIDFD, c.main.pidfd, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	c.mu.Lock()
	main := c.main
	c.main = nil
	c.mu.Unlock()
	ws := main.wait()
	c.shell.end()
	exit := channel.Exit{Code: ws.ExitStatus(), OOM: c.shell.group.count("memory.events", "oom_kill") > 0}
	if ws.Signaled() {
		exit.Signal = int(ws.Signal())
		exit.Code = 128 + exit.Signal
	}
	return exit
}

// Close implements channel.Cell: the step's control group goes, the next cell is prepared.
func (c *cell) Close() error {
	var err error
	if w := c.block.config.Watcher; w != nil {
		err = w.Untrack(c.shell.group.id)
	}
	err = errors.Join(err, c.shell.group.remove())
	c.block.prepare()
	return err
}
