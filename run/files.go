package run

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/docker/go-units"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/secrets/local"
	"github.com/custody-project/custody/vmm/scratch"
	"github.com/custody-project/custody/workspace"
)

// The part of an empty scratch disk that the sandbox itself uses.
const (
	usedBytes = 4 << 20
	usedFiles = 256
)

// files are the files that a run copies in and out.
type files struct {
	in     sandbox.In
	out    sandbox.Out
	source *channel.SourceDir // nil: nothing is copied in
	// destination is where files are copied out; nil: none are.
	destination *channel.DestinationDir
	pick        *workspace.Selection
}

// Close closes the directory that is copied in.
func (f *files) Close() error {
	if f.pick == nil {
		return nil
	}
	return f.pick.Close()
}

// check checks the directory that is copied in and the one that files are copied out to.
func (f *files) check(ctx context.Context, o *Options, m *messages) error {
	if o.Workdir != "" {
		if err := f.measure(ctx, o, m); err != nil {
			return fmt.Errorf("--workdir %s: %w", o.Workdir, err)
		}
	}
	if o.Out == "" {
		return nil
	}
	if err := workspace.CheckOut(o.Out, o.Home.Dir); err != nil {
		return err
	}
	_, sources := o.sources()
	guard := workspace.GuardOptions{Named: o.Project.HostFiles(o.File, sources), Home: o.Home.Dir, Git: git(ctx, o.Out)}
	if f.pick != nil && sameFolder(o.Workdir, o.Out) {
		guard.Left = f.pick.Ignored
	}
	g, err := workspace.NewGuard(o.Out, guard)
	if err != nil {
		return err
	}
	f.destination = channel.NewDestinationDir(o.Out, channel.Protect{Guard: g, From: f.source, Limit: o.Project.Limits.Disk})
	f.out = sandbox.Out{Destination: f.destination, Dir: o.Out}
	return nil
}

// git returns a function that makes git commands. Root runs git as the owner of the --out directory, so that git reads that user's
// configuration, and only files that the owner can read; the protection of safe.directory is then not needed.
func git(ctx context.Context, out string) func(args ...string) *exec.Cmd {
	return func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*"}, args...)...)
		// Git sets these variables for its hooks. They would make it use another repository.
		cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return name == "GIT_DIR" || name == "GIT_WORK_TREE" || name == "GIT_COMMON_DIR"
		})
		ofOwner := func(string) string { return "" }
		if owner, err := local.FindCaller(ofOwner, out, ""); err == nil {
			owner.Become(cmd)
		}
		return cmd
	}
}

func sameFolder(a, b string) bool {
	one, err1 := os.Stat(a)
	other, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, other)
}

// measure selects the files of the directory to copy in, and checks that they fit on the scratch disk.
func (f *files) measure(ctx context.Context, o *Options, m *messages) (err error) {
	dir := o.Workdir
	_, sources := o.sources()
	f.pick, err = workspace.NewSelection(dir, o.Project.SecretFiles(sources), o.Home.Dir)
	if err != nil {
		return err
	}
	f.source = channel.NewSourceDir(dir, f.pick.Leave)
	size, err := f.source.Measure(ctx)
	if err != nil {
		return err
	}
	sandbox.Warn(m.notice, f.pick.Notices)
	f.in = sandbox.In{Source: f.source, Dir: dir, Size: size}
	return fits(ctx, o.Home, size, o.Project.Limits.Disk)
}

// tooLarge means that a directory does not fit on a scratch disk.
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

func fits(ctx context.Context, h *host.Host, size channel.Size, disk int64) error {
	bytes, places, err := scratch.Capacity(ctx, h.Blanks(), disk)
	if err != nil {
		return err
	}
	bytes, places = bytes-usedBytes, places-usedFiles
	if size.Room <= bytes && int64(size.Files+size.Folders) <= places {
		return nil
	}
	return &tooLarge{size, disk, bytes, places}
}
