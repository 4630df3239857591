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

// permit implements own.
func (c ProjectChange) permit(uid int, key string) error {
	switch {
	case uid != 0:
		return errors.New("only root changes the registered projects")
	case c.Key != key:
		return errors.New("this is the service of another host's state, which has another key: name the socket of the right one in " + remote.SocketEnv)
	case !project.ValidName(c.Project):
		return fmt.Errorf("%.80q cannot be the name of a project", c.Project)
	}
	return nil
}

// own is a command that describes its own event, which is what its users want of it.
type own interface {
	Command
	// permit returns an error for a user for whom the event is not recorded. key is the host's public key.
	permit(uid int, key string) error
	event(tenant string) audit.Access
}

// admit returns the event of a command, or an error if it is not executed for the user.
func (s *Server) admit(c Command, uid int) (audit.Access, error) {
	o, is := c.(own)
	if !is {
		return event(c, uid, s.Tenant)
	}
	open := s.Open
	if open == nil {
		open = host.Open
	}
	h, err := open(s.Dir)
	if err != nil {
		return audit.Access{}, err
	}
	key, err := h.Keys().Public()
	if err != nil {
		return audit.Access{}, err
	}
	return o.event(s.Tenant), o.permit(uid, key)
}
