package vault

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/secrets"
)

// server is a real Vault (hack/vault) on loopback, and its root token.
type server struct {
	Address string `json:"address"`
	Token   string `json:"token"`
	Unseal  string `json:"unseal_key"`
	CA      string `json:"ca"`

	cmd   *exec.Cmd
	stdin io.Closer
}

// start runs a Vault for the test.
func start(t testing.TB, args ...string) *server {
	t.Helper()
	bin := os.Getenv("CUSTODY_TEST_VAULT")
	if bin == "" {
		t.Fatal("CUSTODY_TEST_VAULT does not name a Vault to test with: run hack/test, or set it to what hack/build-vault prints")
	}
	s := &server{cmd: exec.Command(bin, args...)}
	var said bytes.Buffer
	s.cmd.Stderr = &said
	stdin, err := s.cmd.StdinPipe()
	must(t, err)
	s.stdin = stdin
	stdout, err := s.cmd.StdoutPipe()
	must(t, err)
	must(t, s.cmd.Start())
	t.Cleanup(func() { s.stop() })
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		s.stop()
		t.Fatalf("Vault did not start: %v\n%s", err, &said)
	}
	must(t, json.Unmarshal(line, s))
	return s
}

// stop kills Vault, as kill -9 does.
func (s *server) stop() {
	s.cmd.Process.Kill()
	s.stdin.Close()
	s.cmd.Wait()
}

// root makes a call with the root token. The test fails unless Vault responds with one of the codes, or without an
// error.
func (s *server) root(t testing.TB, method, path string, body any, codes ...int) map[string]any {
	t.Helper()
	code, answer := s.call(t, s.Token, method, path, body)
	if len(codes) == 0 && code >= 300 || len(codes) > 0 && !slices.Contains(codes, code) {
		t.Fatalf("%s %s: HTTP %d %v", method, path, code, answer)
	}
	return answer
}

// call makes a call without the code under test.
func (s *server) call(t testing.TB, token, method, path string, body any) (int, map[string]any) {
	t.Helper()
	return callFrom(t, http.DefaultClient, s.Address, token, method, path, body)
}

func callFrom(t testing.TB, c *http.Client, address, token, method, path string, body any) (int, map[string]any) {
	t.Helper()
	text, err := json.Marshal(body)
	must(t, err)
	req, err := http.NewRequest(method, address+"/v1/"+path, bytes.NewReader(text))
	must(t, err)
	req.Header.Set("X-Vault-Token", token)
	resp, err := c.Do(req)
	must(t, err)
	defer resp.Body.Close()
	var answer map[string]any
	json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// prepared starts a Vault with the settings of docs/vault.md, and some secrets.
func prepared(t testing.TB, args ...string) *server {
	t.Helper()
	s := start(t, args...)
	s.prepare(t)
	return s
}

const (
	canary = "canary-value-of-git-0123456789"
	number = "4567890123"
)

func (s *server) prepare(t testing.TB) {
	t.Helper()
	s.root(t, "POST", "sys/mounts/secret", map[string]any{"type": "kv", "options": map[string]string{"version": "2"}})
	s.root(t, "POST", "sys/mounts/kv", map[string]any{"type": "kv", "options": map[string]string{"version": "1"}})
	s.root(t, "POST", "sys/mounts/db", map[string]any{"type": "lease"})
	s.root(t, "POST", "sys/mounts/short", map[string]any{"type": "lease", "config": map[string]any{"default_lease_ttl": "2s"}})
	s.eventually(t, "secret/data/agents/git", map[string]any{"data": map[string]any{
		"token": canary, "port": json.Number(number), "on": true, "none": nil,
		"list": []any{"<a>", 1}, "map": map[string]any{"b": 2, "a": "x"},
	}})
	s.root(t, "POST", "secret/data/agents/other", map[string]any{"data": map[string]any{"token": "another-value-0123456789"}})
	s.root(t, "POST", "kv/plain", map[string]any{"password": "value-of-kv-version-1"})
	policies, roles := documented(t)
	for name, text := range policies {
		s.root(t, "PUT", "sys/policies/acl/"+name, map[string]any{"policy": text})
	}
	for path, settings := range roles {
		s.root(t, "POST", path, settings)
	}
}

// eventually writes to a KV v2 engine that may still be starting.
func (s *server) eventually(t testing.TB, path string, body any) {
	t.Helper()
	for range 3000 {
		if code, _ := s.call(t, s.Token, "POST", path, body); code < 300 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("Vault does not accept %s", path)
}

// documented reads policies and token roles from docs/vault.md.
func documented(t testing.TB) (policies map[string]string, roles map[string]map[string]any) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/vault.md")
	must(t, err)
	policies, roles = map[string]string{}, map[string]map[string]any{}
	for _, m := range regexp.MustCompile("(?s)```hcl\n# ([a-z-]+)\\.hcl(.*?)```").FindAllSubmatch(doc, -1) {
		policies[string(m[1])] = "#" + string(m[2])
	}
	commands := strings.ReplaceAll(string(doc), "\\\n", " ")
	for _, m := range regexp.MustCompile(`(?m)^vault write (auth/token/roles/\S+) (.*)$`).FindAllStringSubmatch(commands, -1) {
		settings := map[string]any{}
		for _, pair := range strings.Fields(m[2]) {
			k, v, _ := strings.Cut(pair, "=")
			settings[k] = v
		}
		roles[m[1]] = settings
	}
	if len(policies) != 2 || len(roles) != 1 {
		t.Fatalf("docs/vault.md has %d policies and %d token roles, not 2 and 1", len(policies), len(roles))
	}
	return policies, roles
}

// login makes a token with only the documented policy.
func (s *server) login(t testing.TB, more map[string]any) string {
	t.Helper()
	body := map[string]any{"policies": []string{"custody"}, "no_default_policy": true, "ttl": "1h"}
	for k, v := range more {
		body[k] = v
	}
	return s.root(t, "POST", "auth/token/create", body)["auth"].(map[string]any)["client_token"].(string)
}

// config returns a configuration with the documented policy.
func (s *server) config(t testing.TB) Config {
	t.Helper()
	return Config{Address: s.Address, Login: LoginToken, Token: s.login(t, nil), Dir: filepath.Join(t.TempDir(), "leases")}
}

func opened(t testing.TB, c Config) *Broker {
	t.Helper()
	b, err := Open(t.Context(), c)
	must(t, err)
	t.Cleanup(func() { b.Close(context.Background()) })
	return b
}

// request makes a request for sources, with the names a, b, c... Sources without a field are delivered as tokens.
func request(step string, sources ...string) secrets.Request {
	r := secrets.Request{Run: "r-1", Step: step, Limit: time.Hour}
	for i, from := range sources {
		b := secrets.Binding{Name: string(rune('a' + i)), From: from, Deliver: secrets.Deliver{Env: "X"}}
		if !strings.Contains(from, "#") {
			b.Deliver = secrets.Deliver{Token: "X"}
		}
		r.Bindings = append(r.Bindings, b)
	}
	return r
}

const git = "vault:secret/data/agents/git#token"

func minted(t testing.TB, b *Broker, r secrets.Request) *grant {
	t.Helper()
	g, err := b.Mint(t.Context(), r)
	must(t, err)
	t.Cleanup(func() { g.Revoke(context.Background()) })
	return g.(*grant)
}

// lookup looks up a token; nil if Vault does not have it.
func (s *server) lookup(t testing.TB, accessor string) map[string]any {
	t.Helper()
	code, answer := s.call(t, s.Token, "POST", "auth/token/lookup-accessor", map[string]any{"accessor": accessor})
	switch code {
	case http.StatusOK:
		return answer["data"].(map[string]any)
	case http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest:
		return nil
	}
	t.Fatalf("lookup-accessor: HTTP %d %v", code, answer)
	return nil
}

// list returns the list at a path.
func (s *server) list(t testing.TB, path string) []string {
	t.Helper()
	answer := s.root(t, "LIST", path, nil, 200, 404)
	data, _ := answer["data"].(map[string]any)
	keys, _ := data["keys"].([]any)
	var names []string
	for _, k := range keys {
		names = append(names, fmt.Sprint(k))
	}
	return names
}

// stepPolicies returns the policies that mints have made.
func (s *server) stepPolicies(t testing.TB) []string {
	t.Helper()
	return slices.DeleteFunc(s.list(t, "sys/policies/acl"), func(n string) bool { return !strings.HasPrefix(n, policyPrefix) })
}

// notes returns the files in the broker's directory.
func notes(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if !errors.Is(err, fs.ErrNotExist) { // the first note makes it
		must(t, err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
