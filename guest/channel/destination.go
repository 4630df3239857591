package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"
)

// Destination is a tree to which files are copied out. The caller parses what the guest sends; a Destination assumes that the
// guest controls all of its arguments, apart from the order of its calls in one CopyOut.
//
// A file or link is first made beside its place, as a part. Place gives parts their names. There may be at most 256 parts at a time.
type Destination interface {
	// Open begins a copy. It is called once, and first.
	Open(ctx context.Context) error
	// Directory makes a directory, and those above it, or finds it, and reports whether files may be written into it. If they may
	// not, warning is why, unless that was said of a directory above it. Other errors than those of the file system are returned.
	Directory(ctx context.Context, name string, mode fs.FileMode) (ok bool, warning string, err error)
	// File makes a part for a regular file, in a directory that may be written into.
	File(ctx context.Context, name string, a Attributes) (Part, error)
	// Link makes a part for a symbolic link, and the directory that it is in.
	Link(ctx context.Context, name, target string) (Part, error)
	// Place gives parts their names, in this order. It removes those in whose places there are directories, and returns them.
	Place(ctx context.Context, parts []PartID) (taken []PartID, err error)
	// Drop removes a part.
	Drop(ctx context.Context, part PartID) error
	// Close ends the copy and removes the parts that were not placed.
	Close() error
}

// PartID identifies a part at its Destination. No part has 0.
type PartID uint64

// Part is a file or a link that does not have its name yet.
type Part struct {
	ID       PartID         // 0: nothing was made, because the name cannot be used
	As       string         // the name that Place gives it
	Content  io.WriteCloser // of a file: takes exactly its size and is closed before Place; nil if ID is 0
	Warnings []string       // why the name is another one, or cannot be used
}

// Attributes are those of a regular file.
type Attributes struct {
	Mode fs.FileMode // permissions; other bits are ignored
	Size int64       // bytes
	Time time.Time   // of the last change; not set if it is before 1970 or more than a year in the future
}

// Guard decides the names under which files are copied out; see workspace.Guard.
type Guard interface {
	// File returns the name for a file, and why it is not the file's own.
	File(name string) (as, why string)
	// Link returns why a symbolic link must not have this name; "" if it may.
	Link(name string) (why string)
	// Folder returns why nothing may be written to an existing directory; "" if files may be.
	Folder(info fs.FileInfo) (why string)
}

// unguarded accepts every name.
type unguarded struct{}

func (unguarded) File(name string) (as, why string) { return name, "" }
func (unguarded) Link(string) string                { return "" }
func (unguarded) Folder(fs.FileInfo) string         { return "" }

// othersWrite are permissions of other users that a sandbox may not set, unless the host file has them.
const othersWrite = fs.FileMode(0o022)

// The refusals of a Destination.
var (
	errTooMany     = fmt.Errorf("more than %d files, or their names too long, in the workspace", maxEntries)
	errName        = errors.New("the name is not a clean relative path")
	errSize        = errors.New("the content does not have the size that was announced")
	errNotOpen     = errors.New("the directory is not open for copying out")
	errOpened      = errors.New("the directory was opened before")
	errDirectory   = errors.New("its directory was not found to be writable")
	errManyParts   = fmt.Errorf("more than %d files without their names", maxListed)
	errUnknownPart = errors.New("there is no such part")
	errUnfinished  = errors.New("the part is not complete")
)

func tooLarge(name string, size, left int64) error {
	return fmt.Errorf("changed files are larger than the limit; %q has %d bytes, %d are left", name, size, left)
}

func isDirectory(name string) string {
	return fmt.Sprintf("%q: a directory is in its place; skipped", name)
}

// usable returns whether a time can be set: the guest's clock may be wrong.
func usable(t time.Time) bool { return t.Year() >= 1970 && t.Before(time.Now().AddDate(1, 0, 0)) }

// renamed returns the warning about a file that gets another name.
func renamed(name, as, why string) string {
	return fmt.Sprintf("%q is written as %q: on the host, %s", name, path.Base(as), why)
}
