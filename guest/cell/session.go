package cell

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// session is the cell that the commands of a session share. They run concurrently, each in a control group of its own below the cell's, and
// see each other's processes. What a command leaves behind runs on until the session is closed. Only a command with secrets ends with
// all that it has started: its secrets are in a tmpfs in a mount namespace of its own, and nothing may be left of them.
//
//	first command --> open --commands--> EndSession: all processes are killed --> closed
type session struct {
	block  *Block
	shell  *shell // without a main process
	next   chan prepared
	closed chan struct{}

	preparing sync.WaitGroup
	members   sync.WaitGroup // commands that have not been closed
	reading   sync.WaitGroup // reads what processes write that commands have left behind

	mu     sync.Mutex // guards the fields below
	serial int
	ending bool
	left   []*group // of commands that have ended, but not all of their processes
}

// lazySession is a block's session, which opens with its first command.
type lazySession struct {
	mu      sync.Mutex // guards the fields below
	session *session   // nil: none has been opened
	ended   bool
}

var errSessionEnded = errors.New("the session has ended")

// join returns the session, for one more command.
func (l *lazySession) join(b *Block) (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, errSessionEnded
	}
	if l.session == nil {
		if err := l.open(b); err != nil {
			return nil, err
		}
	}
	l.session.members.Add(1)
	return l.session, nil
}

// open opens the session. The caller holds mu.
func (l *lazySession) open(b *Block) error {
	p := <-b.next
	b.prepare()
	if p.err != nil {
		return fmt.Errorf("prepare the session's cell: %w", p.err)
	}
	p.dismiss()
	l.session = &session{block: b, shell: p.shell, next: make(chan prepared, 1), closed: make(chan struct{})}
	l.session.prepare()
	return nil
}

// EndSession kills all processes of the session, and returns when its commands have been closed. Later commands of the session fail.
func (b *Block) EndSession() error {
	l := &b.session
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	l.ended = true
	if l.session == nil {
		return nil
	}
	return l.session.close()
}

// rename sets the host name of the session, if it is open.
func (l *lazySession) rename(hostname string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil || l.ended {
		return nil
	}
	return l.session.shell.first.setHostname(hostname)
}

// dismiss ends the main process of a shell that has no command.
func (s *shell) dismiss() {
	unix.Kill(s.main.pid, unix.SIGKILL)
	s.pipes.closeOurs()
	s.main.close()
	s.main.wait()
}

// prepare makes the process of the next command, unless the session ends.
func (s *session) prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return
	}
	s.serial++
	path := filepath.Join(s.shell.group.path, fmt.Sprint(s.serial))
	s.preparing.Go(func() {
		sh, err := s.newShell(path)
		select {
		case s.next <- prepared{sh, err}:
		case <-s.closed:
			s.discard(prepared{sh, err})
		}
	})
}

// newShell makes a process in the session's cell, with a control group and a mount namespace of its own.
func (s *session) newShell(group string) (*shell, error) {
	g, err := makeGroup(group)
	if err != nil {
		return nil, err
	}
	sh := &shell{group: g, first: s.shell.first, own: true}
	if err := s.block.newMain(sh); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return sh, nil
}

// discard ends a process that gets no command.
func (s *session) discard(p prepared) {
	if p.err == nil {
		p.dismiss()
		p.group.remove()
	}
}

// close kills all processes of the session. The kernel lets the first one go when all others have been reaped.
func (s *session) close() error {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	close(s.closed)
	s.preparing.Wait()
	select {
	case p := <-s.next:
		s.discard(p)
	default:
	}
	s.killMembers()
	s.shell.first.wait()
	s.reading.Wait()
	return errors.Join(s.sweep(nil), s.shell.group.remove())
}

// killMembers kills all processes, also those of commands that are just starting, until all commands have been closed.
func (s *session) killMembers() {
	gone := make(chan struct{})
	go func() {
		s.members.Wait()
		close(gone)
	}()
	for {
		s.shell.kill()
		select {
		case <-gone:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// startInSession starts a command in the session's cell.
func (b *Block) startInSession(ctx context.Context, cmd channel.Command) (channel.Cell, error) {
	s, err := b.session.join(b)
	if err != nil {
		return nil, err
	}
	p, err := s.take(ctx)
	if err != nil {
		s.members.Done()
		return nil, err
	}
	p.pipes.outlive(s)
	m := &member{session: s, secrets: -1, ooms: s.ooms(), cell: cell{block: b, shell: p, watcher: b.watching(), secret: len(cmd.Secrets) > 0}}
	if err := m.start(cmd); err != nil {
		m.shell.pipes.closeOurs()
		m.Close()
		return nil, err
	}
	return m, nil
}

// maxKilled is how often a prepared process can have been killed, by a command that kills all processes, before the next command fails.
const maxKilled = 5

// take returns a prepared process that lives.
func (s *session) take(ctx context.Context) (*shell, error) {
	err := errors.New("it was killed by another command of the session")
	for range maxKilled {
		select {
		case <-s.closed:
			return nil, errSessionEnded
		case p := <-s.next:
			s.prepare()
			if p.err == nil && p.main.lives() {
				return p.shell, nil
			}
			if p.err != nil {
				err = p.err
			}
			s.discard(p)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, fmt.Errorf("prepare a process of the session: %w", err)
}

// ooms returns how many processes of the session the kernel has killed for lack of memory.
func (s *session) ooms() int { return s.shell.group.count("memory.events", "oom_kill") }

// member is a command in a session.
type member struct {
	cell
	session *session
	secrets int // descriptor of the tmpfs; -1: there are none, or they are gone
	ooms    int // session.ooms at its start
}

// start is cell.start with the tmpfs held open: once the command executes, it can change its root.
func (m *member) start(cmd channel.Command) error {
	if m.secret {
		var err error
		if m.secrets, err = m.shell.secretsDir(); err != nil {
			m.abandon()
			return err
		}
	}
	unix.Kill(m.shell.main.pid, unix.SIGCONT) // another command may have stopped it
	return m.cell.start(cmd)
}

// dropSignals adds calls that drop the signals that other commands of a session have sent to a process before it was a command's.
func dropSignals(p *program) {
	for sig := 1; sig <= lastSignal; sig++ {
		for _, to := range []*sigaction{{handler: ignore}, {}} { // a signal that is ignored does not stay pending
			p.try("drop signals", unix.SYS_RT_SIGACTION, sig, unsafe.Pointer(to), 0, 8)
		}
	}
}

const lastSignal = 64

// abandon reaps a process that will execute nothing.
func (m *member) abandon() {
	m.shell.kill()
	m.shell.main.close()
	m.shell.main.wait()
}

// Wait implements channel.Cell. It waits for the command only.
func (m *member) Wait() channel.Exit {
	ws := m.waitMain()
	m.finish()
	m.shell.pipes.end()
	exit := exitOf(ws)
	exit.OOM = exit.Signal == int(syscall.SIGKILL) && m.session.ooms() > m.ooms
	return exit
}

// finish removes the secrets of a command that has ended, and kills the processes that could have them.
func (m *member) finish() {
	m.ending.Lock()
	defer m.ending.Unlock()
	if m.finished {
		return
	}
	m.finished = true
	if !m.secret {
		return
	}
	if err := errors.Join(m.shell.group.end(), m.forget()); err != nil {
		log.Printf("end a command with secrets: %v", err)
	}
	DrainPages()
}

// forget zeroes the files with the secrets. The caller holds ending.
func (m *member) forget() error {
	if m.secrets < 0 {
		return nil
	}
	err := zeroTree(m.secrets)
	unix.Close(m.secrets)
	m.secrets = -1
	return err
}

// Wipe implements channel.Cell: it removes the files; the command continues.
func (m *member) Wipe() error {
	m.ending.Lock()
	defer m.ending.Unlock()
	if m.finished || m.secrets < 0 {
		return nil
	}
	return m.remove()
}

// Close implements channel.Cell. The control group stays as long as there are processes in it, so that the sensors know whose they are.
func (m *member) Close() error {
	m.finish()
	var err error
	if m.watcher != nil && m.device != 0 {
		err = m.watcher.Forget(m.device)
	}
	err = errors.Join(err, m.session.sweep(m.shell.group))
	m.session.members.Done()
	return err
}

// sweep removes the control groups without processes among those of commands that have ended; ended, if set, is one more of them.
func (s *session) sweep(ended *group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended != nil {
		s.left = append(s.left, ended)
	}
	var errs []error
	var left []*group
	for _, g := range s.left {
		if !g.empty() {
			left = append(left, g)
			continue
		}
		if w := s.block.watching(); w != nil {
			errs = append(errs, w.Untrack(g.id))
		}
		errs = append(errs, g.remove())
	}
	s.left = left
	return errors.Join(errs...)
}

// watching returns the block's watcher; nil: there is none.
func (b *Block) watching() Watcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watcher
}

// empty reports whether no process is in the group.
func (g *group) empty() bool {
	b, err := os.ReadFile(filepath.Join(g.path, "cgroup.procs"))
	return err != nil || strings.TrimSpace(string(b)) == ""
}

// end kills the processes of a group, and returns when there is none.
func (g *group) end() error {
	for wait := 50 * time.Microsecond; wait < 2*time.Second; wait *= 2 {
		if err := g.kill(); err != nil {
			return err
		}
		if g.empty() {
			return nil
		}
		time.Sleep(wait)
	}
	return fmt.Errorf("processes of control group %s do not end", g.path)
}
