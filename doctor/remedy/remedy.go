// Package remedy describes errors to the user of a command line: what went wrong, and what to do about it.
package remedy

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/secrets/local"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/vmm/gvisor"
	"github.com/custody-project/custody/vmm/qemu"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/tier"
)

var remedies = []struct {
	err    error
	remedy string
}{
	{qemu.ErrMissing, "install it: apt-get install qemu-system-x86 (on arm64: qemu-system-arm), or run `make deps`"},
	{gvisor.ErrMissing, "install it: Debian's package runsc, or a release of gVisor at the path isolation.runsc of host.yaml"},
	{template.ErrNotFound, "`custody template ls` lists the templates; `custody template build base` makes the default one"},
	{template.ErrBroken, "make it again with `custody template build`; Custody uses a template only if its files match its digest"},
	{store.ErrNotFound, "`custody runs` lists the runs"},
	{host.ErrNotLive, "`custody runs --status running` lists the live runs; a policy for the next run goes into its project's file"},
	{store.ErrAmbiguous, "give more of the run's name; `custody runs` lists them"},
	{verdict.ErrUnknownKey, "get the host's public key (keys/host.pub there) over a trusted channel, and pass it with --key"},
	{sandbox.ErrTimeout, "limits.time in the project file sets the time limit of a run"},
	{sandbox.ErrStepTime, "`time` of the step in the project file sets its time limit"},
	{run.ErrNotRoot, "run it with sudo: Custody confines each VM with namespaces, a uid of its own and a cgroup, and drops its rights there"},
	{tier.ErrUnavailable, "`custody doctor` tries the tiers of this host again; a slow host may need a longer isolation.probe in host.yaml"},
	{local.ErrRoot, "call custody with sudo from your own account, or name the user for commands in host.yaml: commands: {user: NAME}"},
	{unix.EADDRINUSE, "another program, perhaps another custody serve, listens on this address: end it, or give --listen 127.0.0.1:0"},
	{unix.ENOSPC, "free space on the disk that holds $CUSTODY_HOME"},
	{unix.EROFS, "$CUSTODY_HOME must be writable: set it to a directory on another disk"},
}

// notAllowed is the remedy of errors of files only. The kernel denies system calls with the same error for many reasons.
const notAllowed = "the files belong to another user: run it as the user who owns $CUSTODY_HOME"

// Of returns what the user can do about an error, or "" if nothing is known.
func Of(err error) string {
	if hint := console.Hint(err); hint != "" {
		return hint
	}
	if p := new(project.Error); errors.As(err, &p) {
		return p.Hint
	}
	for _, known := range remedies {
		if errors.Is(err, known.err) {
			return known.remedy
		}
	}
	if p := new(os.PathError); errors.As(err, &p) && errors.Is(p, os.ErrPermission) {
		return notAllowed
	}
	return ""
}

// Text returns the text of an error without the remedy that Of returns.
func Text(err error) string {
	text := err.Error()
	if p := new(project.Error); errors.As(err, &p) && p.Hint != "" {
		text = strings.TrimSuffix(text, "; "+p.Hint)
	}
	return strings.TrimRight(text, "\n")
}
