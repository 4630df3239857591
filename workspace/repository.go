package workspace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Git returns a git command with these arguments, which runs as the owner of the files.
type Git func(args ...string) *exec.Cmd

// repositories contains the files that the configurations of repositories name: the hooks directory (core.hooksPath), filters,
// editors, aliases. The next git command would execute such a file after a step has changed it.
type repositories struct {
	git   Git
	known map[string][]string // by a repository's directory: the folded paths of what its configuration names
	hooks []string            // folded relative values of core.hooksPath: a directory in each repository
}

// find reads the configuration of the repository that contains dir.
func (r *repositories) find(dir string) error {
	if r.git == nil {
		return nil
	}
	if _, ok := r.known[dir]; ok {
		return nil
	}
	r.known[dir] = nil
	top := dir
	if out, err := r.git("-C", dir, "rev-parse", "--show-toplevel").Output(); err == nil { // else dir is in none
		top = strings.TrimSuffix(string(out), "\n")
	}
	out, err := r.git("-C", dir, "config", "--null", "--list").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil // git is not installed
	}
	if err != nil {
		return fmt.Errorf("read git's configuration of %s: %w", dir, withOutput(err))
	}
	for _, setting := range strings.Split(string(out), "\x00") {
		key, value, _ := strings.Cut(setting, "\n")
		r.add(dir, top, key, value)
	}
	return nil
}

// add adds each word of a setting's value as the name of a file or directory, although most words are not.
func (r *repositories) add(dir, top, key, value string) {
	if isData(key) {
		return
	}
	hooks := key == "core.hookspath"
	words := strings.FieldsFunc(value, func(c rune) bool { return strings.ContainsRune(" \t\n\"'`;&|<>()$={}!\\", c) })
	if hooks {
		words = []string{value} // the value is one path
	}
	for _, word := range words {
		if rest, ok := strings.CutPrefix(word, "~/"); ok {
			if home, err := os.UserHomeDir(); err == nil {
				word = filepath.Join(home, rest)
			}
		}
		if !filepath.IsAbs(word) {
			if word = filepath.Clean(word); !hooks && (word == "." || strings.HasPrefix(word, "..")) {
				continue
			}
			if hooks {
				r.hooks = append(r.hooks, fold(filepath.ToSlash(word)))
			}
			word = filepath.Join(top, word)
		}
		r.known[dir] = append(r.known[dir], fold(filepath.ToSlash(filepath.Clean(word))))
	}
}

// isData reports whether a setting never names a command or file.
func isData(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	switch section {
	case "safe", "user", "author", "committer", "branch", "color", "url", "http", "https", "advice", "submodule":
		return true
	case "remote":
		last := key[strings.LastIndexByte(key, '.')+1:]
		return slices.Contains([]string{"url", "pushurl", "fetch", "push", "tagopt"}, last)
	}
	return key == "init.defaultbranch"
}

// names reports whether the configuration of a repository names the file at an absolute path, or a directory above it.
func (r *repositories) names(path string) bool {
	path = fold(filepath.ToSlash(path))
	for _, named := range r.known {
		for _, one := range named {
			if path == one || strings.HasPrefix(path, one+"/") {
				return true
			}
		}
	}
	return slices.ContainsFunc(r.hooks, func(hooks string) bool { return strings.Contains(path, "/"+hooks+"/") })
}

func withOutput(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
