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

// Source provides a userland.
type Source interface {
	// Kind is the name of the source's kind, for people.
	Kind() string
	// Describe sets the fields of t that describe the source. It is called after Fill.
	Describe(t *Template)
	// Fill writes the userland's files to the directory root and returns its environment variables, NAME=VALUE.
	Fill(ctx context.Context, root string) (env []string, err error)
}

// Build makes a template from a source and stores it under a name. It replaces an existing
// template of that name only if the build succeeds.
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

// publish renames the finished directory to its digest and links t.Name to it.
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

// renew makes the template again with this program's custody-guest, and with the
// template's kernel, modules and userland, unless another process has already done so.
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
	if same, err := t.hasGuest(ctx, s.Guest); err != nil || same {
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

// packRoot makes a read-only image of a tree, with the times and owners of its
// files.
func packRoot(ctx context.Context, tree, image string) error {
	if err := addDirs(tree); err != nil {
		return err
	}
	return tool(ctx, "mkfs.erofs", "-zlz4", image, tree)
}

// Every userland has these directories. Sandboxes mount over mountPoints, so files there are hidden.
var (
	mountPoints = []string{"dev", "proc", "sys", "run", "workspace"}
	usualDirs   = []string{"etc", "root", "tmp"}
)

// addDirs makes the directories that a userland lacks. It follows no symbolic link of the userland: their
// targets are paths in a sandbox, not on this host.
func addDirs(tree string) error {
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
	// A sandbox mounts its own directory /etc, which would hide the target of a link.
	if info, err := root.Lstat("etc"); err != nil || !info.IsDir() {
		return errors.Join(err, errors.New("the userland's /etc is not a directory: make it one"))
	}
	if info, err := root.Lstat("tmp"); err != nil || !info.IsDir() {
		return err // a link to another directory of the sandbox
	}
	return withFile(root, "tmp", os.O_RDONLY|unix.O_DIRECTORY, func(f *os.File) error { return f.Chmod(0o777 | os.ModeSticky) })
}

// tool runs a program of the host. Its error contains what the program's output says about the cause.
func tool(ctx context.Context, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%s is not installed: run `make deps`, or install the package that has it", name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.Join(causes(string(out)), "; "))
	}
	return nil
}

// causes returns the first errors in the output of a program, in the form of apt and mmdebstrap; without any, its last lines.
func causes(out string) []string {
	const most = 4
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var errs []string
	for _, line := range lines {
		if strings.HasPrefix(line, "E: ") {
			errs = append(errs, line)
		}
	}
	if len(errs) > 0 {
		return errs[:min(len(errs), most)]
	}
	return lines[max(0, len(lines)-most):]
}
