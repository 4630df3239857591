package access

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

type silent struct{}

func (silent) Record(context.Context, audit.Access) error { return nil }

// FuzzGate: of all headers, only the token itself opens the gate, at a known name, in its own tenant.
func FuzzGate(f *testing.F) {
	tokens, err := OpenTokens(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	text, err := tokens.New(f.Context(), "ann", "acme", Viewer, 0)
	if err != nil {
		f.Fatal(err)
	}
	g, err := New(Options{Config: Config{Rate: Rate{PerSecond: 1e6, Burst: 1e6}}, Tokens: tokens, Recorder: silent{}})
	if err != nil {
		f.Fatal(err)
	}
	defer g.Close()
	h := g.Guard("GET /", Rule{Role: Viewer, Action: "view"}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	for _, auth := range []string{"Bearer TOKEN", "bearer TOKEN", "Bearer TOKEN,TOKEN", "Basic TOKEN", "Bearer a.b.c", "Bearer  TOKEN", "", "TOKEN"} {
		f.Add("127.0.0.1:8333", auth, "", "tenant=acme", "")
		f.Add("localhost", auth, "custody_session=x; a=b", "", "acme")
	}
	f.Add("evil.example", "Bearer TOKEN", "", "tenant=acme&tenant=beta", "beta")
	f.Fuzz(func(t *testing.T, host, auth, cookie, query, tenant string) {
		auth = strings.ReplaceAll(auth, "TOKEN", text)
		r := httptest.NewRequest("GET", "/", nil)
		r.Host, r.URL.RawQuery = host, query
		for name, v := range map[string]string{"Authorization": auth, "Cookie": cookie, "Custody-Tenant": tenant} {
			if v != "" {
				r.Header.Set(name, v)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		name, _, _ := strings.Cut(strings.ToLower(host), ":")
		known := name == "127.0.0.1" || name == "localhost" || strings.HasPrefix(host, "[")
		asked, err := url.ParseQuery(query)
		own := err == nil && len(asked["tenant"]) <= 1 && (len(asked["tenant"]) == 0 || asked.Get("tenant") == "acme") && (tenant == "" || tenant == "acme")
		if scheme, rest, _ := strings.Cut(auth, " "); w.Code == 200 && !(known && own && strings.EqualFold(scheme, "bearer") && rest == text) {
			t.Errorf("host %q, authorization %q, cookie %q, query %q, tenant %q: let in", host, auth, cookie, query, tenant)
		}
		if w.Code != 200 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("refused with %q", w.Body)
		}
	})
}

func FuzzParseBearer(f *testing.F) {
	for _, s := range []string{"Bearer cst_x", "bearer a.b.c", "Bearer", "Bearer ", "Bearer a b", "Bearer a,b", "Bearer \x00", "Basic eA=="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		token, ok := parseBearer(header)
		if ok && (len(header) != 7+len(token) || !strings.HasSuffix(header, " "+token) || strings.ContainsAny(token, " \t\r\n,;\"") || token == "" || len(token) > maxBearer) {
			t.Errorf("%q gives %q", header, token)
		}
	})
}

func FuzzSecret(f *testing.F) {
	text, _ := newSecret(TokenPrefix)
	f.Add(text)
	f.Add(text[:46] + "B")
	f.Add("q=" + text + "&x=" + text)
	f.Add("cst_cst_cst_")
	f.Add("cst_cso_" + strings.Repeat("A", 43))
	f.Fuzz(func(t *testing.T, s string) {
		if isSecret(s, TokenPrefix) && (len(s) != 47 || hide(s) == s) {
			t.Errorf("%q is a secret", s)
		}
		out := hide(s)
		if out != hide(out) || len(out) > len(s) {
			t.Errorf("hide(%q) is %q, and again %q", s, out, hide(out))
		}
		for i := range out {
			for _, n := range []string{TokenPrefix, OncePrefix} {
				if end := i + len(n) + secretText; end <= len(out) && isSecret(out[i:end], n) {
					t.Errorf("hide(%q) leaves %q", s, out)
				}
			}
		}
	})
}

// FuzzHostname: what is a host is one name or address, in one spelling.
func FuzzHostname(f *testing.F) {
	for _, s := range []string{"localhost:1", "[::1]:1", "127.0.0.1", "A.b", "a:b", "[::1%lo]", "a@b", "::1", "[fe80::1]:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		h, ok := hostname(header)
		if !ok {
			return
		}
		if strings.ToLower(h) != h || strings.ContainsAny(h, "/@[] %\\?#\x00") || h == "" {
			t.Errorf("%q gives %q", header, h)
		}
		addr, err := netip.ParseAddr(h)
		again, ok := hostname(h)
		if strings.Contains(h, ":") {
			again, ok = hostname("[" + h + "]")
		}
		if again != h || !ok || strings.HasPrefix(header, "[") && (err != nil || !addr.Is6()) {
			t.Errorf("%q gives %q, and that %q", header, h, again)
		}
		u, err := url.Parse("http://" + header + "/") // as a browser takes it apart
		if err == nil && !strings.HasPrefix(header, "[") && strings.ToLower(u.Hostname()) != h {
			t.Errorf("%q gives %q, a URL %q", header, h, u.Hostname())
		}
	})
}

// FuzzTokens: what is read is written the same.
func FuzzTokens(f *testing.F) {
	dir := f.TempDir()
	tokens, err := OpenTokens(dir)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := tokens.New(f.Context(), "ann", "acme", Viewer, 0); err != nil {
		f.Fatal(err)
	}
	file, _, err := readTokens(filepath.Join(dir, tokensName))
	if err != nil {
		f.Fatal(err)
	}
	good, _ := json.Marshal(file)
	f.Add(good)
	f.Add([]byte(`{"version":1,"tokens":[]}`))
	f.Add(bytes.ReplaceAll(good, []byte("viewer"), []byte("root")))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parseTokens(data)
		if err != nil {
			return
		}
		text, err := json.Marshal(got)
		if err != nil {
			return // a year beyond 9999
		}
		again, err := parseTokens(text)
		if err != nil || len(again.Tokens) != len(got.Tokens) {
			t.Errorf("%q is written as %q: %v", data, text, err)
		}
		for _, k := range got.Tokens {
			if !k.Role.valid() || !validTenant(k.Tenant) || !validName(k.Name) || k.ID == "" {
				t.Errorf("taken: %+v", k)
			}
		}
	})
}

// FuzzKeys: of whatever an issuer answers, only public keys for signatures are kept.
func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"a","n":"sXch","e":"AQAB"},{"kty":"oct","k":"AAAA"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`))
	f.Add([]byte(`{"keys":null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		keys, err := parseKeys(body)
		for _, k := range keys {
			if _, secret := k.Key.([]byte); secret || err != nil || !k.IsPublic() {
				t.Errorf("%q gives %+v", body, k)
			}
		}
	})
}

// FuzzLocalPath: a login leads nowhere but to this server.
func FuzzLocalPath(f *testing.F) {
	for _, s := range []string{"/", "//a", "/\\a", "/%2f/a", "/a?b#c", "http:/a", "/..//a", "/\u2028", "/\t/a"} {
		f.Add(s)
	}
	base, err := url.Parse("http://127.0.0.1:8333/oidc/callback")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, next string) {
		to := localPath(next)
		u, err := base.Parse(to)
		// Browsers take a backslash for a slash, and leave tabs and line ends out.
		seen := strings.NewReplacer("\\", "/", "\t", "", "\n", "", "\r", "").Replace(to)
		if err != nil || u.Host != base.Host || u.Scheme != "http" || !strings.HasPrefix(seen, "/") || strings.HasPrefix(seen, "//") {
			t.Errorf("%q leads to %q", next, to)
		}
	})
}

func FuzzLoginBody(f *testing.F) {
	f.Add([]byte(`{"token":"x"}`))
	f.Add([]byte(`{"token":"x"} {}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest("POST", "/api/v1/session", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		token, problem := readLogin(r)
		if (token == "") == (problem == nil) || len(token) > maxLogin {
			t.Errorf("%q gives %q, %v", body, token, problem)
		}
	})
}
