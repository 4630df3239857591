package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/sandbox"
)

// control serves the run's socket, through which other processes change its policy, freeze it and take a snapshot of it.
// stop ends the service.
func (j *Job) control() (stop func()) {
	stop, err := j.record.Control(host.Controls{
		SetPolicy: j.setPolicy,
		Pause:     j.freezer.awake((*sandbox.Sandbox).Pause),
		Resume:    j.freezer.awake((*sandbox.Sandbox).Resume),
		Snapshot: func(ctx context.Context, r host.SnapshotRequest) error {
			return j.freezer.awake(func(s *sandbox.Sandbox, ctx context.Context) error { return snapshot(ctx, s, r) })(ctx)
		},
	})
	if err != nil {
		j.messages.notice("this run cannot be controlled: " + err.Error())
		return func() {}
	}
	return stop
}

// setPolicy replaces the run's policy by the rules of a project file.
func (j *Job) setPolicy(ctx context.Context, file []byte) (host.PolicyChange, error) {
	const name = "the new policy"
	p, err := j.parsePolicy(name, file)
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
	c, err := j.network.Change(ctx, policy)
	if err != nil {
		return host.PolicyChange{}, err
	}
	j.messages.notice(fmt.Sprintf("policy generation %d (%s) is in force; it ended %d flows", c.Generation, c.Digest, c.Ended))
	return host.PolicyChange{Generation: c.Generation, Digest: c.Digest, Previous: c.Previous, Ended: c.Ended}, nil
}

// parsePolicy parses a project file with new rules. In a run of a registered project it may only narrow that one.
func (j *Job) parsePolicy(name string, file []byte) (project.File, error) {
	if j.o.Base != nil {
		return narrow(j.o.Base, name, file, true)
	}
	return project.Parse(name, file)
}

// snapshot writes the sandbox's memory to a file. The file gets its name only when it is
// complete and contains no credential.
func snapshot(ctx context.Context, s *sandbox.Sandbox, r host.SnapshotRequest) error {
	if _, err := os.Lstat(r.File); err == nil {
		return fmt.Errorf("%s exists: give another name", r.File)
	}
	f, err := os.OpenFile(filepath.Dir(r.File), unix.O_TMPFILE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("a file in %s: %w", filepath.Dir(r.File), err)
	}
	defer f.Close()
	if err := s.Dump(ctx, f, r.EndStep); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.NewSyscallError("link", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, r.File, unix.AT_SYMLINK_FOLLOW))
}
