package wire

import "strings"

// Base returns the last element of a path, and the path itself if there is only one.
func Base(path string) string {
	if b := path[strings.LastIndexByte(path, '/')+1:]; b != "" {
		return b
	}
	return path
}

// Dir returns the directory of a path: "" if it has none.
func Dir(path string) string {
	switch i := strings.LastIndexByte(path, '/'); i {
	case -1:
		return ""
	case 0:
		return "/"
	default:
		return path[:i]
	}
}
