package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
)

// bind decides which secrets the steps of the run get, and checks that the sources of those on this machine have a value.
func (j *job) bind() error {
	if len(j.cmd.Command) == 0 {
		if len(j.cmd.Secret) > 0 {
			return usageError{fmt.Errorf("--secret is for a command after --: the steps of %s name their own", j.policyFile())}
		}
		for _, s := range j.project.Steps {
			j.binds = append(j.binds, j.project.Binds(s))
		}
		return nil
	}
	names, err := j.project.BindsAsked(j.cmd.Secret)
	if err != nil {
		return err
	}
	if clash := j.project.Clash(names); clash != "" {
		return fmt.Errorf("%s", clash)
	}
	j.binds = [][]string{names}
	var others []string
	for _, b := range bindings(j.project) {
		if !slices.Contains(names, b.Name) {
			others = append(others, b.Name)
		}
	}
	if len(others) > 0 && !j.cmd.Quiet {
		j.say("secrets that the command does not get: " + strings.Join(others, ", ") + "; --secret NAME gives it one")
	}
	return nil
}

// needSources returns an error that lists each secret of the run whose env: or file: source has no usable value, or whose
// cmd: source names a program that cannot be executed.
func (j *job) needSources() error {
	bound := slices.DeleteFunc(bindings(j.project), func(b secrets.Binding) bool {
		return !slices.ContainsFunc(j.binds, func(names []string) bool { return slices.Contains(names, b.Name) })
	})
	values, errs := local.ReadAll(bound, sourceDir(j.cmd.Policy))
	for _, v := range values {
		clear(v)
	}
	caller, err := local.FindCaller(os.Getenv, j.policyFile(), j.home.Config().Commands.User)
	if err != nil {
		caller = nil // the program is looked for all the same; the step reports that it does not run as root
	}
	e := &unready{file: j.projectPath()}
	for _, b := range bound {
		err := errs[b.Name]
		if err == nil {
			err = local.CheckProgram(j.ctx, b.From, sourceDir(j.cmd.Policy), caller)
		}
		if err != nil {
			e.why = append(e.why, fmt.Sprintf("secret %s (line %d): %v", b.Name, j.project.Secrets[b.Name].Line, err))
		}
	}
	if len(e.why) == 0 {
		return nil
	}
	return e
}

// projectPath is the absolute path of the project's file.
func (j *job) projectPath() string {
	path, err := filepath.Abs(j.policyFile())
	if err != nil {
		return j.policyFile()
	}
	return path
}

// unready means that secrets which the run's steps bind have no usable value.
type unready struct {
	file string
	why  []string // one line for each secret
}

// Error implements error.
func (e *unready) Error() string {
	return fmt.Sprintf("nothing was started: %d of the secrets that %s gives to this run cannot be read:\n  %s", len(e.why), e.file, strings.Join(e.why, "\n  "))
}

// Hint implements hinter.
func (e *unready) Hint() string {
	return "sudo removes most variables: pass them with `sudo --preserve-env=NAME`; `custody secrets check` tries every source of the file"
}
