package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/worker"
)

// session is the session of the run's worker, once it has started, and the socket through which other processes use it: to change the
// policy, to freeze the sandbox and to take a snapshot of it.
type session struct {
	mu   sync.Mutex // guards the fields below
	live *worker.Session
	stop func()
}

// open serves the run's socket.
func (j *Job) open(s *worker.Session) {
	j.session.mu.Lock()
	defer j.session.mu.Unlock()
	j.session.live = s
	stop, err := j.record.Control(host.Controls{
		User: j.o.User,
		SetPolicy: func(ctx context.Context, file []byte, narrow bool) (host.PolicyChange, error) {
			return j.setPolicy(ctx, s, file, narrow)
		},
		Pause: s.Pause, Resume: s.Resume,
		Snapshot: func(ctx context.Context, r host.SnapshotRequest) error { return snapshot(ctx, s, r) },
	})
	if err != nil {
		j.messages.notice("this run cannot be controlled: " + err.Error())
		return
	}
	j.session.stop = stop
}

// close ends the service. It waits for the requests that are being handled.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
	}
}

// setPolicy replaces the run's policy by the rules of a project file.
func (j *Job) setPolicy(ctx context.Context, s *worker.Session, file []byte, narrow bool) (host.PolicyChange, error) {
	const name = "the new policy"
	p, err := j.parsePolicy(name, file, narrow)
	if err != nil {
		return host.PolicyChange{}, err
	}
	if err := CheckAllowed(j.o.Home, &p, name); err != nil {
		return host.PolicyChange{}, err
	}
	policy, err := p.Policy()
	if err != nil {
		return host.PolicyChange{}, err
	}
	c, err := s.SetPolicy(ctx, policy)
	if err != nil {
		return host.PolicyChange{}, err
	}
	j.messages.notice(fmt.Sprintf("policy generation %d (%s) is in force; it ended %d flows", c.Generation, c.Digest, c.Ended))
	return host.PolicyChange{Generation: c.Generation, Digest: c.Digest, Previous: c.Previous, Ended: c.Ended}, nil
}

// parsePolicy parses a project file with new rules. In a run of a registered project it may only narrow that one, and with
// narrowing, in another run, the defaults.
func (j *Job) parsePolicy(name string, file []byte, narrowing bool) (project.File, error) {
	if j.o.Base != nil {
		return narrow(j.o.Base, name, file, true)
	}
	p, err := project.Parse(name, file)
	if err != nil || !narrowing {
		return p, err
	}
	base := project.Default()
	base.Project = p.Project
	p, beyond, err := base.Narrow(name, file)
	if err == nil && len(beyond) > 0 {
		err = fmt.Errorf("%s asks for more than a run of no registered project gets through the service: %s\nask for less, or run it on the host as root", name, reachLines(beyond))
	}
	return p, err
}

// snapshot writes the sandbox's memory to a file. The file gets its name only when it is
// complete and contains no credential.
func snapshot(ctx context.Context, s *worker.Session, r host.SnapshotRequest) error {
	if _, err := os.Lstat(r.File); err == nil {
		return fmt.Errorf("%s exists: give another name", r.File)
	}
	dir := filepath.Dir(r.File)
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS):
		return fmt.Errorf("the run's process, of user %d, cannot write to %s: name a file in a directory that belongs to this user", os.Geteuid(), dir)
	case err != nil:
		return fmt.Errorf("a file in %s: %w", dir, err)
	}
	defer f.Close()
	if err := s.Snapshot(ctx, f, r.EndStep); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.NewSyscallError("link", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, r.File, unix.AT_SYMLINK_FOLLOW))
}
