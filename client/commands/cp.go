package commands

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"path"
	"strings"

	"github.com/custody-project/custody/client"
)

// CpCmd copies files between this machine and a sandbox.
type CpCmd struct {
	User string `short:"u" placeholder:"NAME" help:"The sandbox's user that reads and writes there (default: root)."`
	// MaxSize keeps a sandbox from filling the disk.
	MaxSize int64 `placeholder:"GIB" help:"Copy at most this much out of a sandbox, in GiB (default: 64)."`

	From string `arg:"" help:"The file or directory to copy: SANDBOX:PATH, or a path of this machine. A path of this machine that has a colon begins with ./"`
	To   string `arg:"" help:"Where to copy it: SANDBOX:PATH, or a path of this machine. In an existing directory the copy gets the name of what is copied."`
	Service
}

// Run copies a file, or a directory with what is below it.
func (c CpCmd) Run(e *Env) error {
	from, source, download := place(c.From)
	to, target, upload := place(c.To)
	if download == upload {
		return failure("custody cp FILE SANDBOX:PATH copies into a sandbox, custody cp SANDBOX:PATH FILE out of it", "one of the two paths must be in a sandbox, and the other one on this machine")
	}
	if c.From == "" || c.To == "" {
		return failure("write . for the directory in which you are", "a path is empty")
	}
	service, err := c.client()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(e.Context, os.Interrupt)
	defer stop()
	if c.MaxSize < 0 || c.MaxSize > 1<<30 {
		return failure("give the number of GiB", "--max-size is %d", c.MaxSize)
	}
	cp := &copier{Env: e, inside: strings.HasSuffix(c.To, "/"), most: cmp.Or(c.MaxSize, 64) << 30}
	if download {
		cp.files = service.Sandbox(from).Files(c.User)
		err = cp.download(ctx, source, target)
	} else {
		cp.files = service.Sandbox(to).Files(c.User)
		err = cp.upload(ctx, source, target)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return failure("repeat the command: it replaces what was copied", "the copy was interrupted and is not complete")
	case err == nil && cp.skipped > 0:
		return failure("copy what the links lead to by itself", "%d symbolic links and special files were not copied", cp.skipped)
	}
	return explain(err)
}

// place splits SANDBOX:PATH. A relative path begins at /workspace.
func place(text string) (sandbox, at string, there bool) {
	sandbox, at, there = strings.Cut(text, ":")
	if !there || sandbox == "" || strings.ContainsAny(sandbox, "/.") {
		return "", text, false
	}
	if !path.IsAbs(at) {
		at = path.Join("/workspace", at)
	}
	return sandbox, path.Clean(at), true
}

// copier copies between this machine and the files of a sandbox.
type copier struct {
	*Env
	files   *client.Files
	inside  bool  // the target must be a directory
	skipped int   // files that are not copied because of their types
	most    int64 // bytes to copy out of the sandbox
}

// maxNamed bounds the files that are named because they are not copied.
const maxNamed = 10

func (c *copier) skip(name string) {
	c.skipped++
	switch {
	case c.skipped <= maxNamed:
		c.Say(fmt.Sprintf("%q is not copied: it is a symbolic link that leads out of the directory, or a special file", name))
	case c.skipped == maxNamed+1:
		c.Say("further ones are not named")
	}
}

// special is the error of a source that is neither a regular file nor a directory.
func special(name string) error {
	return failure("name a file or a directory", "%q is neither a regular file nor a directory", name)
}

// noDirectory is the error of a target that must be a directory, and is none.
func noDirectory(name string) error {
	return failure("make the directory, or leave the / at the end out", "%q is not a directory", name)
}
