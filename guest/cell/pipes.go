package cell

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// pipes are the standard streams of a command: three pipes, or a terminal.
type pipes struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser
	theirs         [3]int   // descriptors for the command; -1 once closed
	tty            *os.File // the terminal's master, nil without one
	session        *session // see outlive; nil: the streams end with all processes of the command
	outlived       []*outlived
}

// outputPipe is the capacity of the pipe of an output in bytes, if the kernel allows it: more than the usual 64 KiB, so that a command and
// its reader take turns less often.
const outputPipe = 256 << 10

func openPipes() (pipes, error) {
	p := pipes{theirs: [3]int{-1, -1, -1}}
	var ours [3]*os.File
	for i := range ours {
		r, w, err := pipe()
		if err != nil {
			p.closeTheirs()
			for _, f := range ours[:i] {
				f.Close()
			}
			return pipes{}, err
		}
		if i == 0 {
			r, w = w, r
		}
		if i > 0 {
			unix.FcntlInt(uintptr(w), unix.F_SETPIPE_SZ, outputPipe)
		}
		ours[i], p.theirs[i] = pollable(r), w
	}
	p.stdin, p.stdout, p.stderr = ours[0], ours[1], ours[2]
	return p, nil
}

// openTerminal replaces the pipes by a terminal in the cell's devpts,
// so that it has a name in the cell and none outside. It returns that name.
func (s *shell) openTerminal(size channel.Winsize) (name string, err error) {
	path := fmt.Sprintf("/proc/%d/root/dev/pts/ptmx", s.first.pid)
	master, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open a terminal: %w", err)
	}
	session := s.pipes.session
	s.pipes.closeOurs()
	f := pollable(master)
	s.pipes = pipes{stdin: keepOpen{f}, stdout: terminal{f}, theirs: [3]int{-1, -1, -1}, tty: f}
	if session != nil {
		s.pipes.outlive(session)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return "", fmt.Errorf("unlock the terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return "", fmt.Errorf("name the terminal: %w", err)
	}
	return fmt.Sprintf("/dev/pts/%d", n), s.pipes.resize(size)
}

func pollable(fd int) *os.File {
	unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "pipe")
}

func (p *pipes) resize(w channel.Winsize) error {
	if p.tty == nil {
		return nil
	}
	conn, err := p.tty.SyscallConn() // which fails once the terminal has been closed
	if err != nil {
		return err
	}
	size := &unix.Winsize{Row: w.Rows, Col: w.Cols}
	var set error
	err = conn.Control(func(fd uintptr) { set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
	return errors.Join(err, set)
}

func (p *pipes) closeTheirs() {
	for i, fd := range p.theirs {
		if fd >= 0 {
			unix.Close(fd)
			p.theirs[i] = -1
		}
	}
}

func (p *pipes) closeOurs() {
	p.stdin.Close()
	p.stdout.Close()
	if p.stderr != nil {
		p.stderr.Close()
	}
}

// keepOpen does not close the terminal when its input ends.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// terminal reads a terminal's master, which returns EIO where a pipe returns an end of file.
type terminal struct{ io.ReadCloser }

func (t terminal) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err != nil && n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}
