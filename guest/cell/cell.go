// Package cell runs a step's command inside the guest. The command runs as root, but
// cannot affect init, the sensors or the kernel.
//
// A cell has mount, PID, IPC, UTS and cgroup namespaces and a control group of
// its own. Its root is the run's overlay; /proc and /sys are read-only, /dev
// has no device of the VM. Its processes have few capabilities, a seccomp filter,
// no_new_privs and a Landlock domain. All cells of a run share the overlay and
// the network namespace, and run one after the other. A step's secrets are in a
// tmpfs that only its cell has, and which ends with it.
//
// The commands of a session share one cell instead, in which they run concurrently (see session).
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
	"unsafe"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// DefaultPath is the search path for commands if the step's environment has no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// DefaultDir is the working directory of a command without one.
const DefaultDir = "/workspace"

// Watcher is notified which control group belongs to which step, before anything runs in it.
type Watcher interface {
	Track(cgroupID uint64, step, root string) error
	Untrack(cgroupID uint64) error
	// Secrets and Forget are called with the device of the file system with a step's secrets, before anything runs and after all has ended.
	Secrets(device uint64) error
	Forget(device uint64) error
}

// Config describes the resources that cells use.
type Config struct {
	Root  string // the mounted overlay, with proc, sys, dev/pts, dev/shm and run in it
	Group string // directory of the control group that holds the cells' own
	// Sentry is set where the kernel is gVisor's sentry, which has no Landlock. The sentry itself
	// confines the cells to what they see: there is no device, no kernel and no process of a host behind it.
	Sentry bool
}

// Limits bound what all cells use together.
type Limits struct {
	Memory int64 // bytes
	PIDs   int   // processes and threads; 0 sets no bound
}

// Block makes cells. It prepares the namespaces and mounts of the next one in the
// background.
//
// It is safe for concurrent use.
type Block struct {
	config  Config
	group   *group
	confine *confinement
	reaper  int // descriptor of its executable
	next    chan prepared
	work    sync.WaitGroup // active preparations

	mu      sync.Mutex // guards the fields below
	serial  int
	closed  bool
	watcher Watcher

	session lazySession
}

type prepared struct {
	*shell
	err error
}

// New prepares the first cell. No limit holds before Open.
func New(c Config) (*Block, error) {
	g, err := makeGroup(c.Group)
	if err != nil {
		return nil, err
	}
	last, err := lastCapability()
	if err != nil {
		return nil, err
	}
	b := &Block{config: c, group: g, next: make(chan prepared, 1)}
	if b.confine, err = newConfinement(c, last); err != nil {
		return nil, err
	}
	if b.reaper, err = reaperFile(); err != nil {
		return nil, err
	}
	b.prepare()
	return b, nil
}

// Open sets what depends on the run: the limits, the host name, and the watcher
// of the cells, which may be nil. It must be called before the run's first command.
func (b *Block) Open(l Limits, hostname string, w Watcher) error {
	b.mu.Lock()
	b.watcher = w
	b.mu.Unlock()
	pids := "max"
	if l.PIDs > 0 {
		pids = fmt.Sprint(l.PIDs)
	}
	if err := b.group.set("memory.max", fmt.Sprint(l.Memory), "pids.max", pids); err != nil {
		return err
	}
	return b.Rename(hostname)
}

// Rename sets the host name of the cells that exist: the next one, and the session's. No command may be started meanwhile. Later cells have
// the name of the caller.
func (b *Block) Rename(hostname string) error {
	p := <-b.next
	if p.err == nil {
		p.err = p.first.setHostname(hostname)
	}
	b.next <- p
	return errors.Join(p.err, b.session.rename(hostname))
}

// AwaitReady returns when the next cell has been prepared. No command may be started during the call.
func (b *Block) AwaitReady() { b.work.Wait() }

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

// prepare makes the next cell, unless it is being made or the block is closed.
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
	err := b.EndSession()
	p := <-b.next
	b.work.Wait()
	if p.shell != nil {
		err = errors.Join(err, p.discard())
	}
	unix.Close(b.reaper)
	unix.Close(b.confine.ruleset)
	return errors.Join(err, b.group.remove())
}

// Start implements channel.Runner.
func (b *Block) Start(ctx context.Context, cmd channel.Command) (channel.Cell, error) {
	if cmd.Session {
		return b.startInSession(ctx, cmd)
	}
	s := <-b.next
	if s.err != nil {
		b.prepare()
		return nil, fmt.Errorf("prepare a cell: %w", s.err)
	}
	b.mu.Lock()
	c := &cell{block: b, shell: s.shell, watcher: b.watcher, secret: len(cmd.Secrets) > 0}
	b.mu.Unlock()
	if err := c.start(cmd); err != nil {
		c.shell.pipes.closeOurs()
		c.Close()
		return nil, err
	}
	return c, nil
}

// cell is a command in its shell.
type cell struct {
	block   *Block
	shell   *shell
	watcher Watcher
	secret  bool           // the step has secrets
	who     *user.ExecUser // who executes the command; nil: root
	device  uint64         // of the file system with them, 0: the sensors do not watch it

	ending   sync.Mutex // guards finished, and is held while the files of the secrets are being zeroed
	finished bool

	mu   sync.Mutex // guards main, which is nil once the main process has been reaped
	main *process
}

// start makes the shell's main process execute the command. After an error that process has been reaped.
func (c *cell) start(cmd channel.Command) error {
	var err error
	c.who, err = c.block.userOf(&cmd)
	env, secret := environment(cmd)
	defer erase(secret)
	if err == nil {
		err = errors.Join(c.announce(cmd.Step), c.shell.deposit(cmd.Secrets, c.who))
	}
	if err == nil && c.watcher != nil && len(cmd.Secrets) > 0 {
		err = c.watchSecrets()
	}
	var p *program
	if err == nil {
		p, err = c.shell.commandProgram(cmd, c.who, env)
	}
	if err != nil {
		c.shell.kill()
		c.shell.main.close()
		c.shell.main.wait()
		return err
	}
	if err := c.shell.main.run(p); err != nil {
		return explain(err, cmd)
	}
	c.main = &c.shell.main.process
	return nil
}

// watchSecrets makes the sensors report the processes that open the step's secrets.
func (c *cell) watchSecrets() error {
	dir, err := c.shell.secretsDir()
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return c.watch(dir)
}

// watch makes the sensors report the processes that open files of the file system with this directory, and of no earlier one.
func (c *cell) watch(dir int) error {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return fmt.Errorf("find the device of the step's secrets: %w", err)
	}
	if c.device != 0 {
		if err := c.watcher.Forget(c.device); err != nil {
			return err
		}
	}
	c.device = st.Dev
	return c.watcher.Secrets(c.device)
}

// announce announces the step to the sensors, and lets the kernel's OOM killer kill the process.
// Init, whose memory it still shares, is exempt.
func (c *cell) announce(step string) error {
	if c.watcher != nil {
		if err := c.watcher.Track(c.shell.group.id, step, c.block.config.Root); err != nil {
			return fmt.Errorf("sensors refuse the step: %w", err)
		}
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.shell.main.pid), []byte("0"), 0); err != nil {
		return fmt.Errorf("make the command killable for memory: %w", err)
	}
	return nil
}

// commandProgram returns the system calls with which the main process executes the command.
func (s *shell) commandProgram(cmd channel.Command, who *user.ExecUser, env []cstring) (*program, error) {
	p := &program{}
	if cmd.TTY != nil {
		name, err := s.openTerminal(*cmd.TTY)
		if err != nil {
			return nil, err
		}
		for fd := range 3 {
			p.call("close the pipes", unix.SYS_CLOSE, fd)
		}
		// A session's leader that opens a terminal takes it as its controlling one.
		p.call("open the terminal", unix.SYS_OPENAT, unix.AT_FDCWD, name, unix.O_RDWR)
		p.call("open the terminal", unix.SYS_DUP, 0)
		p.call("open the terminal", unix.SYS_DUP, 0)
	}
	if who != nil {
		become(p, who, cmd.TTY != nil)
	}
	p.call(enterDir, unix.SYS_CHDIR, directory(cmd))
	if s.own {
		dropSignals(p)
	}
	p.call("unblock signals", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, unsafe.Pointer(new(uint64)), 0, 8)
	argv, envp := p.list(cstrings(cmd.Argv)), p.list(env)
	for _, path := range candidates(cmd) {
		p.add(execute, candidate, unix.SYS_EXECVE, []any{path, argv, envp})
	}
	return p, nil
}

func directory(cmd channel.Command) string {
	if cmd.Dir == "" {
		return DefaultDir
	}
	return cmd.Dir
}

const (
	enterDir = "enter directory"
	execute  = "execute"
)

// explain distinguishes faults of the command, for which shells have exit codes, from those of the cell.
func explain(err error, cmd channel.Command) error {
	var failed *callError
	if !errors.As(err, &failed) {
		return err
	}
	switch {
	case failed.name == enterDir:
		return &channel.ExecError{Code: 126, Err: fmt.Errorf("directory %q: %w", directory(cmd), failed.errno)}
	case failed.name == execute && failed.errno == unix.ENOENT:
		return &channel.ExecError{Code: 127, Err: fmt.Errorf("%q: command not found", cmd.Argv[0])}
	case failed.name == execute:
		return &channel.ExecError{Code: 126, Err: fmt.Errorf("%q: %w", cmd.Argv[0], failed.errno)}
	}
	return fmt.Errorf("set up the cell: %w", err)
}

// candidates returns the possible paths of the command's name, like execvp(3).
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
	return c.shell.pipes.stdin, c.shell.pipes.stdout, c.shell.pipes.stderr
}

// Signal implements channel.Cell: it signals the main process's group.
func (c *cell) Signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.main == nil {
		return nil
	}
	return unix.Kill(-c.main.pid, sig)
}

// Resize implements channel.Cell.
func (c *cell) Resize(w channel.Winsize) error { return c.shell.pipes.resize(w) }

// Alive implements channel.Cell.
func (c *cell) Alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.main == nil {
		return false
	}
	return c.main.lives()
}

// lives reports whether the process has not ended.
func (p process) lives() bool {
	var info unix.Siginfo // stays zero while it runs
	err := unix.Waitid(unix.P_PIDFD, p.pidfd, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo == 0
}

// Wait implements channel.Cell.
func (c *cell) Wait() channel.Exit {
	ws := c.waitMain()
	if c.secret || !c.shell.alone() { // of secrets nothing may be left once the end is reported
		c.finish()
	}
	exit := exitOf(ws)
	exit.OOM = c.shell.group.count("memory.events", "oom_kill") > 0
	return exit
}

// waitMain waits for the main process and reaps it.
func (c *cell) waitMain() unix.WaitStatus {
	// The pid stays the main process's until it is reaped, so first wait without reaping.
	for unix.Waitid(unix.P_PIDFD, c.main.pidfd, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	c.mu.Lock()
	main := c.main
	c.main = nil
	c.mu.Unlock()
	return main.wait()
}

func exitOf(ws unix.WaitStatus) channel.Exit {
	if ws.Signaled() {
		return channel.Exit{Signal: int(ws.Signal()), Code: 128 + int(ws.Signal())}
	}
	return channel.Exit{Code: ws.ExitStatus()}
}

// finish kills the remaining processes of the step and removes its secrets.
func (c *cell) finish() {
	c.ending.Lock()
	defer c.ending.Unlock()
	if c.finished {
		return
	}
	c.finished = true
	secrets := -1
	if c.secret {
		secrets, _ = c.shell.secretsDir() // without it they go with the namespace
	}
	c.shell.kill()
	c.shell.first.wait()
	if secrets >= 0 {
		zeroTree(secrets)
		unix.Close(secrets)
	}
	if c.secret {
		DrainPages()
	}
}

// Close implements channel.Cell. It removes the step's control group and prepares the next cell.
func (c *cell) Close() error {
	c.finish()
	var err error
	if c.watcher != nil {
		err = c.watcher.Untrack(c.shell.group.id)
		if c.device != 0 {
			err = errors.Join(err, c.watcher.Forget(c.device))
		}
	}
	err = errors.Join(err, c.shell.group.remove())
	c.block.prepare()
	return err
}
