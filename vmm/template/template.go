// Package template makes and stores templates, from which sandboxes start. A template has a guest kernel,
// an initramfs with custody-guest, a read-only userland, and for each machine
// shape a snapshot that was taken when the guest was ready.
//
//	templates/
//	    lock                      locked while a template or a snapshot is made
//	    names/base                a link to the directory below
//	    sha256-<digest>/          named by the digest of its contents
//	        template.json kernel initrd root.erofs
//	        verified.json         digests that were checked, by inode and ctime
//	        shapes/<tier>-<cpus>-<MiB>-<disk MiB>/   shape.json memory state disk
package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// Store is the directory with a host's templates.
type Store struct {
	Dir   string
	Guest string    // path of the custody-guest program
	Log   io.Writer // receives progress messages, a line each; never nil
}

// Template is one template of a store.
type Template struct {
	Name    string   `json:"name"`
	Arch    string   `json:"arch"`
	Source  string   `json:"source"` // base, dir or oci; for a layered template: the source of its first template
	Kernel  string   `json:"kernel_sha256"`
	Initrd  string   `json:"initrd_sha256"`
	Root    string   `json:"root_sha256"`
	Guest   string   `json:"guest_sha256"`
	Release string   `json:"kernel_release"`
	Env     []string `json:"env,omitempty"`
	// Packages are those in addition to the default ones, Suite is a suite other than the default. Only for the source base.
	Packages []string `json:"packages,omitempty"`
	Suite    string   `json:"suite,omitempty"`
	// From is the template that this one was built from; nil: none.
	From *Origin `json:"from,omitempty"`
	// Added is set if files that belong to no package were copied over the userland.
	Added   bool      `json:"added,omitempty"`
	Created time.Time `json:"created"`

	store Store
	dir   string
}

// Origin identifies the template that another one was built from.
type Origin struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// ErrNotFound is returned for a name that the store does not have.
var ErrNotFound = errors.New("no such template")

// ErrBroken means that a template's files do not match its digests, or cannot be parsed.
var ErrBroken = errors.New("template is broken")

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q is not a template name: use a-z, 0-9, '.', '_' and '-'", name)
	}
	return nil
}

// Digest identifies the contents: kernel, initramfs, userland and environment.
func (t Template) Digest() string {
	t.Name, t.Created = "", time.Time{}
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // marshaling a struct of strings cannot fail
	}
	sum := sha256.Sum256(b)
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Open returns the template of a name. If the template contains another
// custody-guest than Store.Guest, Open renews it first.
func (s Store) Open(ctx context.Context, name string) (Template, error) {
	if err := checkName(name); err != nil {
		return Template{}, err
	}
	t, err := s.read(filepath.Join(s.Dir, "names", name))
	if errors.Is(err, ErrNotFound) {
		return Template{}, err
	}
	if err == nil {
		if same, err := t.hasGuest(ctx, s.Guest); err == nil && same {
			return t, nil
		}
	}
	// renew repeats the checks with the lock held: another process may be renewing
	// the template at the same time.
	return s.renew(ctx, name)
}

func (s Store) read(link string) (Template, error) {
	name := filepath.Base(link)
	dir, err := filepath.EvalSymlinks(link)
	if errors.Is(err, fs.ErrNotExist) {
		return Template{}, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return Template{}, err
	}
	b, err := regular.ReadFile(filepath.Join(dir, "template.json"))
	if err != nil {
		return Template{}, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	var t Template
	if err := json.Unmarshal(b, &t); err != nil {
		return Template{}, fmt.Errorf("%w: template.json: %w", ErrBroken, err)
	}
	if t.Digest() != filepath.Base(dir) {
		return Template{}, fmt.Errorf("%w: template.json does not have the digest %s", ErrBroken, filepath.Base(dir))
	}
	if t.Arch != runtime.GOARCH {
		return Template{}, fmt.Errorf("template %s is for %s, this host is %s", name, t.Arch, runtime.GOARCH)
	}
	t.Name, t.store, t.dir = name, s, dir
	return t, nil
}

// Find returns the template of a name without renewing it.
func (s Store) Find(name string) (Template, error) {
	if err := checkName(name); err != nil {
		return Template{}, err
	}
	return s.read(filepath.Join(s.Dir, "names", name))
}

// List returns the store's templates, sorted by name. Of a broken template, only the name is set.
func (s Store) List() ([]Template, error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "names"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Template
	for _, e := range entries {
		t, err := s.read(filepath.Join(s.Dir, "names", e.Name()))
		if err != nil {
			t = Template{Name: e.Name()}
		}
		all = append(all, t)
	}
	return all, nil
}

// Remove removes a name, and the template's files if no other name refers to them.
func (s Store) Remove(ctx context.Context, name string) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Remove(filepath.Join(s.Dir, "names", filepath.Base(name))); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s", ErrNotFound, name)
		}
		return err
	}
	return s.sweep()
}

// sweep removes templates that no name refers to, and files of builds that were killed.
func (s Store) sweep() error {
	names, err := os.ReadDir(filepath.Join(s.Dir, "names"))
	if err != nil {
		return err
	}
	var used []string
	for _, n := range names {
		if to, err := os.Readlink(filepath.Join(s.Dir, "names", n.Name())); err == nil {
			used = append(used, filepath.Base(to))
		}
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if keep := []string{"names", "lock", "blank"}; e.IsDir() && !slices.Contains(keep, e.Name()) && !slices.Contains(used, e.Name()) {
			if err := os.RemoveAll(filepath.Join(s.Dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Blanks returns the directory of empty scratch disks, which cold boots copy.
func (s Store) Blanks() string { return filepath.Join(s.Dir, "blank") }

// lock locks the store for changes, and waits for another holder until the context ends. The kernel
// releases the lock at the end of the process.
func (s Store) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Join(s.Dir, "names"), 0o700); err != nil {
		return nil, err
	}
	f, err := regular.OpenFile(filepath.Join(s.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = s.phase(ctx, "waiting for another process that makes a template or a snapshot", lockTimeout, func(ctx context.Context) error {
		return flock.LockWithin(ctx, f, unix.LOCK_EX, lockTimeout)
	})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the template store: %w", err)
	}
	return func() { f.Close() }, nil
}
