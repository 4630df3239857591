package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/secrets"
)

var _ secrets.Broker = Broker{}

func request(limit time.Duration, from ...string) secrets.Request {
	r := secrets.Request{Run: "r-1", Step: "s", Limit: limit}
	for i, f := range from {
		r.Bindings = append(r.Bindings, secrets.Binding{Name: string(rune('a' + i)), From: f})
	}
	return r
}

// A grant ends after its TTL, its limit or its revocation, whichever comes first, and does not become valid again.
func TestGrant(t *testing.T) {
	t.Setenv("CUSTODY_TEST_SECRET", secret)
	cases := []struct {
		name   string
		limit  time.Duration
		renew  time.Duration // interval of renewals; 0: none
		revoke time.Duration
		dead   time.Duration
	}{
		{"ttl", time.Hour, 0, 0, time.Minute},
		{"limit", 10 * time.Second, 0, 0, 10 * time.Second},
		{"renewed", time.Hour, 20 * time.Second, 0, time.Hour},
		{"limit while renewed", 90 * time.Second, 20 * time.Second, 0, 90 * time.Second},
		{"renewed too late", time.Hour, 61 * time.Second, 0, time.Minute},
		{"revoked", time.Hour, 20 * time.Second, 30 * time.Second, 30 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				g, err := Broker{}.Mint(t.Context(), request(c.limit, "env:CUSTODY_TEST_SECRET"))
				if err != nil {
					t.Fatal(err)
				}
				kept := g.(*grant).values["a"]
				for now := time.Duration(0); now < 70*time.Minute; now += time.Second {
					v := g.Values()
					if alive := now < c.dead; alive != (string(v["a"]) == secret) || !alive && (len(v) > 0 || !errors.Is(g.Renew(t.Context()), secrets.ErrLost)) {
						t.Fatalf("after %v: %q", now, v)
					}
					clear(v["a"]) // a copy
					if left := time.Until(g.Expires()); left > secrets.TTL || g.Expires().After(start.Add(c.limit)) {
						t.Fatalf("after %v: expires in %v", now, left)
					}
					if c.renew > 0 && now > 0 && now%c.renew == 0 {
						_ = g.Renew(t.Context())
					}
					time.Sleep(time.Second)
					synctest.Wait()
					if c.revoke > 0 && now+time.Second == c.revoke {
						_ = g.Revoke(t.Context())
					}
				}
				if !bytes.Equal(kept, make([]byte, len(secret))) {
					t.Errorf("not wiped: %q", kept)
				}
				if err := errors.Join(g.Revoke(t.Context()), g.Revoke(t.Context())); err != nil {
					t.Errorf("revoked again: %v", err)
				}
			})
		})
	}
}

func TestMint(t *testing.T) {
	t.Setenv("CUSTODY_TEST_SECRET", secret)
	path := write(t, "token", secret, 0o600)
	r := request(time.Hour, "env:CUSTODY_TEST_SECRET", "file:token", "cmd:cat token")
	r.Dir = filepath.Dir(path)
	one, err := Broker{}.Mint(t.Context(), r)
	if err != nil || len(one.Values()) != 3 || string(one.Values()["c"]) != secret {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(path, []byte("another-value\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	two, err := Broker{}.Mint(t.Context(), r)
	if err != nil || string(two.Values()["b"]) != "another-value" || string(one.Values()["b"]) != secret {
		t.Errorf("the file is read at each mint: %v", err)
	}
	if one.Accessor() == two.Accessor() || one.Misuse() != nil || one.Leases() != 0 {
		t.Error("accessor, misuse or leases")
	}
	for from, want := range map[string]string{
		"env:CUSTODY_TEST_NONE": "secret d: environment variable",
		"vault:a#b":             "secret d: unknown source",
		"cmd:exit 3":            "secret d: the command",
	} {
		g, err := Broker{}.Mint(t.Context(), request(time.Hour, "env:CUSTODY_TEST_SECRET", "file:"+path, "env:CUSTODY_TEST_SECRET", from))
		if g != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", from, err)
		}
	}
	token := request(time.Hour, "env:CUSTODY_TEST_SECRET")
	token.Bindings[0].Deliver.Token = "VAULT_TOKEN"
	if _, err := (Broker{}).Mint(t.Context(), token); err == nil || !strings.Contains(err.Error(), "only Vault can deliver tokens") {
		t.Errorf("a token: %v", err)
	}
	_, _ = one.Revoke(t.Context()), two.Revoke(t.Context())
}
