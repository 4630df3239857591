package replay

import (
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

// TestHeld: a credential is held from its mint to its revocation or the end of its time.
func TestHeld(t *testing.T) {
	begin := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	f := heldFold{}
	add := func(sec int, step string, s audit.Secret) {
		f.add(1, at(sec), step, &s)
	}
	names := func(sec int) (list string) {
		for _, h := range f.at(at(sec)) {
			list += h.Step + "/" + h.Name + "/" + h.Via + " "
		}
		return list
	}
	check := func(sec int, want string) {
		t.Helper()
		if got := names(sec); got != want {
			t.Errorf("after %d s: %q, want %q", sec, got, want)
		}
	}
	check(0, "")
	add(0, "a", audit.Secret{Name: "git", Op: audit.SecretMint, Broker: "vault", Expires: at(60)})
	add(0, "a", audit.Secret{Name: "db", Op: audit.SecretMint, Broker: "local", Expires: at(60)})
	add(1, "a", audit.Secret{Name: "git", Op: audit.SecretDeliver, Via: "env"})
	check(1, "a/db/ a/git/env ")
	add(40, "a", audit.Secret{Op: audit.SecretRenew, Broker: "vault", Expires: at(100)})
	check(70, "a/git/env ")
	add(80, "b", audit.Secret{Name: "git", Op: audit.SecretMint, Broker: "vault", Expires: at(140)})
	add(81, "a", audit.Secret{Op: audit.SecretRevoke})
	check(90, "b/git/ ")
	add(95, "b", audit.Secret{Name: "git", Op: audit.SecretExpire})
	check(96, "")
}
