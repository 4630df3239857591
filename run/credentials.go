package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
	"github.com/custody-project/custody/secrets/remote"
)

// revokeTime bounds the end of the logins at a run's end.
const revokeTime = 10 * time.Second

// openBrokers opens the brokers of the run's secrets. From here on, secret values that can be read without minting are masked in messages.
func (j *Job) openBrokers(ctx context.Context) (err error) {
	file, dir := j.o.sources()
	if j.brokers, err = OpenBrokers(ctx, j.o.Home, j.o.Project, file, j.id); err != nil {
		return err
	}
	bindings := Bindings(j.o.Project)
	if len(bindings) == 0 {
		return nil
	}
	// The worker masks all values of variables and files. Those of other sources it gets only for the steps that have them.
	bindings = slices.DeleteFunc(bindings, func(b secrets.Binding) bool {
		scheme, _, _ := strings.Cut(b.From, ":")
		used := slices.ContainsFunc(j.steps, func(s step) bool { return slices.Contains(s.secrets, b.Name) })
		return !used && scheme != "env" && scheme != "file"
	})
	j.credentials = remote.NewServer(j.id, dir, bindings, j.brokers.by)
	mask := func(values map[string][]byte) {
		// A value that cannot be masked fails the step that gets it.
		_ = j.messages.redactor.AddAll(values)
		for _, v := range values {
			clear(v)
		}
	}
	j.credentials.Minted = mask
	values, _ := local.ReadAll(bindings, dir) // the worker reports the errors
	mask(values)
	return nil
}

// closeBrokers ends the logins of the brokers.
func (j *Job) closeBrokers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTime)
	defer cancel()
	if err := j.brokers.Close(ctx); err != nil {
		j.messages.problem(err)
	}
}

// checkSources returns an error that lists each secret of the run whose env: or file: source has no usable value, or whose
// cmd: source is a program that cannot be executed.
func checkSources(ctx context.Context, o *Options, steps []step) error {
	bound := slices.DeleteFunc(Bindings(o.Project), func(b secrets.Binding) bool {
		return !slices.ContainsFunc(steps, func(s step) bool { return slices.Contains(s.secrets, b.Name) })
	})
	source, dir := o.sources()
	values, errs := local.ReadAll(bound, dir)
	for _, v := range values {
		clear(v)
	}
	caller, err := local.FindCaller(os.Getenv, source, o.Home.Config().Commands.User)
	if err != nil {
		caller = nil // the program is checked nevertheless; the step reports this error
	}
	file, err := filepath.Abs(o.File)
	if err != nil {
		file = o.File
	}
	e := &unready{file: file}
	for _, b := range bound {
		err := errs[b.Name]
		if err == nil {
			err = local.CheckProgram(ctx, b.From, dir, caller)
		}
		if err != nil {
			e.why = append(e.why, fmt.Sprintf("secret %s (line %d): %v", b.Name, o.Project.Secrets[b.Name].Line, err))
		}
	}
	if len(e.why) == 0 {
		return nil
	}
	return e
}

// unready means that secrets of the run's steps have no usable value.
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
