package vault

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/secrets"
)

// Two steps have separate tokens, which expire after 60 s and are revoked with the step.
func TestTwoSteps(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	c := s.config(t)
	b := opened(t, c)
	one := minted(t, b, request("setup", git))
	two := minted(t, b, request("agent", git, "vault:kv/plain#password"))
	if one.Accessor() == two.Accessor() {
		t.Fatal("two steps share a token")
	}
	if got := string(two.Values()["a"]) + " " + string(two.Values()["b"]); got != canary+" value-of-kv-version-1" {
		t.Fatalf("values: %s", got)
	}
	for step, g := range map[string]*grant{"setup": one, "agent": two} {
		about := s.lookup(t, g.Accessor())
		if left := about["ttl"].(float64); left < 55 || left > 60 {
			t.Errorf("%s: ttl %v", step, left)
		}
		if about["explicit_max_ttl"] != 3600.0 || about["renewable"] != true || about["orphan"] != false {
			t.Errorf("%s: %v", step, about)
		}
		meta := about["meta"].(map[string]any)
		if meta["run"] != "r-1" || meta["step"] != step {
			t.Errorf("%s: metadata %v", step, meta)
		}
		if p := about["policies"].([]any); len(p) != 1 || !strings.HasPrefix(p[0].(string), policyPrefix) {
			t.Errorf("%s: policies %v", step, p)
		}
		if left := time.Until(g.Expires()); left > 60*time.Second || left < 55*time.Second {
			t.Errorf("%s: expires in %s", step, left)
		}
	}
	if n := len(notes(t, c.Dir)); n != 2 {
		t.Errorf("%d notes for two steps", n)
	}
	must(t, one.Revoke(t.Context()))
	must(t, one.Revoke(t.Context()))
	if s.lookup(t, one.Accessor()) != nil || s.lookup(t, two.Accessor()) == nil {
		t.Error("the wrong token was revoked")
	}
	if err := one.Renew(t.Context()); err == nil {
		t.Error("a revoked grant was renewed")
	}
	must(t, two.Revoke(t.Context()))
	if s.lookup(t, two.Accessor()) != nil || len(s.stepPolicies(t)) != 0 || len(notes(t, c.Dir)) != 0 {
		t.Errorf("left: token %v, policies %v, notes %v", s.lookup(t, two.Accessor()), s.stepPolicies(t), notes(t, c.Dir))
	}
}

// The step's tokens have a parent that ends with them, and not with custody's login.
func TestParent(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	c := s.config(t)
	b := opened(t, c)
	g := minted(t, b, request("agent", git, "vault:kv/plain"))
	about := s.lookup(t, g.parent.accessor)
	if about["orphan"] != true || about["ttl"].(float64) > 60 {
		t.Errorf("the parent: %v", about)
	}
	for _, q := range []struct {
		token, path string
		want        int
	}{
		{g.parent.secret, "kv/looks", http.StatusForbidden},
		{g.tokens[0].secret, "kv/plain", http.StatusForbidden}, // which is delivered, and not read
		{g.tokens[0].secret, "secret/data/agents/git", http.StatusOK},
	} {
		if code, _ := s.call(t, q.token, "GET", q.path, nil); code != q.want {
			t.Errorf("%s: HTTP %d, want %d", q.path, code, q.want)
		}
	}
	// It cannot make children with more capabilities.
	for _, policies := range [][]string{{"custody"}, {"root"}, {"custody-step-other"}} {
		code, _ := s.call(t, g.parent.secret, "POST", "auth/token/create", map[string]any{"policies": policies})
		if code < 400 {
			t.Errorf("the parent makes a token with %v: HTTP %d", policies, code)
		}
	}
	// The end of custody's login does not end the step's tokens.
	s.root(t, "POST", "auth/token/revoke", map[string]any{"token": c.Token})
	if s.lookup(t, g.Accessor()) == nil {
		t.Error("the step's token has ended with the login")
	}
	// The end of the parent ends the step's tokens, and the renewal reports that.
	c.Token, c.Dir = s.login(t, nil), t.TempDir()
	g = minted(t, opened(t, c), request("agent", git))
	s.root(t, "POST", "auth/token/revoke-accessor", map[string]any{"accessor": g.parent.accessor})
	if s.lookup(t, g.Accessor()) != nil {
		t.Error("the step's token outlives its parent")
	}
	if err := g.Renew(t.Context()); err == nil || !strings.Contains(err.Error(), "no longer has the step's token") {
		t.Errorf("renewed without a parent: %v", err)
	}
}

// A delivered token can only read one path.
func TestDeliveredToken(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	b := opened(t, s.config(t))
	g := minted(t, b, request("agent", git, "vault:secret/data/agents/other", "vault:kv/plain"))
	for name, can := range map[string]string{"b": "secret/data/agents/other", "c": "kv/plain"} {
		tok := string(g.Values()[name])
		for _, q := range []struct{ method, path string }{
			{"GET", "secret/data/agents/other"}, {"GET", "kv/plain"}, {"GET", "secret/data/agents/git"},
			{"GET", "secret/data/agents/other/more"}, {"LIST", "secret/metadata/agents"}, {"POST", "secret/data/agents/other"},
			{"GET", "auth/token/lookup-self"}, {"POST", "auth/token/renew-self"}, {"POST", "auth/token/create"},
			{"POST", "auth/token/create/custody"}, {"GET", "cubbyhole/x"}, {"POST", "sys/wrapping/wrap"},
		} {
			want := q.method == "GET" && q.path == can
			if code, _ := s.call(t, tok, q.method, q.path, map[string]any{}); (code == http.StatusOK) != want || !want && code != http.StatusForbidden {
				t.Errorf("token %s: %s %s: HTTP %d", name, q.method, q.path, code)
			}
		}
	}
	tok := string(g.Values()["b"])
	must(t, g.Revoke(t.Context()))
	if code, _ := s.call(t, tok, "GET", "secret/data/agents/other", nil); code != http.StatusForbidden {
		t.Errorf("a delivered token outlives its step: HTTP %d", code)
	}
}

// Fields have Vault's values, and missing ones are reported.
func TestFields(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	b := opened(t, s.config(t))
	s.root(t, "POST", "secret/data/deleted", map[string]any{"data": map[string]any{"token": "x"}})
	s.root(t, "DELETE", "secret/data/deleted", nil)
	s.root(t, "POST", "kv/looks-like-v2", map[string]any{"data": "the-data-field", "metadata": "m"})
	for _, c := range []struct{ from, want, wrong string }{
		{from: git, want: canary},
		{from: "vault:secret/data/agents/git#port", want: number},
		{from: "vault:secret/data/agents/git#on", want: "true"},
		{from: "vault:secret/data/agents/git#list", want: `["<a>",1]`},
		{from: "vault:secret/data/agents/git#map", want: `{"a":"x","b":2}`},
		{from: "vault:kv/plain#password", want: "value-of-kv-version-1"},
		{from: "vault:kv/looks-like-v2#data", want: "the-data-field"},
		{from: "vault:secret/data/agents/git#none", wrong: "is null"},
		{from: "vault:secret/data/agents/git#absent", wrong: `no field "absent"`},
		{from: "vault:secret/data/nothing#token", wrong: "nothing at secret/data/nothing"},
		{from: "vault:secret/data/deleted#token", wrong: "nothing at secret/data/deleted"},
		{from: "vault:secret/agents/git#token", wrong: "MOUNT/data/"},
		{from: "vault:nowhere/x#token", wrong: "read nowhere/x"},
	} {
		g, err := b.Mint(t.Context(), request("agent", c.from))
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v", c.from, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.from, err)
			continue
		}
		if got := string(g.Values()["a"]); got != c.want {
			t.Errorf("%s: %s", c.from, got)
		}
		must(t, g.Revoke(t.Context()))
	}
	if p := s.stepPolicies(t); len(p) != 0 {
		t.Errorf("policies of failed mints are left: %v", p)
	}
	if n := notes(t, b.cfg.Dir); len(n) != 0 {
		t.Errorf("notes are left: %v", n)
	}
}

// A dynamic engine's secret is read once, and ends with the step.
func TestDynamic(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	b := opened(t, s.config(t))
	g := minted(t, b, request("agent", "vault:db/creds/app#username", "vault:db/creds/app#password", git))
	user, password := string(g.Values()["a"]), string(g.Values()["b"])
	if !strings.HasPrefix(password, user+":") {
		t.Errorf("user %s and password %s are from different reads", user, password)
	}
	if users := s.list(t, "db/users"); !slices.Equal(users, []string{user}) || g.Leases() != 1 {
		t.Errorf("users %v, %d leases", users, g.Leases())
	}
	must(t, g.Revoke(t.Context()))
	if users := s.list(t, "db/users"); len(users) != 0 {
		t.Errorf("alive after the step: %v", users)
	}
	if leases := s.list(t, "sys/leases/lookup/db/creds/app"); len(leases) != 0 {
		t.Errorf("leases after the step: %v", leases)
	}
}

// Secrets that a step's delivered token has made at a dynamic engine end with it, too.
func TestDynamicDelivered(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	b := opened(t, s.config(t))
	g := minted(t, b, request("agent", "vault:db/creds/app"))
	for range 3 {
		if code, answer := s.call(t, string(g.Values()["a"]), "GET", "db/creds/app", nil); code != http.StatusOK {
			t.Fatalf("HTTP %d %v", code, answer)
		}
	}
	must(t, g.Revoke(t.Context()))
	for range 100 {
		if len(s.list(t, "db/users")) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("alive 2 s after the step: %v", s.list(t, "db/users"))
}

// A lease that is shorter than the token's lifetime is renewed.
func TestShortLease(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	b := opened(t, s.config(t))
	g := minted(t, b, request("agent", "vault:short/creds/app#password"))
	if left := time.Until(g.Expires()); left > 2*time.Second {
		t.Errorf("it expires in %s, but the lease is of 2 s", left)
	}
	must(t, g.Renew(t.Context()))
	if left := time.Until(g.Expires()); left < 50*time.Second {
		t.Errorf("renewed, it expires in %s", left)
	}
	time.Sleep(2500 * time.Millisecond)
	if users := s.list(t, "short/users"); len(users) != 1 {
		t.Errorf("users after the lease's first end: %v", users)
	}
}

// Renewals extend to the step's limit, and not beyond it.
func TestLimit(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	b := opened(t, s.config(t))
	r := request("agent", git)
	r.Limit = 3 * time.Second
	g := minted(t, b, r)
	if left := time.Until(g.Expires()); left > r.Limit {
		t.Errorf("it expires in %s, the limit is %s", left, r.Limit)
	}
	must(t, g.Renew(t.Context()))
	if left := time.Until(g.Expires()); left > r.Limit {
		t.Errorf("renewed, it expires in %s", left)
	}
	// By another client, with a longer increment: Vault enforces the limit, too.
	answer := s.root(t, "POST", "auth/token/renew-accessor", map[string]any{"accessor": g.Accessor(), "increment": "1h"})
	if got := answer["auth"].(map[string]any)["lease_duration"].(float64); got > 3 {
		t.Errorf("Vault would let it live %v s more", got)
	}
	time.Sleep(3200 * time.Millisecond)
	if err := g.Renew(t.Context()); err == nil || !strings.Contains(err.Error(), "time limit is reached") {
		t.Errorf("renewed beyond the limit: %v", err)
	}
	if s.lookup(t, g.Accessor()) != nil {
		t.Error("the token is alive after the limit")
	}
}

// A renewal has the lifetime in Vault's response, not the requested one.
func TestRenew(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	b := opened(t, s.config(t))
	g := minted(t, b, request("agent", git, "vault:kv/plain"))
	time.Sleep(2100 * time.Millisecond)
	before := g.Expires()
	must(t, g.Renew(t.Context()))
	if by := g.Expires().Sub(before); by < 2*time.Second || by > 4*time.Second {
		t.Errorf("2.1 s after the mint, it was renewed by %s", by)
	}
	for i, tok := range g.tokens {
		left := s.lookup(t, tok.accessor)["ttl"].(float64)
		if left < 59 || left > 60 {
			t.Errorf("token %d: ttl %v", i, left)
		}
	}
	s.root(t, "POST", "auth/token/revoke-accessor", map[string]any{"accessor": g.tokens[1].accessor})
	if err := g.Renew(t.Context()); err == nil {
		t.Error("renewed, although one of its tokens was revoked")
	}
}

// Invalid requests are refused without a call to Vault.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	b := opened(t, s.config(t))
	noLimit := request("agent", git)
	noLimit.Limit = 0
	for _, r := range []secrets.Request{noLimit, {Run: "r", Step: "s", Limit: time.Hour}, request("agent", "vault:sys/policy#x"), request("agent", "env:HOME#x")} {
		if _, err := b.Mint(t.Context(), r); err == nil {
			t.Errorf("%+v was minted", r)
		}
	}
	if n := notes(t, b.cfg.Dir); len(n) != 0 {
		t.Errorf("notes: %v", n)
	}
}

// Token roles that grant more than the documented ones are detected, and their tokens are revoked.
func TestWrongRoles(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	_, roles := documented(t)
	for _, c := range []struct{ settings, wrong string }{
		{"orphan=false", "orphan=true"},
		{"token_period=2h", "live for 7200 s"},
		{"token_type=batch renewable=false token_explicit_max_ttl=0", "batch tokens"},
		{"renewable=false", "renewable=true"},
		{"allowed_policies_glob=other-*", "must be subset"},
		{"token_no_default_policy=false", ""}, // custody requests none itself
	} {
		settings := map[string]any{}
		for k, v := range roles["auth/token/roles/custody"] {
			settings[k] = v
		}
		for _, pair := range strings.Fields(c.settings) {
			k, v, _ := strings.Cut(pair, "=")
			settings[k] = v
		}
		s.root(t, "DELETE", "auth/token/roles/custody", nil)
		s.root(t, "POST", "auth/token/roles/custody", settings)
		config := s.config(t)
		config.TokenRole = "custody"
		b := opened(t, config)
		g, err := b.Mint(t.Context(), request("agent", git))
		if err == nil {
			must(t, g.Revoke(t.Context()))
		}
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v", c.settings, err)
		}
	}
	for _, accessor := range s.list(t, "auth/token/accessors") {
		about := s.lookup(t, accessor)
		if about != nil && strings.HasPrefix(about["display_name"].(string), "token-custody-") {
			t.Errorf("left alive: %v %v", about["display_name"], about["path"])
		}
	}
}

// Without token roles, a fully privileged login works.
func TestWithoutRoles(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.root(t, "POST", "sys/mounts/kv", map[string]any{"type": "kv"})
	s.root(t, "POST", "kv/plain", map[string]any{"password": "value-of-kv-version-1"})
	c := Config{Address: s.Address, Login: LoginToken, Token: s.Token, Dir: t.TempDir()}
	b := opened(t, c)
	g := minted(t, b, request("agent", "vault:kv/plain#password"))
	about := s.lookup(t, g.Accessor())
	if len(about["policies"].([]any)) != 1 || about["ttl"].(float64) > 60 || about["orphan"] != true || about["explicit_max_ttl"] != 3600.0 {
		t.Errorf("%v", about)
	}
	// A login without these rights gets nothing, and steps do not use its token instead.
	s.root(t, "PUT", "sys/policies/acl/weak", map[string]any{"policy": `path "auth/token/*" { capabilities = ["create", "read", "update"] }
path "sys/policies/acl/*" { capabilities = ["create", "update", "delete"] }`})
	c.Token = s.login(t, map[string]any{"policies": []string{"weak"}})
	if _, err := opened(t, c).Mint(t.Context(), request("agent", "vault:kv/plain#password")); err == nil || !strings.Contains(err.Error(), "auth/token/create/custody") {
		t.Errorf("a weak login: %v", err)
	}
	// A role that was configured by name is not replaced either.
	c.Token, c.TokenRole = s.Token, "mine"
	if _, err := opened(t, c).Mint(t.Context(), request("agent", "vault:kv/plain#password")); err == nil || !strings.Contains(err.Error(), "auth/token/create/mine") {
		t.Errorf("a role that does not exist: %v", err)
	}
}

// The documented policy is sufficient (all tests use it), and allows little else.
func TestSmallestPolicy(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	login := s.login(t, nil)
	for _, q := range []struct{ method, path string }{
		{"GET", "secret/data/agents/git"}, {"LIST", "secret/metadata/agents"}, {"GET", "kv/plain"}, {"GET", "db/creds/app"},
		{"PUT", "sys/policies/acl/mine"}, {"GET", "sys/policies/acl/custody"}, {"PUT", "sys/policies/acl/custody"}, {"PUT", "sys/policies/acl/custody-parent"},
		{"LIST", "sys/policies/acl"}, {"POST", "auth/token/create"}, {"POST", "auth/token/create-orphan"},
		{"POST", "auth/token/roles/custody"}, {"LIST", "auth/token/accessors"}, {"POST", "sys/mounts/x"}, {"GET", "sys/mounts"}, {"POST", "sys/seal"},
		{"POST", "sys/leases/lookup"}, {"PUT", "sys/leases/revoke-prefix/db"}, {"PUT", "sys/audit/x"}, {"GET", "cubbyhole/x"},
	} {
		if code, answer := s.call(t, login, q.method, q.path, map[string]any{"policies": []string{"custody-step-x"}}); code != http.StatusForbidden {
			t.Errorf("%s %s: HTTP %d %v", q.method, q.path, code, answer)
		}
	}
	// Each of its rules is needed: without any one of them, some operation fails.
	policies, _ := documented(t)
	rules := strings.SplitAfter(policies["custody"], "\n")
	for i, rule := range rules {
		if !strings.HasPrefix(rule, "path") {
			continue
		}
		s.root(t, "PUT", "sys/policies/acl/less", map[string]any{"policy": strings.Join(slices.Delete(slices.Clone(rules), i, i+1), "")})
		if err := lifeOf(t, s, s.login(t, map[string]any{"policies": []string{"less"}})); err == nil {
			t.Errorf("everything works without: %s", rule)
		}
	}
	s.root(t, "PUT", "sys/policies/acl/less", map[string]any{"policy": policies["custody"]})
	must(t, lifeOf(t, s, s.login(t, map[string]any{"policies": []string{"less"}})))
}

// lifeOf performs all operations of a broker with its login.
func lifeOf(t *testing.T, s *server, login string) error {
	t.Helper()
	c := Config{Address: s.Address, Login: LoginToken, Token: login, TokenRole: "custody", Dir: t.TempDir()}
	b, err := Open(t.Context(), c)
	if err != nil {
		return err
	}
	defer b.Close(t.Context())
	g, err := b.Mint(t.Context(), request("agent", git, "vault:short/creds/app#password"))
	if err != nil {
		return err
	}
	if err := g.Renew(t.Context()); err != nil {
		return err
	}
	if err := g.Revoke(t.Context()); err != nil {
		return err
	}
	for _, path := range []string{"auth/token/renew-self", "auth/token/revoke-self"} { // as refresh and close do
		if _, err := b.client.call(t.Context(), login, http.MethodPost, path, nil); err != nil {
			return err
		}
	}
	return nil
}

// No error contains a token or a value, whatever Vault or another server responds.
func TestErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	b := opened(t, s.config(t))
	own := b.session.token()
	for _, c := range []struct {
		code int
		body string
	}{
		{400, `{"errors":["bad ` + own.secret + ` and ` + canary + `"]}`},
		{403, "<html>" + own.secret + canary + "</html>"},
		{200, `{"data":{"x":` + canary + `}}`},
		{200, canary + own.secret},
		{307, ""},
		{500, strings.Repeat("x", 9<<20)},
	} {
		fake := echo(t, c.code, c.body)
		cl, err := newClient(Config{Address: fake})
		must(t, err)
		_, err = cl.call(context.Background(), own.secret, "POST", "x", map[string]any{"secret_id": canary})
		if err == nil || strings.Contains(err.Error(), own.secret) || strings.Contains(err.Error(), canary) || len(err.Error()) > 1000 {
			t.Errorf("%d %.40s: %v", c.code, c.body, err)
		}
	}
}

// JSON numbers keep their digits.
func TestNumbers(t *testing.T) {
	for _, n := range []string{"1", "12345678901234567890", "1e400", "0.1"} {
		got, err := fieldOf(map[string]any{"n": json.Number(n)}, "n")
		if err != nil || string(got) != n {
			t.Errorf("%s: %s, %v", strconv.Quote(n), got, err)
		}
	}
}
