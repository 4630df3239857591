package project

import (
	"path/filepath"
	"strings"
)

// HostFiles are the files of the host that a run reads or executes because of the project's file, which is at
// path: that file, those of file: sources, and every word of a cmd: source that could be a file's
// name. Relative names begin at dir.
func (f *File) HostFiles(path, dir string) []string {
	files := []string{path}
	at := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	for _, s := range f.Secrets {
		switch scheme, rest, _ := strings.Cut(s.From, ":"); scheme {
		case "file":
			files = append(files, at(rest))
		case "cmd":
			for _, word := range strings.FieldsFunc(rest, betweenWords) {
				files = append(files, at(word))
			}
		}
	}
	return files
}

// betweenWords says whether a shell ends a word at r, or quotes with it.
func betweenWords(r rune) bool { return strings.ContainsRune(" \t\n\"'`;&|<>()$={}\\", r) }
