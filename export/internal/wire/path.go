package wire

import "strings"

// Base is the last name of a path, and the path itself where there is none.
func Base(path string) string {
	if b := path[strings.LastIndexByte(path, '/')+1:]; b != "" {
		return b
	}
	return path
}

// Dir is the folder of a path: "" where the path names none.
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
