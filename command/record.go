package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/service/remote"
)

// ProjectChange is a change of a registered project by root, which the service only records: its log is the only one of the host.
type ProjectChange struct {
	Key     string // the host's public key where the project is registered
	Remove  bool   // it is withdrawn
	Who     string
	Project string
	Version uint64
	Digest  string // of the version
	Failed  string // why the change is not in force although it was recorded before
}

// Record has the service record an access that changes a project of h, whose log is the service's.
func (cl Client) Record(ctx context.Context, h *host.Host, a audit.Access) error {
	key, err := h.Keys().Public()
	if err != nil {
		return err
	}
	c := ProjectChange{Key: key, Remove: strings.HasSuffix(a.Route, " rm"), Who: a.Who, Project: a.Project, Version: a.ProjectVersion, Digest: a.ProjectDigest}
	if a.Verdict == audit.Deny {
		c.Failed = a.Reason
	}
	if err := cl.Execute(ctx, c); err != nil {
		return &unrecordedError{err}
	}
	return nil
}

// unrecordedError is a change that the service has not recorded.
type unrecordedError struct{ cause error }

// Error implements error.
func (e *unrecordedError) Error() string {
	return fmt.Sprintf("the change is not recorded, because the service has the only log of this host: %v", e.cause)
}

// Unwrap returns the cause.
func (e *unrecordedError) Unwrap() error { return e.cause }

// Hint returns what to do about it.
func (*unrecordedError) Hint() string {
	return "start the service (systemctl start custody-serve), or name its socket in " + remote.SocketEnv + ", then try again"
}

// Path implements Command.
func (c ProjectChange) Path() string {
	if c.Remove {
		return "project rm"
	}
	return "project apply"
}

func (c ProjectChange) access() access { return access{action: "manage"} }

// Execute implements Command. The server has recorded it.
func (c ProjectChange) Execute(context.Context, *Env) error { return nil }

// event implements own.
func (c ProjectChange) event(tenant string) audit.Access {
	a := audit.Access{Who: clip(c.Who), Via: "cli", Tenant: tenant, Action: "manage", Route: "custody " + c.Path(), Verdict: audit.Allow,
		Project: c.Project, ProjectVersion: c.Version, ProjectDigest: clip(c.Digest)}
	if c.Failed != "" {
		a.Verdict, a.Reason = audit.Deny, clip(c.Failed)
	}
	return a
}

// permit implements guarded.
func (c ProjectChange) permit(uid int, key string) error {
	if err := rootOf(uid, key, c.Key, "changes the registered projects"); err != nil {
		return err
	}
	if !project.ValidName(c.Project) {
		return fmt.Errorf("%.80q cannot be the name of a project", c.Project)
	}
	return nil
}

// rootOf returns an error unless the user is root and names the host's public key.
func rootOf(uid int, key, named, does string) error {
	switch {
	case uid != 0:
		return errors.New("only root " + does)
	case named != key:
		return errors.New("this is the service of another host's state, which has another key: name the socket of the right one in " + remote.SocketEnv)
	}
	return nil
}

// guarded is a command that not every user of the service can execute.
type guarded interface {
	// permit returns an error for a user for whom the command is neither recorded nor executed. key is the host's public key.
	permit(uid int, key string) error
}

// own is a command that describes its own event, which is what its users want of it.
type own interface {
	event(tenant string) audit.Access
}

// admit returns the event of a command, or an error if it is not executed for the user.
func (s *Server) admit(c Command, uid int) (audit.Access, error) {
	if g, is := c.(guarded); is {
		if err := s.guard(g, uid); err != nil {
			return audit.Access{}, err
		}
	}
	if o, is := c.(own); is {
		return o.event(s.Tenant), nil
	}
	return event(c, uid, s.Tenant)
}

func (s *Server) guard(g guarded, uid int) error {
	open := s.Open
	if open == nil {
		open = host.Open
	}
	h, err := open(s.Dir)
	if err != nil {
		return err
	}
	key, err := h.Keys().Public()
	if err != nil {
		return err
	}
	return g.permit(uid, key)
}
