package channel

import (
	"archive/tar"
	"encoding/hex"
	"fmt"

	"github.com/custody-project/custody/audit"
)

// Bounds of one call of a List: an event holds at most 4 MiB, in which JSON makes up to six bytes of one.
const (
	maxListed      = 256
	maxListedNames = 256 << 10 // bytes of all names
)

// List is called with copied files, in order, in batches. During a copy out none of them has its name yet, and
// gets it when List returns nil; an error ends the copy.
type List func(files []audit.CopiedFile) error

// batch collects files for a List. Without a List it collects none.
type batch struct {
	list  List
	files []audit.CopiedFile
	names int
}

func (b *batch) add(f audit.CopiedFile) {
	if b.list == nil {
		return
	}
	b.files = append(b.files, f)
	b.names += len(f.Path) + len(f.As) + len(f.Link)
}

// full reports whether the batch must be passed on.
func (b *batch) full() bool { return len(b.files) >= maxListed || b.names >= maxListedNames }

// tell passes the collected files to the List.
func (b *batch) tell() error {
	if len(b.files) == 0 {
		return nil
	}
	files := b.files
	b.files, b.names = nil, 0
	if err := b.list(files); err != nil {
		return fmt.Errorf("list what is copied: %w", err)
	}
	return nil
}

// listed returns the entry of the list for something that is copied; as is its name on the host.
func listed(name, as string, l leaf) audit.CopiedFile {
	f := audit.CopiedFile{Path: audit.Text(name), Mode: fmt.Sprintf("%04o", l.mode), Size: l.size, Link: audit.Text(l.link)}
	if as != name {
		f.As = audit.Text(as)
	}
	if l.kind == tar.TypeReg {
		f.SHA256 = hex.EncodeToString(l.sum[:])
	}
	return f
}
