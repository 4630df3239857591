package access_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/replay/access"
)

// issuer is a real OpenID Connect provider (hack/oidc).
type issuer struct {
	Issuer  string `json:"issuer"`
	Control string `json:"control"`
}

// startIssuer runs one that knows these redirect addresses.
func startIssuer(t testing.TB, redirects ...string) *issuer {
	t.Helper()
	bin := os.Getenv("CUSTODY_TEST_OIDC")
	if bin == "" {
		t.Fatal("CUSTODY_TEST_OIDC does not name an OpenID Connect provider to test with: run hack/test, or set it to what hack/build-oidc prints")
	}
	conf, err := json.Marshal(map[string]any{
		"clients": []any{
			map[string]any{"id": "custody", "secret": "client-secret", "redirects": redirects},
			map[string]any{"id": "other", "secret": "other-secret", "redirects": redirects},
		},
		"users": []any{
			map[string]any{"name": "ada", "password": "pw", "claims": map[string]any{"groups": []string{"custody-auditors", "staff"}, "email": "ada@example.com", "email_verified": true}},
			map[string]any{"name": "sam", "password": "pw", "claims": map[string]any{"groups": "sre", "email": "ada@example.com"}},
			map[string]any{"name": "eve", "password": "pw", "claims": map[string]any{"groups": []string{"strangers"}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "oidc.json")
	if err := os.WriteFile(path, conf, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-config", path)
	var said bytes.Buffer
	cmd.Stderr = &said
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	i := &issuer{}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, i) != nil {
		t.Fatalf("the issuer did not start: %v %s", err, &said)
	}
	return i
}

// control makes the issuer do something.
func (i *issuer) control(t testing.TB, method, path string, body any) []byte {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(method, i.Control+path, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, answer, err)
	}
	return answer
}

// claims of a token for ada that holds, changed by with; nil takes one away.
func (i *issuer) claims(with map[string]any) map[string]any {
	now := time.Now().Unix()
	c := map[string]any{"iss": i.Issuer, "aud": "custody", "sub": "ada", "iat": now, "exp": now + 300, "groups": []string{"custody-auditors"}, "email": "ada@example.com", "email_verified": true}
	for k, v := range with {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

// sign returns a JWT that the issuer's own key of now signed.
func (i *issuer) sign(t testing.TB, with map[string]any, header map[string]string) string {
	t.Helper()
	var text string
	if err := json.Unmarshal(i.control(t, "POST", "/sign", map[string]any{"claims": i.claims(with), "header": header}), &text); err != nil {
		t.Fatal(err)
	}
	return text
}

// asked is how often it was asked for its keys.
func (i *issuer) asked(t testing.TB) (n int) {
	t.Helper()
	if err := json.Unmarshal(i.control(t, "GET", "/asked", nil), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// withOIDC is a gate on a real socket with an issuer beside it.
type withOIDC struct {
	*site
	*issuer
	base string // of the gate
}

func newOIDC(t *testing.T, change func(*access.OIDC)) *withOIDC {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + l.Addr().String()
	iss := startIssuer(t, base+"/oidc/callback", "http://evil.example/oidc/callback")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("client-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &access.OIDC{Issuer: iss.Issuer, ClientID: "custody", ClientSecretFile: secret, Scopes: []string{"groups"}, Grants: map[string]access.Grants{
		"custody-auditors": {{Tenant: "acme", Role: access.Auditor}},
		"sre":              {{Tenant: "acme", Role: access.Viewer}, {Tenant: "beta", Role: access.Operator}, {Tenant: "acme", Role: access.Operator}},
	}}
	if change != nil {
		change(o)
	}
	s := &withOIDC{site: newSite(t, access.Config{Listen: l.Addr().String(), OIDC: o}), issuer: iss, base: base}
	s.host = l.Addr().String()
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: s.mux}}
	server.Start()
	t.Cleanup(server.Close)
	return s
}

// newClient returns an HTTP client that acts as a browser, as far as cookies and redirects go.
func newClient(t *testing.T) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get gets an address and returns the answer's status, where it sends on to, and its text.
func get(t *testing.T, c *http.Client, address string) (int, string, string) {
	t.Helper()
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Location"), string(body)
}

// toIssuer begins a login and returns the address that the browser is sent to.
func (s *withOIDC) toIssuer(t *testing.T, c *http.Client, next string) string {
	t.Helper()
	code, to, body := get(t, c, s.base+"/oidc/login?next="+url.QueryEscape(next))
	if code != http.StatusSeeOther || !strings.HasPrefix(to, s.Issuer+"/auth?") {
		t.Fatalf("login: %d to %q %s", code, to, body)
	}
	return to
}

// atIssuer fills in the issuer's form, and returns the address of the callback that the browser is sent to.
func (s *withOIDC) atIssuer(t *testing.T, c *http.Client, address, user string) string {
	t.Helper()
	if code, _, body := get(t, c, address); code != 200 || !strings.Contains(body, "password") {
		t.Fatalf("the issuer's form: %d %s", code, body)
	}
	resp, err := c.PostForm(address, url.Values{"user": {user}, "password": {"pw"}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	to := resp.Header.Get("Location")
	if !strings.HasPrefix(to, s.base+"/oidc/callback?") {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("the issuer: %d to %q %s", resp.StatusCode, to, body)
	}
	return to
}

// with changes a parameter of an address.
func with(address, name, value string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func param(address, name string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return u.Query().Get(name)
}

func bearer(jwt string) string { return fmt.Sprintf("Authorization: Bearer %s", jwt) }
