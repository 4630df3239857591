package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/docker/go-units"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/secrets/local"
	"github.com/custody-project/custody/vmm/scratch"
	"github.com/custody-project/custody/workspace"
)

// What of an empty scratch disk a sandbox uses for itself.
const (
	usedBytes = 4 << 20
	usedFiles = 256
)

// files is what a run copies in and out.
type files struct {
	in    sandbox.Workdir
	guard *workspace.Guard
	pick  *workspace.Selection
}

// Close closes the directory that is copied in.
func (f *files) Close() error {
	if f.pick == nil {
		return nil
	}
	return f.pick.Close()
}

// lookAtFiles looks at what is to be copied in, and at where files are to be copied out to, before anything is begun.
func (j *job) lookAtFiles() error {
	if j.cmd.Workdir != "" {
		if err := j.measure(); err != nil {
			return fmt.Errorf("--workdir %s: %w", j.cmd.Workdir, err)
		}
	}
	if j.cmd.Out == "" {
		return nil
	}
	if err := workspace.CheckOut(j.cmd.Out, j.home.Dir); err != nil {
		return err
	}
	o := workspace.GuardOptions{Named: j.project.HostFiles(j.policyFile(), sourceDir(j.cmd.Policy)), Home: j.home.Dir, Git: j.git}
	if j.files.pick != nil && sameFolder(j.cmd.Workdir, j.cmd.Out) {
		o.Left = j.files.pick.Ignored
	}
	var err error
	j.files.guard, err = workspace.NewGuard(j.cmd.Out, o)
	return err
}

// git returns a git command. Root runs it as the owner of the directory of --out, so that it reads that user's
// configuration and no file that the owner cannot read; so safe.directory has nothing to protect.
func (j *job) git(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(j.ctx, "git", append([]string{"-c", "safe.directory=*"}, args...)...)
	// These would lead to another repository; git sets them for its hooks.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "GIT_DIR" || name == "GIT_WORK_TREE" || name == "GIT_COMMON_DIR"
	})
	ofOwner := func(string) string { return "" }
	if owner, err := local.FindCaller(ofOwner, j.cmd.Out, ""); err == nil {
		owner.Become(cmd)
	}
	return cmd
}

func sameFolder(a, b string) bool {
	one, err1 := os.Stat(a)
	other, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, other)
}

// measure finds out what of the directory is copied in, and whether the scratch disk has room for it.
func (j *job) measure() (err error) {
	dir := j.cmd.Workdir
	j.files.pick, err = workspace.NewSelection(dir, j.project.SecretFiles(sourceDir(j.cmd.Policy)), j.home.Dir)
	if err != nil {
		return err
	}
	size, err := channel.Measure(j.ctx, dir, j.files.pick.Leave)
	if err != nil {
		return err
	}
	sandbox.Tell(j.say, j.files.pick.Notices)
	j.files.in = sandbox.Workdir{Dir: dir, Leave: j.files.pick.Leave, Size: size}
	return fits(j.ctx, j.home, size, j.project.Limits.Disk)
}

// tooLarge means that a scratch disk has no room for a directory.
type tooLarge struct {
	size                channel.Size
	disk, bytes, places int64
}

// Error implements error.
func (e *tooLarge) Error() string {
	return fmt.Sprintf("%d files and %d directories take %s; a scratch disk of limits.disk (%s) has room for %s, and for %d of them",
		e.size.Files, e.size.Folders, units.BytesSize(float64(e.size.Room)), units.BytesSize(float64(e.disk)), units.BytesSize(float64(e.bytes)), e.places)
}

// Hint returns what to do about it.
func (e *tooLarge) Hint() string {
	return "raise limits.disk in custody.yaml, or leave files out with lines in " + workspace.IgnoreFile
}

func fits(ctx context.Context, h *home.Home, size channel.Size, disk int64) error {
	bytes, places, err := scratch.Room(ctx, h.Blanks(), disk)
	if err != nil {
		return err
	}
	bytes, places = bytes-usedBytes, places-usedFiles
	if size.Room <= bytes && int64(size.Files+size.Folders) <= places {
		return nil
	}
	return &tooLarge{size, disk, bytes, places}
}
