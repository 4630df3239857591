package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/outside"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
	"github.com/custody-project/custody/secrets/vault"
)

// Bindings returns the project's secrets for an issuer, sorted by name.
func Bindings(p project.File) []secrets.Binding {
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

// Brokers are the brokers of a project's credentials.
type Brokers struct {
	by    map[string]secrets.Broker // by the scheme of a secret's source
	vault VaultLogin                // nil: no secret of the project comes from Vault
}

// VaultLogin is a login to Vault. Close ends it.
type VaultLogin interface {
	secrets.Broker
	Sweep(ctx context.Context, alive func(run string) bool) error
	Close(ctx context.Context) error
}

// OpenBrokers returns the brokers of p for a run, whose file is at path. It logs in to Vault only if a secret comes from there.
func OpenBrokers(ctx context.Context, h *host.Host, p project.File, path, run string) (*Brokers, error) {
	here := local.Broker{Caller: func() (*local.Caller, error) { return local.FindCaller(os.Getenv, path, h.Config().Commands.User) }}
	b := &Brokers{by: map[string]secrets.Broker{"env": here, "file": here, "cmd": here}}
	for name, s := range p.Secrets {
		if !strings.HasPrefix(s.From, "vault:") {
			continue
		}
		v, err := OpenVault(ctx, h, run, vaultBindings(p))
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", name, err)
		}
		b.vault, b.by["vault"] = v, v
		break
	}
	return b, nil
}

// vaultBindings returns the secrets of p that come from Vault.
func vaultBindings(p project.File) []secrets.Binding {
	return slices.DeleteFunc(Bindings(p), func(b secrets.Binding) bool { return !strings.HasPrefix(b.From, "vault:") })
}

// OpenVault logs in to the Vault server that the environment names (VAULT_ADDR), for these secrets of a run. A process of root has another
// process do that, which has no privileges.
func OpenVault(ctx context.Context, h *host.Host, run string, bindings []secrets.Binding) (VaultLogin, error) {
	c, err := vault.FromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	c.Dir = h.Leases()
	if RequireRoot() == nil {
		return outside.OpenVault(ctx, c, run, bindings)
	}
	return vault.Open(ctx, c)
}

// Close ends the login to Vault. b may be nil.
func (b *Brokers) Close(ctx context.Context) error {
	if b == nil || b.vault == nil {
		return nil
	}
	return b.vault.Close(ctx)
}

// CheckRun is what Vault gets as the run of a credential that Try mints.
const CheckRun = "check"

// Try mints the credential of a binding, checks that it can be redacted, and revokes it. Relative sources are relative to dir.
func (b *Brokers) Try(ctx context.Context, bind secrets.Binding, dir string) (err error) {
	scheme, _, _ := strings.Cut(bind.From, ":")
	g, err := b.by[scheme].Mint(ctx, secrets.Request{Run: CheckRun, Step: "check", Bindings: []secrets.Binding{bind}, Limit: secrets.TTL, Dir: dir})
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
	return redact.New(nil).AddAll(values) // returns the error that a step would get
}

// revokeLeft revokes Vault credentials of runs whose process died. Without VAULT_ADDR it does nothing if
// they have expired anyway, which takes at most a minute.
func revokeLeft(ctx context.Context, h *host.Host) error {
	alive := func(run string) bool { return wal.Locked(h.RunDir(run)) }
	some, youngest := vault.Left(h.Leases(), alive)
	if !some || os.Getenv("VAULT_ADDR") == "" && youngest > secrets.TTL {
		return nil
	}
	v, err := OpenVault(ctx, h, "", nil)
	if err != nil {
		return fmt.Errorf("credentials of a run that died cannot be revoked now; they expire within a minute, and the next start tries again: %w", err)
	}
	defer v.Close(ctx)
	return v.Sweep(ctx, alive)
}
