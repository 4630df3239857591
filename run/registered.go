package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/project/registry"
	"github.com/custody-project/custody/run/caller"
)

// registered is the directory of the registered projects of h.
func registered(h *host.Host) registry.Registry { return registry.Registry{Dir: h.Projects()} }

// Wider means that a run asks for more than the registered project that it is of.
type Wider struct {
	what   string // the file that asks, or the command line
	base   registry.Version
	beyond []string
	named  bool // the run names the project; otherwise the file does
}

// Error implements error.
func (e *Wider) Error() string {
	return fmt.Sprintf("%s asks for more than the registered project %s (version %d) allows:\n  %s", e.what, e.base.Project, e.base.Number, reachLines(e.beyond))
}

// Hint returns what to do about it.
func (e *Wider) Hint() string {
	if e.named {
		return "ask for less, or have an admin register a project that allows it: custody project apply FILE"
	}
	return fmt.Sprintf("its project, %[1]s, is registered on this host, and a file of that name can only narrow it: ask for less, use another name, or run it as it is with --project %[1]s", e.base.Project)
}

// SetProject sets Project, File and Base of the options. name is the registered project that the run is of; without one it
// is the one that the file names, if that is registered. path is the project's file; if it is empty, it is the
// registered one, else custody.yaml here, else none. Home and Notice must be set.
func (o *Options) SetProject(ctx context.Context, name *string, path string) error {
	source, err := caller.ReadSource(ctx, name, path)
	if err != nil {
		return err
	}
	return o.SetSource(source)
}

// SetSource is SetProject for a file that was read before.
func (o *Options) SetSource(s caller.Source) (err error) {
	if err := o.checkTenant(); err != nil {
		return err
	}
	o.File, o.Base = s.File, nil
	text, name := s.Text, s.Project
	if name != nil {
		base, err := o.current(*name)
		if err != nil {
			return withList(err)
		}
		o.Base = &base
		if text == nil {
			o.Project, o.File = base.File, base.Path
			if s.Unused {
				o.Notice(fmt.Sprintf("%s here is not used: the run is of the registered project %s, version %d; --policy %[1]s narrows it", project.Name, *name, base.Number))
			}
			return nil
		}
	}
	if text == nil {
		o.Project = project.Default()
		return nil
	}
	if o.Base == nil {
		if o.Project, err = project.Parse(o.File, text); err != nil {
			return err
		}
		if o.Base, err = o.claimed(); o.Base == nil || err != nil {
			return err
		}
	}
	o.Project, err = narrow(o.Base, o.File, text, name != nil)
	return err
}

// tenant returns the tenant of the run.
func (o *Options) tenant() string { return cmp.Or(o.Tenant, o.Home.Config().Tenant) }

// checkTenant returns an error if the host does not serve the run's tenant.
func (o *Options) checkTenant() error {
	if !o.Home.Config().Serves(o.tenant()) {
		return fmt.Errorf("this host does not serve the tenant %q: name it under quotas.tenants in %s", o.tenant(), host.ConfigFile)
	}
	return nil
}

// current returns a registered project of the run's tenant. One of another tenant is unknown.
func (o *Options) current(name string) (registry.Registered, error) {
	if !o.Home.Config().Offers(o.tenant(), name) {
		return registry.Registered{}, fmt.Errorf("%.80q: %w", name, registry.ErrUnknown)
	}
	return registered(o.Home).Current(name)
}

// claimed returns the registered project that the project's file claims to be of, or nil if the tenant has no project of that name.
func (o *Options) claimed() (*registry.Registered, error) {
	base, err := o.current(o.Project.Project)
	if errors.Is(err, registry.ErrUnknown) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &base, nil
}

// narrow parses a file that may narrow base. named is whether the caller named the project.
func narrow(base *registry.Registered, path string, text []byte, named bool) (project.File, error) {
	f, beyond, err := base.File.Narrow(path, text)
	if err == nil && len(beyond) > 0 {
		err = &Wider{what: path, base: base.Version, beyond: beyond, named: named}
	}
	return f, err
}

// Origin names the project's file and the registered project, for the user; it is empty if there is neither.
func (o *Options) Origin() string {
	file := o.File
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	switch {
	case o.Project.SHA256 == "":
		return ""
	case o.Base == nil:
		return "project file " + file
	case o.File == o.Base.Path:
		return fmt.Sprintf("registered project %s, version %d", o.Base.Project, o.Base.Number)
	}
	return fmt.Sprintf("project file %s, within the registered project %s, version %d", file, o.Base.Project, o.Base.Number)
}

// checkBase returns an error if the options ask for more than the registered project that the run is of, or hide which
// it is.
func (o *Options) checkBase() error {
	if err := o.checkTenant(); err != nil { // SetSource may not have been used
		return err
	}
	if o.Base == nil {
		base, err := o.claimed()
		if base != nil {
			err = fmt.Errorf("the project %s is registered: the run must be of it", base.Project)
		}
		return err
	}
	var beyond []string
	if o.Template != "" && o.Template != o.Base.File.Template {
		beyond = append(beyond, fmt.Sprintf("--template %s; the project allows %s", o.Template, o.Base.File.Template))
	}
	if o.Isolation != "" && !o.Base.File.AllowsTier(o.Isolation) {
		beyond = append(beyond, fmt.Sprintf("--isolation %s; the project requires %s", o.Isolation, o.Base.File.Tiers()))
	}
	if len(beyond) == 0 {
		return nil
	}
	return &Wider{what: "the command line", base: o.Base.Version, beyond: beyond, named: true}
}

// sources returns the file that defines the secrets, and the directory to which their sources are relative. Those of a
// registered project are absolute, and its commands run in the root directory: no file that narrows it changes what they
// name.
func (o *Options) sources() (file, dir string) {
	if o.Base != nil {
		return o.Base.Path, "/"
	}
	return o.File, filepath.Dir(o.File)
}

// unknownProject is an error about a project that is not registered.
type unknownProject struct{ error }

// Unwrap returns the error of the registry.
func (e *unknownProject) Unwrap() error { return e.error }

// Hint returns what to do about it.
func (e *unknownProject) Hint() string { return "`custody project ls` lists the registered projects" }

func withList(err error) error {
	if errors.Is(err, registry.ErrUnknown) {
		return &unknownProject{err}
	}
	return err
}

// relativeSources returns an error if a file: source of p is not absolute.
func relativeSources(path string, p *project.File) error {
	for _, name := range slices.Sorted(maps.Keys(p.Secrets)) {
		s := p.Secrets[name]
		if file, ok := strings.CutPrefix(s.From, "file:"); ok && !filepath.IsAbs(file) {
			return &project.Error{File: path, Line: s.Line, Column: s.Column, Message: fmt.Sprintf("the file of the secret %q is not absolute", name),
				Hint: "write its whole path: a registered project has no directory of its own"}
		}
	}
	return nil
}
