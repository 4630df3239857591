// Package symlink judges symbolic links of directories that are copied between a sandbox and its client.
package symlink

import "strings"

// maxTarget is the maximum length of a target on Linux, in bytes.
const maxTarget = 4095

// StaysInside reports whether a symbolic link can only lead to a place in the directory that is copied. name is the link's path in that directory.
// The target may have ".." only at its beginning, and not above the directory: after a name it could leave the target of another link.
func StaysInside(name, target string) bool {
	if target == "" || len(target) > maxTarget || strings.HasPrefix(target, "/") || strings.IndexByte(target, 0) >= 0 {
		return false
	}
	climbs, descended := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if descended {
				return false
			}
			climbs++
		default:
			descended = true
		}
	}
	return climbs <= strings.Count(name, "/")
}
