package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/project/registry"
	"github.com/custody-project/custody/redact/pattern"
)

// Projects administers the registered projects of a host. Each change is in an access log before it is in force.
type Projects struct {
	Home    *host.Host
	Version string // of the program
	// Service has the service of the host record a change, where the log of Home is the service's.
	Service func(context.Context, audit.Access) error
}

func (p Projects) registry() registry.Registry { return registered(p.Home) }

// List writes the newest version of each project to w, or a notice that there is none.
func (p Projects) List(w io.Writer, notice func(string)) error {
	list, err := p.registry().Projects()
	if err == nil && len(list) == 0 {
		notice("there are no registered projects: custody project apply FILE registers one")
		return nil
	}
	if err != nil {
		return err
	}
	return registry.WriteTable(w, list)
}

// History writes all versions of a project to w, oldest first.
func (p Projects) History(w io.Writer, name string) error {
	list, err := p.registry().History(name)
	if err != nil {
		return withList(err)
	}
	return registry.WriteTable(w, list)
}

// Show writes the bytes of a version of a project to w; 0 is the one in force.
func (p Projects) Show(w io.Writer, name string, number uint64) error {
	get := p.registry().Current
	if number > 0 {
		get = func(name string) (registry.Registered, error) { return p.registry().Read(name, number) }
	}
	v, err := get(name)
	if err != nil {
		return withList(err)
	}
	_, err = w.Write(v.Text)
	return err
}

// Apply registers the project's file at path. changed is false if the version in force has the same bytes.
func (p Projects) Apply(ctx context.Context, path string) (v registry.Version, changed bool, err error) {
	text, err := project.ReadFile(ctx, path)
	if err != nil {
		return v, false, err
	}
	f, err := project.Parse(path, text)
	if err != nil {
		return v, false, err
	}
	if f.Project == project.Default().Project {
		return v, false, &project.Error{File: path, Message: "the file has no name for the project", Hint: "give it one: project: NAME, other than " + f.Project}
	}
	if err := errors.Join(relativeSources(path, &f), CheckAllowed(p.Home, &f, path)); err != nil {
		return v, false, err
	}
	err = p.logged(ctx, "custody project apply", func(record func(registry.Version) error) (err error) {
		v, changed, err = p.registry().Apply(ctx, text, change(), record)
		return err
	})
	return v, changed, err
}

// Withdraw withdraws a project: no new run can be of it.
func (p Projects) Withdraw(ctx context.Context, name string) (v registry.Version, err error) {
	err = p.logged(ctx, "custody project rm", func(record func(registry.Version) error) (err error) {
		v, err = p.registry().Withdraw(ctx, name, change(), record)
		return err
	})
	return v, withList(err)
}

// logged calls change with a function that writes the change into an access log. If the change fails afterwards, the log
// has that too.
func (p Projects) logged(ctx context.Context, command string, change func(record func(registry.Version) error) error) error {
	log, err := p.log()
	if err != nil {
		return err
	}
	var entry *audit.Access
	err = change(func(v registry.Version) error {
		entry = &audit.Access{Who: host.CallerName(), Via: "cli", Tenant: p.Home.Config().Tenant, Action: "manage", Route: command,
			Verdict: audit.Allow, Project: v.Project, ProjectVersion: v.Number, ProjectDigest: v.Digest}
		return log.Record(ctx, *entry)
	})
	if err != nil && entry != nil {
		entry.Verdict, entry.Reason = audit.Deny, "it failed: "+err.Error()
		err = errors.Join(err, log.Record(context.WithoutCancel(ctx), *entry))
	}
	closed := log.Close()
	if err == nil && closed != nil {
		return fmt.Errorf("the change is in force, and its access log is not complete in the store yet: %w", closed)
	}
	return errors.Join(err, closed)
}

// accessLog is where changes are recorded.
type accessLog interface {
	Record(context.Context, audit.Access) error
	Close() error
}

// log returns the access log of Home or of its service.
func (p Projects) log() (accessLog, error) {
	if served := (*host.ServedError)(nil); errors.As(p.Home.ManifestLog().Served(), &served) {
		return serviceLog(p.Service), nil
	}
	tag, err := p.Home.TagKey()
	if err != nil {
		return nil, err
	}
	redactor, err := pattern.NewRedactor(tag)
	if err != nil {
		return nil, err
	}
	return p.Home.AccessLog(redactor, p.Version), nil
}

// serviceLog is the access log of a service.
type serviceLog func(context.Context, audit.Access) error

// Record implements accessLog.
func (l serviceLog) Record(ctx context.Context, a audit.Access) error { return l(ctx, a) }

// Close implements accessLog. The service closes its log itself.
func (serviceLog) Close() error { return nil }

func change() registry.Change {
	return registry.Change{Author: host.CallerName(), UID: host.Caller(), Time: time.Now().UTC()}
}
