package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
	"github.com/custody-project/custody/secrets/vault"
)

// revokeTime bounds the revocation of what is left at a run's end.
const revokeTime = 10 * time.Second

// broker makes the run's issuer. Nothing is minted before a step begins, and what can be known without that is masked from here on.
func (j *job) broker(run string) error {
	brokers, err := openBrokers(j.ctx, j.home, j.project, j.policyFile())
	if err != nil {
		return err
	}
	j.brokers = brokers
	j.issuer = secrets.NewIssuer(secrets.Config{
		Run: run, Bindings: bindings(j.project), Brokers: brokers.by, Dir: sourceDir(j.cmd.Policy),
		Recorder: laterRecord{j}, Redactor: j.redactor, Action: string(j.project.Anomaly), Act: j.act,
		Withdrawn: func(secret, reason string) { j.network.Withdraw(secret, reason) },
		Recorded:  func(_ string, find func([]byte) bool) (uint64, bool) { return j.record.Recorded(find) },
	})
	for name, err := range j.issuer.Learn() {
		j.say("the secret " + name + " is masked only from where a step gets it on: " + err.Error())
	}
	return nil
}

// newRedactor returns one that also finds what looks like a secret.
func newRedactor(tag []byte) (*redact.Redactor, error) {
	patterns, err := pattern.New()
	if err != nil {
		return nil, err
	}
	return redact.New(tag, patterns), nil
}

// noCore keeps this process and those that it begins, which have keys and values in their memory, from writing it
// to a disk. The limit holds for files; a program that the kernel pipes cores to gets none of this process either.
func noCore() error {
	err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if err == nil {
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	return nil
}

// panicked ends the program in order after a panic of its main goroutine, whose text may quote a value.
func (j *job) panicked() {
	if r := recover(); r != nil {
		j.say(fmt.Sprintf("a mistake in custody's own code, please report it: %v\n%s", r, debug.Stack()))
		os.Exit(exitFailed)
	}
}

// sourceDir is where the relative sources of a project's file begin.
func sourceDir(policy string) string {
	if policy == "" {
		return "."
	}
	return filepath.Dir(policy)
}

// sighted tells the issuer where values turned up in the record. What a step prints it has seen before.
func (j *job) sighted(kind audit.Kind, step string, names []string, seq uint64) {
	j.meters.sighted(len(names))
	if kind != audit.KindOutput {
		j.issuer.Saw(kind, step, names, seq)
	}
}

// act does what the project wants done about an anomaly, beyond the revocation.
func (j *job) act(ctx context.Context, action, reason string) {
	j.mu.Lock()
	s := j.sandbox
	j.mu.Unlock()
	j.say(reason + ": its credentials are revoked")
	switch {
	case s == nil:
	case action == string(project.End):
		s.Abort(reason)
	case action == string(project.Freeze):
		if err := s.Quarantine(ctx); err != nil {
			j.say("freeze: " + err.Error())
			return
		}
		j.say("the sandbox is frozen: custody resume " + j.record.ID + " lets it go on, custody snapshot keeps its memory")
	}
}

// revokeAll ends what leases are left, and the brokers.
func (j *job) revokeAll() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.ctx), revokeTime)
	defer cancel()
	if err := errors.Join(j.issuer.Close(ctx), j.brokers.close(ctx)); err != nil {
		j.complain(err)
	}
}

// bindings are the project's secrets as an issuer knows them.
func bindings(p project.File) []secrets.Binding {
	var list []secrets.Binding
	for name, s := range p.Secrets {
		b := secrets.Binding{Name: name, From: s.From, Deliver: secrets.Deliver(s.Deliver)}
		if len(s.Hosts) > 0 {
			b.Hosts = func(host string) bool {
				for _, pattern := range s.Hosts {
					if pattern.Matches(host) {
						return true
					}
				}
				return false
			}
		}
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b secrets.Binding) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// brokers are who mints what, by the scheme of a source.
type brokers struct {
	by    map[string]secrets.Broker
	vault *vault.Broker // nil: no secret of the project comes from there
}

// openBrokers logs in to Vault only where a secret comes from there. The project's file is at path.
func openBrokers(ctx context.Context, h *home.Home, p project.File, path string) (*brokers, error) {
	here := local.Broker{Caller: func() (*local.Caller, error) { return local.FindCaller(os.Getenv, path, h.Config().Commands.User) }}
	b := &brokers{by: map[string]secrets.Broker{"env": here, "file": here, "cmd": here}}
	for name, s := range p.Secrets {
		if !strings.HasPrefix(s.From, "vault:") {
			continue
		}
		v, err := openVault(ctx, h)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", name, err)
		}
		b.vault, b.by["vault"] = v, v
		break
	}
	return b, nil
}

func openVault(ctx context.Context, h *home.Home) (*vault.Broker, error) {
	c, err := vault.FromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	c.Dir = h.Leases()
	return vault.Open(ctx, c)
}

func (b *brokers) close(ctx context.Context) error {
	if b == nil || b.vault == nil {
		return nil
	}
	return b.vault.Close(ctx)
}

// revokeLeft revokes what runs that died have left at Vault. Where no one said how to
// get there, it is left to a start that knows; the credentials are dead after a minute in any case.
func (a *app) revokeLeft(h *home.Home) {
	alive := func(run string) bool { return wal.Locked(h.RunDir(run)) }
	some, youngest := vault.Left(h.Leases(), alive)
	if !some || os.Getenv("VAULT_ADDR") == "" && youngest > secrets.TTL {
		return
	}
	v, err := openVault(a.ctx, h)
	if err != nil {
		a.complain(fmt.Errorf("credentials of a run that died cannot be revoked now; they are dead within a minute, and the next start tries again: %w", err))
		return
	}
	defer v.Close(a.ctx)
	if err := v.Sweep(a.ctx, alive); err != nil {
		a.complain(err)
	}
}

type secretsCmd struct {
	Check secretsCheckCmd `cmd:"" help:"Mint each of a project's secrets, revoke it again, and print the results. No value is shown."`
}

type secretsCheckCmd struct {
	Trust  bool   `help:"Accept what the project's file asks for, without a question."`
	Policy string `type:"path" placeholder:"FILE" help:"The project's file (default: custody.yaml here)."`
}

// Run tries each secret by itself.
func (c secretsCheckCmd) Run(a *app) error {
	path := c.Policy
	if path == "" {
		path = project.Name
	}
	p, err := project.Load(a.ctx, path)
	if err != nil {
		return err
	}
	h, err := a.home()
	if err != nil {
		return err
	}
	if err := a.needTrust(h, &p, path, c.Trust); err != nil {
		return err
	}
	all, err := openBrokers(a.ctx, h, p, path)
	if err != nil {
		return err
	}
	defer all.close(a.ctx)
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SECRET\tSOURCE\tDELIVERED\tRESULT")
	bad := 0
	for _, b := range bindings(p) {
		result := "ok"
		if err := tryBinding(a.ctx, all, b, sourceDir(c.Policy)); err != nil {
			result, bad = err.Error(), bad+1
		}
		scheme, _, _ := strings.Cut(b.From, ":")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.Name, scheme, ways(b.Deliver), clean(result))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return exitCode(1)
	}
	return nil
}

func tryBinding(ctx context.Context, all *brokers, b secrets.Binding, dir string) (err error) {
	scheme, _, _ := strings.Cut(b.From, ":")
	g, err := all.by[scheme].Mint(ctx, secrets.Request{Run: "check", Step: "check", Bindings: []secrets.Binding{b}, Limit: secrets.TTL, Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Revoke(ctx)) }()
	values := g.Values()
	defer func() {
		for _, v := range values {
			clear(v)
		}
	}()
	return redact.New(nil).AddAll(values) // describes what a step would be refused for
}

func ways(d secrets.Deliver) string {
	var list []string
	for _, w := range []struct{ kind, name string }{{"header", d.Header}, {"env", d.Env}, {"file", d.File}, {"token", d.Token}} {
		if w.name != "" {
			list = append(list, w.kind+" "+w.name)
		}
	}
	if len(list) == 0 {
		return "masked only"
	}
	return strings.Join(list, ", ")
}
