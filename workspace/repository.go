package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
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
	if out, err := output(r.git("-C", dir, "rev-parse", "--show-toplevel"), gitTime); err == nil { // else dir is in none
		top = strings.TrimSuffix(string(out), "\n")
	}
	out, err := output(r.git("-C", dir, "config", "--null", "--list"), gitTime)
	if errors.Is(err, exec.ErrNotFound) {
		return nil // git is not installed
	}
	if err != nil {
		return fmt.Errorf("read git's configuration of %s: %w", dir, err)
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

// gitTime and gitOutput bound what a repository that a step has written can make git do: read a FIFO that is included, or print without end.
const (
	gitTime   = 30 * time.Second
	gitOutput = 4 << 20 // bytes
)

var (
	errSlowGit   = errors.New("git did not end in time: see which files the configuration includes")
	errLargeConf = fmt.Errorf("git printed over %d bytes: make the configuration smaller", gitOutput)
)

// output runs a command for at most limit and returns what it prints.
func output(cmd *exec.Cmd, limit time.Duration) ([]byte, error) {
	var out, errs bounded
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	switch {
	case !late.Stop():
		return nil, errSlowGit
	case out.full || errs.full:
		return nil, errLargeConf
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.text.String()))
	}
	return out.text.Bytes(), nil
}

// bounded keeps up to gitOutput bytes. A program that writes more gets SIGPIPE.
type bounded struct {
	text bytes.Buffer
	full bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.full = b.full || b.text.Len()+len(p) > gitOutput; b.full {
		return 0, errLargeConf
	}
	return b.text.Write(p)
}
