package replay

import (
	"slices"

	"github.com/custody-project/custody/audit"
)

// links are the files that were given a further name, by device and inode: the
// numbers of their paths now. What happens under one name happens to all.
type links map[string][]int32

// follow takes one operation on a file into account and returns the other names of what it changed.
func (l links) follow(paths *numbers[audit.Text], path int32, f *audit.File) (others []int32) {
	if f.Source == "" && len(l) == 0 || f.Inode == "" {
		return nil
	}
	id := f.Device + " " + f.Inode
	if f.Source != "" {
		for _, name := range []int32{paths.of[f.Source], path} {
			if !slices.Contains(l[id], name) {
				l[id] = append(l[id], name)
			}
		}
		return nil
	}
	names, linked := l[id]
	if !linked {
		return nil
	}
	switch f.Op {
	case audit.FileWrite:
		for _, name := range names {
			if name != path {
				others = append(others, name)
			}
		}
	case audit.FileDelete:
		l[id] = slices.DeleteFunc(names, func(name int32) bool { return name == path })
	case audit.FileRename:
		if i := slices.Index(names, path); i >= 0 {
			names[i] = paths.of[f.To]
		}
	}
	return others
}
