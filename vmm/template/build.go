package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Source fills a folder with a userland.
type Source interface {
	// Kind names the source to people.
	Kind() string
	// Describe sets what is recorded of the source in a template that Fill has filled.
	Describe(t *Template)
	// Fill puts the userland's tree into root and returns the environment that it asks for.
	Fill(ctx context.Context, root string) (env []string, err error)
}

// Build makes a template out of a source and gives it a name, replacing what
// had the name before. A build that fails or dies leaves the old one in place.
func (s Store) Build(ctx context.Context, name string, src Source) (Template, error) {
	if err := checkName(name); err != nil {
		return Template{}, err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return Template{}, err
	}
	defer unlock()
	if err := s.sweep(); err != nil {
		return Template{}, err
	}
	work, err := os.MkdirTemp(s.Dir, "build-")
	if err != nil {
		return Template{}, err
	}
	defer os.RemoveAll(work)

	tree := filepath.Join(work, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return Template{}, err
	}
	fmt.Fprintf(s.Log, "filling the userland (%s)\n", src.Kind())
	env, err := src.Fill(ctx, tree)
	if err != nil {
		return Template{}, fmt.Errorf("template %s: %w", name, err)
	}
	out := filepath.Join(work, "out")
	if err := os.Mkdir(out, 0o700); err != nil {
		return Template{}, err
	}
	fmt.Fprintln(s.Log, "packing the userland")
	if err := packRoot(ctx, tree, filepath.Join(out, "root.erofs")); err != nil {
		return Template{}, err
	}
	modules, release, err := s.kernel(ctx, name, work, out)
	if err != nil {
		return Template{}, err
	}
	if err := writeInitrd(filepath.Join(out, "initrd"), s.Guest, modules); err != nil {
		return Template{}, err
	}
	t := Template{Name: name, Arch: runtime.GOARCH, Release: release, Env: env, Created: time.Now().UTC()}
	src.Describe(&t)
	return s.publish(ctx, t, out)
}

// publish gives the finished folder its digest as name and points t.Name at it.
func (s Store) publish(ctx context.Context, t Template, out string) (Template, error) {
	var err error
	for file, digest := range map[string]*string{"kernel": &t.Kernel, "initrd": &t.Initrd, "root.erofs": &t.Root} {
		if *digest, err = hashFile(ctx, filepath.Join(out, file)); err != nil {
			return Template{}, err
		}
	}
	if t.Guest, err = hashFile(ctx, s.Guest); err != nil {
		return Template{}, err
	}
	b, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return Template{}, err
	}
	if err := os.WriteFile(filepath.Join(out, "template.json"), append(b, '\n'), 0o400); err != nil {
		return Template{}, err
	}
	if err := syncTree(out); err != nil {
		return Template{}, err
	}
	dir := filepath.Join(s.Dir, t.Digest())
	if err := os.Rename(out, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return Template{}, err
	}
	link := filepath.Join(s.Dir, "names", t.Name)
	os.Remove(link + ".new")
	if err := os.Symlink(filepath.Join("..", t.Digest()), link+".new"); err != nil {
		return Template{}, err
	}
	if err := os.Rename(link+".new", link); err != nil {
		return Template{}, err
	}
	fmt.Fprintf(s.Log, "template %s is %s\n", t.Name, t.Digest())
	return s.read(link)
}

// renew makes the template again with this program's custody-guest, from the
// kernel, modules and userland that it has, unless that has been done already.
func (s Store) renew(ctx context.Context, name string) (Template, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return Template{}, err
	}
	defer unlock()
	t, err := s.read(filepath.Join(s.Dir, "names", name))
	if err != nil {
		return Template{}, err
	}
	if same, err := t.holdsGuest(ctx, s.Guest); err != nil || same {
		return t, err
	}
	fmt.Fprintf(s.Log, "template %s holds another version of custody-guest: renewing it\n", t.Name)
	if err := t.verify(ctx, "kernel", "initrd", "root.erofs"); err != nil {
		return Template{}, err
	}
	work, err := os.MkdirTemp(s.Dir, "build-")
	if err != nil {
		return Template{}, err
	}
	defer os.RemoveAll(work)
	out := filepath.Join(work, "out")
	if err := os.Mkdir(out, 0o700); err != nil {
		return Template{}, err
	}
	for _, file := range []string{"kernel", "root.erofs"} {
		if err := os.Link(filepath.Join(t.dir, file), filepath.Join(out, file)); err != nil {
			return Template{}, err
		}
	}
	modules := filepath.Join(work, "modules")
	if err := readModules(filepath.Join(t.dir, "initrd"), modules); err != nil {
		return Template{}, err
	}
	if err := writeInitrd(filepath.Join(out, "initrd"), s.Guest, modules); err != nil {
		return Template{}, err
	}
	t.Created = time.Now().UTC()
	if t, err = s.publish(ctx, t, out); err != nil {
		return Template{}, err
	}
	return t, s.sweep()
}

// packRoot makes a read-only image of a tree. Times of the files are kept;
// owners are those of the tree.
func packRoot(ctx context.Context, tree, image string) error {
	if err := furnish(tree); err != nil {
		return err
	}
	return tool(ctx, "mkfs.erofs", "-zlz4", image, tree)
}

// Every userland has these directories. What stands at one of mountPoints no sandbox sees.
var (
	mountPoints = []string{"dev", "proc", "sys", "run", "workspace"}
	usualDirs   = []string{"etc", "root", "tmp"}
)

// furnish makes the directories that a userland lacks. Links of the userland lead to places in
// a sandbox, not on this host: none is followed.
func furnish(tree string) error {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, dir := range mountPoints {
		if err := makeDir(root, dir); err != nil {
			return fmt.Errorf("the userland has no usable /%s: %w", dir, err)
		}
	}
	for _, dir := range usualDirs {
		if err := root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("the userland has no usable /%s: %w", dir, err)
		}
	}
	// A sandbox has a directory /etc of its own, which would hide whatever a link leads to.
	if info, err := root.Lstat("etc"); err != nil || !info.IsDir() {
		return errors.Join(err, errors.New("the userland's /etc is not a directory: make it one"))
	}
	if info, err := root.Lstat("tmp"); err != nil || !info.IsDir() {
		return err // a link to another directory of the sandbox's
	}
	return withFile(root, "tmp", os.O_RDONLY|unix.O_DIRECTORY, func(f *os.File) error { return f.Chmod(0o777 | os.ModeSticky) })
}

// tool runs a program of the host and puts the end of its words into the error.
func tool(ctx context.Context, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%s is not installed: run `make deps`, or install the package that has it", name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s: %w: %s", name, err, strings.Join(lines[max(0, len(lines)-4):], "; "))
	}
	return nil
}
