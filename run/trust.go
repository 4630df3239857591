package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/project"
)

// Untrusted means that a project file requests access outside its sandbox, and that its current contents were not accepted.
type Untrusted struct {
	path, changed string
	reach         []string
}

// Error implements error.
func (e *Untrusted) Error() string {
	why := "it has not been accepted on this host"
	if e.changed != "" {
		why = e.changed + " has changed since it was accepted"
	}
	return fmt.Sprintf("%s is not trusted: %s. It asks for:\n  %s", e.path, why, reachLines(e.reach))
}

// Hint returns what to do about it.
func (e *Untrusted) Hint() string {
	return "read it, and accept its present contents: custody trust " + e.path
}

// reachLines joins what a file requests, one per line. The texts may be hostile: control characters are replaced.
func reachLines(reach []string) string {
	for i, line := range reach {
		reach[i] = strings.Map(printable, line)
	}
	return strings.Join(reach, "\n  ")
}

// printable replaces a control character.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}

// Overreach means that a project file requests more than host.yaml allows.
type Overreach struct {
	path   string
	beyond []string
}

// Error implements error.
func (e *Overreach) Error() string {
	return fmt.Sprintf("%s asks for more than %s allows:\n  %s", e.path, host.ConfigFile, reachLines(e.beyond))
}

// Hint returns what to do about it.
func (e *Overreach) Hint() string {
	return "remove it from the project's file, or have it allowed under projects in " + host.ConfigFile
}

// CheckAllowed returns an error if the project file at path requests more than the host allows.
func CheckAllowed(h *host.Host, p *project.File, path string) error {
	beyond, err := p.Beyond(h.Config().Projects)
	if err != nil {
		return err
	}
	if len(beyond) > 0 {
		return &Overreach{path, beyond}
	}
	return nil
}

// CheckTrust returns an error unless the host allows what the project file at path requests, and either the file requests
// nothing outside its sandbox or its current contents were accepted, before or now by accept. accept may be nil.
func CheckTrust(ctx context.Context, h *host.Host, p *project.File, path string, accept func(*Untrusted) bool) error {
	if err := CheckAllowed(h, p, path); err != nil {
		return err
	}
	reach := p.Reach()
	if len(reach) == 0 || p.SHA256 == "" {
		return nil
	}
	if err := CheckOwner(path); err != nil {
		return err
	}
	t, err := h.TrustStore().Read(path, p.SHA256, p.CommandFiles(filepath.Dir(path)))
	if err != nil {
		return err
	}
	changed, known := h.TrustStore().Changed(t)
	if known && changed == "" {
		return nil
	}
	no := &Untrusted{path: path, changed: changed, reach: reach}
	if accept == nil || !accept(no) {
		return no
	}
	return h.TrustStore().Accept(ctx, t)
}

// checkTrust is CheckTrust for the file of a run. A registered project needs no acceptance: an admin has registered it.
func checkTrust(ctx context.Context, o *Options) error {
	if o.Vetted || o.Base != nil && o.File == o.Base.Path {
		return CheckAllowed(o.Home, &o.Project, o.File)
	}
	return CheckTrust(ctx, o.Home, &o.Project, o.File, o.Accept)
}

// Trust accepts the current contents of the project file at path, and returns what the file requests.
func Trust(ctx context.Context, h *host.Host, p *project.File, path string) (reach string, err error) {
	if err := errors.Join(CheckAllowed(h, p, path), CheckOwner(path)); err != nil {
		return "", err
	}
	t, err := h.TrustStore().Read(path, p.SHA256, p.CommandFiles(filepath.Dir(path)))
	if err != nil {
		return "", err
	}
	asks := p.Reach()
	if len(asks) == 0 {
		asks = []string{"nothing outside its sandbox"}
	}
	return reachLines(asks), h.TrustStore().Accept(ctx, t)
}

// CheckOwner returns an error unless the file and the directories above it belong to root or to the calling user and
// are not writable by others. Git requires the same of a repository (safe.directory).
func CheckOwner(path string) error {
	err := host.CheckOwner(path, 0o002)
	if e := new(host.OwnerError); errors.As(err, &e) {
		return &ownerError{err}
	}
	return err
}

// ownerError means that others can change a project's file.
type ownerError struct{ error }

// Unwrap returns the error of host.CheckOwner.
func (e *ownerError) Unwrap() error { return e.error }

// Hint returns what to do about it.
func (e *ownerError) Hint() string {
	return "a project file makes requests in your name: use one that you or root own and others cannot write to"
}
