package archive

import (
	"context"
	"errors"
	"io"
	"time"
)

// Objects is the storage of an archive. Names are paths of a few plain elements, as Name returns. It is safe for concurrent use, also by several hosts.
// All errors but these two mean that the storage, or the way to it, is at fault: the same call can succeed later.
type Objects interface {
	// Put stores an object completely or not at all, unless the name is in use: then the error is ErrExists.
	Put(ctx context.Context, name string, r io.Reader) error
	// Get returns the contents of an object, and their size. The error is ErrNotFound if there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, int64, error)
	// Stat describes an object. The error is ErrNotFound if there is none.
	Stat(ctx context.Context, name string) (Object, error)
	// List calls f with the objects whose names begin with prefix, in the order of their names.
	List(ctx context.Context, prefix string, f func(Object) error) error
	// Delete removes an object with its older versions, and what is there of an unfinished Put. There may be none.
	Delete(ctx context.Context, name string) error
	// Rest lists what the storage still has under a name: an object, versions, unfinished puts.
	Rest(ctx context.Context, name string) ([]string, error)
	// Clean removes what puts of dead processes left that began before a time.
	Clean(ctx context.Context, before time.Time) error
}

// Object describes an object.
type Object struct {
	Name   string
	Size   int64
	Stored time.Time
}

// Errors of Objects.
var (
	ErrExists   = errors.New("the archive has an object of this name already")
	ErrNotFound = errors.New("the archive has no such object")
)

// Errors of an Archive.
var (
	// ErrDamaged: the storage returned other bytes than those that were written, or fewer.
	ErrDamaged = errors.New("the storage of archived sandboxes returned other bytes than were written: try again; if it persists, restore the object from the storage's back-up")
	// ErrUnsafe: Open refuses the storage.
	ErrUnsafe = errors.New("the storage is not suitable for archived sandboxes")
	// ErrNewer: the archive has a snapshot of the run that was made later.
	ErrNewer = errors.New("the archive has a later state of the sandbox: delete the one on this host")
)
