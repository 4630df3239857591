package project

import (
	"path/filepath"
	"strings"
)

// HostFiles returns the files of the host that a run reads or executes because of the project file, which is at
// path: that file, those of file: sources, and those of CommandFiles. Relative names are below dir.
func (f *File) HostFiles(path, dir string) []string {
	files := append([]string{path}, f.CommandFiles(dir)...)
	for _, file := range f.SecretFiles(dir) {
		files = append(files, file)
	}
	return files
}

// SecretFiles returns the files of file: sources, by the name of the secret.
func (f *File) SecretFiles(dir string) map[string]string {
	files := map[string]string{}
	for name, s := range f.Secrets {
		if file, ok := strings.CutPrefix(s.From, "file:"); ok {
			files[name] = beside(dir, file)
		}
	}
	return files
}

// CommandFiles returns every word of a cmd: source as a file name. Most do not name a file.
func (f *File) CommandFiles(dir string) (files []string) {
	for _, s := range f.Secrets {
		command, ok := strings.CutPrefix(s.From, "cmd:")
		if !ok {
			continue
		}
		for _, word := range strings.FieldsFunc(command, betweenWords) {
			files = append(files, beside(dir, word))
		}
	}
	return files
}

func beside(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// betweenWords reports whether a shell ends a word at r, or quotes with it.
func betweenWords(r rune) bool { return strings.ContainsRune(" \t\n\"'`;&|<>()$={}\\", r) }
