package channel

import "github.com/custody-project/custody/audit"

// ChangeOp is the kind of a FileChange.
type ChangeOp string

// The kinds of changes.
const (
	ChangeReady  ChangeOp = "ready"  // the first one: changes from now on are reported
	ChangeCreate ChangeOp = "create" // there is a file or a directory
	ChangeWrite  ChangeOp = "write"  // the content of a file has changed
	ChangeRemove ChangeOp = "remove" // a name is gone, with what was below it; that of the directory itself is the last one
	ChangeMove   ChangeOp = "move"   // a name has become another one; not that of a directory in which others are watched
	ChangeLost   ChangeOp = "lost"   // there were more changes than could be reported: the directory must be looked at again
)

// FileChange is a change in a directory that is watched. A name that appears while the directory is looked at can be reported twice.
type FileChange struct {
	Op        ChangeOp
	Path      audit.Text `json:",omitempty"` // relative to the directory; "." is the directory itself
	To        audit.Text `json:",omitempty"` // move: the new path
	Directory bool       `json:",omitempty"`
}

// check refuses changes that there cannot be.
func (c *FileChange) check(first bool) error {
	named, to := clean(string(c.Path)), false
	switch c.Op {
	case ChangeReady, ChangeLost:
		named = c.Path == ""
	case ChangeRemove:
		named = named || c.Path == "."
	case ChangeCreate, ChangeWrite:
	case ChangeMove:
		to = clean(string(c.To))
	default:
		return hostile("change %.40q", c.Op)
	}
	if !named || to != (c.To != "") || to != (c.Op == ChangeMove) || first != (c.Op == ChangeReady) {
		return hostile("change %s of %.200q to %.200q", c.Op, c.Path, c.To)
	}
	return nil
}

// change takes changes that the guest reports.
func (f *fileCall) change(list []FileChange) error {
	if len(list) > 0 && f.request.Op != FileWatch {
		return hostile("changes of a directory that is not watched")
	}
	for _, c := range list {
		if err := c.check(!f.watching); err != nil {
			return err
		}
		f.watching = true
		if err := f.transfer.Change(c); err != nil {
			return &localError{err}
		}
	}
	return nil
}

// changes sends changes in reports that are not too long.
func (h *fileHost) changes(list []FileChange) error {
	for from := 0; from < len(list); {
		size, to := 0, from
		for ; to < len(list); to++ {
			next := 6*(len(list[to].Path)+len(list[to].To)) + 128 // JSON makes at most six bytes out of one
			if size += next; size > maxReport-1024 && to > from {
				break
			}
		}
		if err := writeFrame(h.ctl, fileReport{Changes: list[from:to]}, maxReport); err != nil {
			return err
		}
		from = to
	}
	return nil
}
