package run

import (
	"context"
	"errors"
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
	"github.com/custody-project/custody/workspace/transfer"
)

// The part of an empty scratch disk that the sandbox itself uses.
const (
	usedBytes = 4 << 20
	usedFiles = 256
)

// fileSpec returns the FileSpec of the run.
func (o *Options) fileSpec() FileSpec {
	_, sources := o.sources()
	return FileSpec{
		Workdir: o.Workdir, Out: o.Out, Secrets: o.Project.SecretFiles(sources), Named: o.Project.HostFiles(o.File, sources),
		Home: o.Home.Dir, Disk: o.Project.Limits.Disk,
	}
}

// openFiles opens the run's files, and checks that they fit on the scratch disk.
func (j *Job) openFiles(ctx context.Context) (err error) {
	o := &j.o
	open := o.OpenFiles
	if open == nil || o.Workdir == "" && o.Out == "" {
		open = func(ctx context.Context, s FileSpec) (Files, error) { return OpenFiles(ctx, s, j.messages.notice) }
	}
	if j.files, err = open(ctx, o.fileSpec()); err != nil || o.Workdir == "" {
		return err
	}
	if err := fits(ctx, o.Home, j.files.Size(), o.Project.Limits.Disk); err != nil {
		return fmt.Errorf("--workdir %s: %w", o.Workdir, err)
	}
	return nil
}

// localFiles are files that this process reads and writes.
type localFiles struct {
	*transfer.Server
	pick *workspace.Selection // nil: nothing is copied in
	size channel.Size
}

// Size implements Files.
func (f *localFiles) Size() channel.Size { return f.size }

// Close implements privsep.Server.
func (f *localFiles) Close() error {
	err := f.Server.Close()
	if f.pick != nil {
		err = errors.Join(err, f.pick.Close())
		f.pick = nil
	}
	return err
}

// OpenFiles checks the directory that is copied in, and the one that files are copied out to, with the rights of this process.
func OpenFiles(ctx context.Context, s FileSpec, notice func(string)) (Files, error) {
	f := &localFiles{}
	var in *channel.SourceDir
	var err error
	if s.Workdir != "" {
		if in, err = f.measure(ctx, s, notice); err != nil {
			return nil, fmt.Errorf("--workdir %s: %w", s.Workdir, err)
		}
	}
	out, err := f.destination(ctx, s, in)
	f.Server = transfer.NewServer(in, out)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// measure selects the files of the directory to copy in, and measures them.
func (f *localFiles) measure(ctx context.Context, s FileSpec, notice func(string)) (*channel.SourceDir, error) {
	pick, err := workspace.NewSelection(s.Workdir, s.Secrets, s.Home)
	if err != nil {
		return nil, err
	}
	in := channel.NewSourceDir(s.Workdir, pick.Leave)
	if f.size, err = in.Measure(ctx); err != nil {
		return nil, errors.Join(err, pick.Close())
	}
	f.pick = pick
	sandbox.Warn(notice, pick.Notices)
	return in, nil
}

// destination checks the directory that files are copied out to. It returns nil if there is none.
func (f *localFiles) destination(ctx context.Context, s FileSpec, in *channel.SourceDir) (*channel.DestinationDir, error) {
	if s.Out == "" {
		return nil, nil
	}
	if err := workspace.CheckOut(s.Out, s.Home); err != nil {
		return nil, err
	}
	guard := workspace.GuardOptions{Named: s.Named, Home: s.Home, Git: git(ctx, s.Out)}
	if f.pick != nil && sameFolder(s.Workdir, s.Out) {
		guard.Left = f.pick.Ignored
	}
	g, err := workspace.NewGuard(s.Out, guard)
	if err != nil {
		return nil, err
	}
	return channel.NewDestinationDir(s.Out, channel.Protect{Guard: g, From: in, Limit: s.Disk}), nil
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
