// Package caller has what a run and its caller exchange: where the project comes from, the console of the steps, the files that are copied,
// and the result. It has nothing that carries out a run: a program that only asks the service for one starts without it.
package caller

import (
	"io"
	"strings"
	"syscall"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
)

// Console is what the steps of a run are connected to.
type Console struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Live           bool // output is shown without delay instead of in blocks
	// Window is the size of the steps' terminal; nil: they have none. Term is its type, for TERM.
	Window *channel.Winsize
	Term   string

	Signals <-chan syscall.Signal
	Resizes <-chan channel.Winsize
}

// Files copies the files of a run in and out.
type Files interface {
	privsep.Server
	// Size is that of the files that are copied in.
	Size() channel.Size
}

// FileSpec describes what a run copies in and out.
type FileSpec struct {
	Workdir string            // directory to copy in; empty: none
	Out     string            // directory to copy out to; empty: none
	Secrets map[string]string // files from which secrets are read, by the name of the secret; they are not copied in
	Named   []string          // files of the host that the project's file names; they are not replaced
	Home    string            // $CUSTODY_HOME
	Disk    int64             // size of the sandbox's disk in bytes, which bounds what is copied out
}

// Result is how a run ended.
type Result struct {
	ID       string
	Tier     string
	ExitCode int
	Err      error // why the run failed, or why its record is incomplete; nil if a command failed, which ExitCode reports
	// Late is the reason if the store or a checkpoint lacks a part of the record. The log on this host is complete.
	Late error
}

// LateNotice is the message to the user that describes Result.Late.
func LateNotice(late error) string {
	return "the run's log on this host is complete, but not all of it is in the store and under a checkpoint yet (" +
		strings.ReplaceAll(strings.TrimSpace(late.Error()), "\n", "; ") + "); `custody ship` or any later run continues there"
}
