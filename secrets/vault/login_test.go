package vault

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// file writes a secret file.
func file(t testing.TB, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credential")
	must(t, os.WriteFile(path, []byte(text), mode))
	must(t, os.Chmod(path, mode))
	return path
}

// works mints with a login, and returns its token.
func works(t *testing.T, c Config) token {
	t.Helper()
	b := opened(t, c)
	g := minted(t, b, request("agent", git))
	must(t, g.Renew(t.Context()))
	must(t, g.Revoke(t.Context()))
	return b.session.token()
}

// approle configures AppRole as docs/vault.md does, and returns the login's settings.
func approle(t testing.TB, s *server, settings map[string]any) Config {
	t.Helper()
	s.root(t, "POST", "sys/auth/approle", map[string]any{"type": "approle"})
	role := map[string]any{"token_policies": "custody", "token_no_default_policy": true, "token_ttl": "10m"}
	for k, v := range settings {
		role[k] = v
	}
	s.root(t, "POST", "auth/approle/role/custody", role)
	data := func(m map[string]any) map[string]any { return m["data"].(map[string]any) }
	id := data(s.root(t, "GET", "auth/approle/role/custody/role-id", nil))["role_id"].(string)
	secret := data(s.root(t, "POST", "auth/approle/role/custody/secret-id", nil))["secret_id"].(string)
	return Config{
		Address: s.Address, Login: LoginAppRole, RoleID: id, SecretIDFile: file(t, secret+"\n", 0o600),
		Dir: filepath.Join(t.TempDir(), "leases"),
	}
}

func TestAppRole(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	c := approle(t, s, nil)
	own := works(t, c)
	about := s.lookup(t, own.accessor)
	if p := about["policies"].([]any); len(p) != 1 || p[0] != "custody" {
		t.Errorf("custody's own policies: %v", p)
	}
	b := opened(t, c)
	own = b.session.token()
	must(t, b.Close(t.Context()))
	if s.lookup(t, own.accessor) != nil {
		t.Error("logged in after Close")
	}

	must(t, os.Chmod(c.SecretIDFile, 0o640))
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
	c.SecretIDFile = file(t, "no-secret-id-of-anybody", 0o600)
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "log in to Vault with approle") || strings.Contains(err.Error(), "no-secret-id") {
		t.Errorf("a wrong secret id: %v", err)
	}
	c.SecretIDFile = filepath.Join(t.TempDir(), "nothing")
	if _, err := Open(t.Context(), c); err == nil {
		t.Error("logged in without the file")
	}
}

// A login that has expired or was revoked is repeated; steps continue.
func TestLoginAgain(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	c := approle(t, s, map[string]any{"token_ttl": "4s", "token_max_ttl": "6s"})
	b := opened(t, c)
	g := minted(t, b, request("agent", git))
	first := b.session.token()
	deadline := time.Now().Add(time.Minute)
	for b.session.token().secret == first.secret {
		if time.Now().After(deadline) {
			t.Fatal("no new login")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if s.lookup(t, first.accessor) == nil {
		t.Error("the new login was made after the end of the old one")
	}
	second := b.session.token()
	s.root(t, "POST", "auth/token/revoke", map[string]any{"token": second.secret})
	must(t, g.Renew(t.Context()))
	if b.session.token().secret == second.secret {
		t.Error("renewed with a revoked token")
	}
	must(t, g.Revoke(t.Context()))
	minted(t, b, request("next", git))
}

// A renewable token is renewed.
func TestOwnTokenRenewed(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	c := s.config(t)
	c.Token = s.login(t, map[string]any{"ttl": "4s"})
	b := opened(t, c)
	time.Sleep(5 * time.Second)
	minted(t, b, request("agent", git))
	if end, _ := b.session.token().ends(); time.Until(end) > 4*time.Second {
		t.Errorf("it ends in %s", time.Until(end))
	}
}

func TestTokenLogin(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	c := s.config(t)
	c.TokenFile = file(t, c.Token+"\n", 0o600)
	c.Token = ""
	works(t, c)
	must(t, os.Chmod(c.TokenFile, 0o644))
	for _, wrong := range []func(){
		func() {},
		func() { c.TokenFile = filepath.Join(t.TempDir(), "nothing") },
		func() { c.Token = "hvs.wrong-wrong-wrong" },
		func() { c.Token = s.login(t, map[string]any{"type": "batch", "renewable": false}) },
	} {
		wrong()
		_, err := Open(t.Context(), c)
		if err == nil || c.Token != "" && strings.Contains(err.Error(), c.Token) {
			t.Errorf("%v", err)
		}
	}
}

// signed returns a JWT as an issuer makes it (RFC 7519, RS256).
func signed(t testing.TB, key *rsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		text, err := json.Marshal(v)
		must(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]string{"alg": "RS256", "typ": "JWT"}) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	must(t, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func public(t testing.TB, key *rsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func TestJWT(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	s.root(t, "POST", "sys/auth/ci", map[string]any{"type": "jwt"})
	s.root(t, "POST", "auth/ci/config", map[string]any{"jwt_validation_pubkeys": public(t, key), "bound_issuer": "ci"})
	s.root(t, "POST", "auth/ci/role/custody", map[string]any{
		"role_type": "jwt", "user_claim": "sub", "bound_audiences": "vault", "token_policies": "custody", "token_no_default_policy": true, "token_ttl": "10m",
	})
	claims := map[string]any{"iss": "ci", "sub": "job", "aud": "vault", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()}
	c := Config{
		Address: s.Address, Login: LoginJWT, Mount: "ci", Role: "custody", JWTFile: file(t, signed(t, key, claims), 0o600),
		Dir: filepath.Join(t.TempDir(), "leases"),
	}
	works(t, c)
	claims["aud"] = "another"
	wrong := signed(t, key, claims)
	c.JWTFile = file(t, wrong, 0o600)
	if _, err := Open(t.Context(), c); err == nil || strings.Contains(err.Error(), wrong) {
		t.Errorf("a token for another audience: %v", err)
	}
}

// The Kubernetes login sends the pod's token to a cluster; here only its TokenReview API is simulated.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	const account = "system:serviceaccount:agents:custody"
	pod := signed(t, key, map[string]any{
		"iss": "kubernetes/serviceaccount", "sub": account, "kubernetes.io/serviceaccount/namespace": "agents",
		"kubernetes.io/serviceaccount/service-account.name": "custody", "kubernetes.io/serviceaccount/service-account.uid": "uid-1", "kubernetes.io/serviceaccount/secret.name": "x",
	})
	cluster := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Spec struct{ Token string } }
		json.NewDecoder(r.Body).Decode(&review)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{
			"authenticated": r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews" && review.Spec.Token == pod,
			"user":          map[string]any{"username": account, "uid": "uid-1", "groups": []string{"system:serviceaccounts"}},
		}})
	}))
	defer cluster.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cluster.Certificate().Raw})
	s.root(t, "POST", "sys/auth/kubernetes", map[string]any{"type": "kubernetes"})
	s.root(t, "POST", "auth/kubernetes/config", map[string]any{
		"kubernetes_host": cluster.URL, "kubernetes_ca_cert": string(ca), "token_reviewer_jwt": pod, "disable_local_ca_jwt": true,
	})
	s.root(t, "POST", "auth/kubernetes/role/custody", map[string]any{
		"bound_service_account_names": "custody", "bound_service_account_namespaces": "agents", "token_policies": "custody", "token_no_default_policy": true, "token_ttl": "10m",
	})
	c := Config{
		Address: s.Address, Login: LoginKubernetes, Role: "custody", JWTFile: file(t, pod, 0o600),
		Dir: filepath.Join(t.TempDir(), "leases"),
	}
	works(t, c)
	c.Role = "nobody"
	if _, err := Open(t.Context(), c); err == nil {
		t.Error("logged in with a role that does not exist")
	}
}

// Vault's certificate is verified.
func TestTLS(t *testing.T) {
	s := start(t, "-tls")
	c := Config{Address: s.Address, Login: LoginToken, Token: s.Token, Dir: t.TempDir()}
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that no role has: %v", err)
	}
	c.CACert = file(t, s.CA, 0o644)
	opened(t, c)
	c.ServerName = "elsewhere.example"
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of another role: %v", err)
	}
	c.ServerName, c.CACert = "", file(t, "nonsense", 0o600)
	if _, err := Open(t.Context(), c); err == nil {
		t.Error("opened with a file that is not a certificate")
	}
	// The environment does not override the configuration.
	t.Setenv("VAULT_SKIP_VERIFY", "1")
	c.CACert = ""
	if _, err := Open(t.Context(), c); err == nil {
		t.Error("VAULT_SKIP_VERIFY has an effect")
	}
}

func TestFromEnv(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env   string
		wrong string
		login string
	}{
		{"", "", "token"},
		{"VAULT_ADDR=http://127.0.0.1:8200", "", "token"},
		{"VAULT_ADDR=http://localhost:8200", "", "token"},
		{"VAULT_ADDR=http://[::1]:8200", "", "token"},
		{"VAULT_ADDR=unix:///run/vault.sock", "", "token"},
		{"VAULT_ADDR=https://vault.example:8200 VAULT_SKIP_VERIFY=false", "", "token"},
		{"VAULT_ADDR=http://vault.example:8200", "unencrypted", ""},
		{"VAULT_ADDR=http://127.0.0.1.example:8200", "unencrypted", ""},
		{"VAULT_ADDR=http://10.0.0.1:8200", "unencrypted", ""},
		{"VAULT_ADDR=https://user:secret@vault.example", "contains a user", ""},
		{"VAULT_ADDR=vault.example:8200", "not an address", ""},
		{"VAULT_ADDR=https://", "not an address", ""},
		{"VAULT_ADDR=ftp://x", "not an address", ""},
		{"VAULT_ADDR=://secret", "not an address", ""},
		{"VAULT_SKIP_VERIFY=1", "VAULT_CACERT", ""},
		{"VAULT_SKIP_VERIFY=yes", "VAULT_CACERT", ""},
		{"VAULT_CLIENT_CERT=x", "VAULT_CLIENT_KEY", ""},
		{"CUSTODY_VAULT_LOGIN=approle", "CUSTODY_VAULT_ROLE_ID", ""},
		{"CUSTODY_VAULT_LOGIN=approle CUSTODY_VAULT_ROLE_ID=x", "", "approle"},
		{"CUSTODY_VAULT_LOGIN=kubernetes", "CUSTODY_VAULT_ROLE", ""},
		{"CUSTODY_VAULT_LOGIN=kubernetes CUSTODY_VAULT_ROLE=x", "", "kubernetes"},
		{"CUSTODY_VAULT_LOGIN=jwt CUSTODY_VAULT_ROLE=x", "CUSTODY_VAULT_JWT_FILE", ""},
		{"CUSTODY_VAULT_LOGIN=jwt CUSTODY_VAULT_ROLE=x CUSTODY_VAULT_JWT_FILE=x", "", "jwt"},
		{"CUSTODY_VAULT_LOGIN=ldap", "ldap", ""},
	} {
		env := map[string]string{"HOME": "/home/somebody"}
		for _, pair := range strings.Fields(c.env) {
			k, v, _ := strings.Cut(pair, "=")
			env[k] = v
		}
		cfg, err := FromEnv(func(name string) string { return env[name] })
		if c.wrong == "" && (err != nil || cfg.Login != c.login) || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %s, %v", c.env, cfg.Login, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v", c.env, err)
		}
	}
	cfg, err := FromEnv(func(string) string { return "" })
	if err != nil || cfg.Address != defaultAddress || cfg.Mount != "" {
		t.Errorf("nothing set: %+v, %v", cfg, err)
	}
}
