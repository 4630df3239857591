package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
)

// revokeTime bounds the revocation of credentials at a run's end.
const revokeTime = 10 * time.Second

// openIssuer makes the run's issuer, which mints nothing before a step begins. From here on, secret values that can be read
// without minting are masked.
func (j *Job) openIssuer(ctx context.Context) (err error) {
	file, dir := j.o.sources()
	if j.brokers, err = OpenBrokers(ctx, j.o.Home, j.o.Project, file); err != nil {
		return err
	}
	j.issuer = secrets.NewIssuer(secrets.Config{
		Run: j.id, Bindings: Bindings(j.o.Project), Brokers: j.brokers.by, Dir: dir,
		Recorder: recorder{j}, Redactor: j.messages.redactor, Action: string(j.o.Project.Anomaly), Act: j.act,
		Withdrawn: func(secret, reason string) { j.network.Withdraw(secret, reason) },
		Recorded:  func(_ string, find func([]byte) bool) (uint64, bool) { return j.record.Recorded(find) },
	})
	for name, err := range j.issuer.Learn() {
		j.messages.notice("the secret " + name + " is masked only from the step that first gets it: " + err.Error())
	}
	return nil
}

// sighted reports to the issuer which secret values were found in an event. The issuer searches output itself.
func (j *Job) sighted(kind audit.Kind, step string, names []string, seq uint64) {
	if j.o.Meters != nil {
		j.o.Meters.Redact(len(names))
	}
	if kind != audit.KindOutput {
		j.issuer.Saw(kind, step, names, seq)
	}
}

// act takes the action that the project sets for anomalies. The credentials have been revoked already.
func (j *Job) act(ctx context.Context, action, reason string) {
	s := j.freezer.current()
	j.messages.notice(reason + ": its credentials are revoked")
	switch {
	case s == nil:
	case action == string(project.End):
		s.Abort(reason)
	case action == string(project.Freeze):
		if err := s.Quarantine(ctx); err != nil {
			j.messages.notice("freeze: " + err.Error())
			return
		}
		j.messages.notice("the sandbox is frozen: custody resume " + j.id + " lets it continue, custody snapshot saves its memory")
	}
}

// revokeAll revokes the remaining credentials and closes the brokers.
func (j *Job) revokeAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, revokeTime)
	defer cancel()
	if err := errors.Join(j.issuer.Close(ctx), j.brokers.Close(ctx)); err != nil {
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
