package access_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay/access"
)

func TestCodeFlow(t *testing.T) {
	s := newOIDC(t, nil)
	c := newClient(t)
	to := s.toIssuer(t, c, "/runs/r-1?at=2")
	if param(to, "code_challenge_method") != "S256" || len(param(to, "code_challenge")) != 43 || len(param(to, "state")) != 43 || len(param(to, "nonce")) != 43 {
		t.Errorf("the request at the issuer is %s", to)
	}
	back := s.atIssuer(t, c, to, "ada")
	code, next, body := get(t, c, back)
	if code != http.StatusSeeOther || next != "/runs/r-1?at=2" {
		t.Fatalf("callback: %d to %q %s", code, next, body)
	}
	e := s.log.last(t)
	if e.Who != "ada@example.com" || e.Via != "oidc" || e.Tenant != "acme" || e.Role != "auditor" || e.Verdict != audit.Allow || e.Query != "" || e.Action != "login" {
		t.Errorf("recorded %+v", e)
	}
	if code, _, body := get(t, c, s.base+"/api/v1/auditor/r-1"); code != 200 || body != "ada@example.com@acme as auditor" {
		t.Errorf("the session: %d %s", code, body)
	}
	if code, _, _ := get(t, c, s.base+"/api/v1/operator/r-1"); code != 403 {
		t.Errorf("above the role: %d", code)
	}
	// The same answer again, in the same browser and in another one.
	if code, _, _ := get(t, c, back); code != 401 || s.log.last(t).Reason != "state" {
		t.Errorf("replayed: %d %+v", code, s.log.last(t))
	}
	if code, _, _ := get(t, newClient(t), back); code != 401 {
		t.Errorf("replayed elsewhere: %d", code)
	}
}

func TestSeveralGrants(t *testing.T) {
	s := newOIDC(t, nil)
	c := newClient(t)
	get(t, c, s.atIssuer(t, c, s.toIssuer(t, c, "//evil.example/"), "sam"))
	if code, _, body := get(t, c, s.base+"/api/v1/viewer/r-1"); code != 400 || !strings.Contains(body, `"tenants":["acme","beta"]`) {
		t.Errorf("without a tenant: %d %s", code, body)
	}
	for tenant, want := range map[string]string{"acme": "sam@acme as operator", "beta": "sam@beta as operator"} { // its mail address was not verified
		if code, _, body := get(t, c, s.base+"/api/v1/operator/r-1?tenant="+tenant); code != 200 || body != want {
			t.Errorf("%s: %d %s", tenant, code, body)
		}
	}
	if code, _, body := get(t, c, s.base+"/api/v1/session"); code != 200 || !strings.Contains(body, `"name":"sam"`) {
		t.Errorf("who: %d %s", code, body)
	}
	if code, _, _ := get(t, c, s.base+"/api/v1/viewer/r-1?tenant=gamma"); code != 403 || s.log.last(t).Tenant != "gamma" {
		t.Errorf("another tenant: %d %+v", code, s.log.last(t))
	}
}

func TestNoGrant(t *testing.T) {
	s := newOIDC(t, nil)
	c := newClient(t)
	code, _, body := get(t, c, s.atIssuer(t, c, s.toIssuer(t, c, "/"), "eve"))
	if e := s.log.last(t); code != 403 || !strings.Contains(body, "has no grants") || e.Who != "eve" || e.Reason != "no-grant" {
		t.Errorf("%d %s, recorded %+v", code, body, e)
	}
	if code, _, _ := get(t, c, s.base+"/api/v1/viewer/r-1"); code != 401 {
		t.Errorf("has a session: %d", code)
	}
	w := s.do(s.request("GET", "/api/v1/viewer/r-1?tenant=acme", "", bearer(s.sign(t, map[string]any{"sub": "eve", "groups": []string{"x"}}, nil))))
	if w.Code != 403 || !strings.Contains(w.Body.String(), "no-grant") {
		t.Errorf("as a bearer: %d %s", w.Code, w.Body)
	}
}

// TestFlowAttacks: each way to bend the answer or the request of a login.
func TestFlowAttacks(t *testing.T) {
	s := newOIDC(t, nil)
	refused := func(name string, c *http.Client, address, reason string) {
		t.Helper()
		code, _, body := get(t, c, address)
		if e := s.log.last(t); code != 401 || e.Reason != reason || e.Verdict != audit.Deny || strings.Contains(string(e.Query), "code") {
			t.Errorf("%s: %d %s, recorded %+v", name, code, body, e)
		}
		if code, _, _ := get(t, c, s.base+"/api/v1/viewer/r-1"); code != 401 {
			t.Errorf("%s: has a session: %d", name, code)
		}
	}
	c := newClient(t)
	back := s.atIssuer(t, c, s.toIssuer(t, c, "/"), "ada")
	refused("another browser", newClient(t), back, "state") // an attacker's code in a victim's browser

	victim := newClient(t)
	s.toIssuer(t, victim, "/")
	refused("a victim who was logging in", victim, back, "state")

	refused("another state", c, with(back, "state", strings.Repeat("A", 43)), "state")
	// That answer took the cookie away: each try below begins again.
	again := func() (*http.Client, string) {
		c := newClient(t)
		return c, s.toIssuer(t, c, "/")
	}
	c, to := again()
	refused("another nonce", c, s.atIssuer(t, c, with(to, "nonce", strings.Repeat("B", 43)), "ada"), "code")
	c, to = again()
	refused("another challenge", c, s.atIssuer(t, c, with(to, "code_challenge", strings.Repeat("C", 43)), "ada"), "code")
	c, to = again()
	refused("another client's code", c, s.atIssuer(t, c, with(to, "client_id", "other"), "ada"), "code")
	c, to = again()
	refused("another code", c, with(s.atIssuer(t, c, to, "ada"), "code", "nonsense"), "code")
	c, to = again()
	back = s.atIssuer(t, c, to, "ada")
	refused("two states", c, back+"&state="+param(back, "state"), "state")
	c, to = again()
	refused("another issuer", c, with(s.atIssuer(t, c, to, "ada"), "iss", "https://evil.example"), "state")
	c, to = again()
	refused("an error", c, s.base+"/oidc/callback?error=access_denied&state="+param(to, "state"), "issuer-refused")
	s = newOIDC(t, nil) // the one before has to wait by now
	c, to = again()
	refused("no code", c, s.base+"/oidc/callback?state="+param(to, "state"), "issuer-refused")
}

func TestNext(t *testing.T) {
	s := newOIDC(t, nil)
	for next, want := range map[string]string{
		"/": "/", "/runs/r-1#seq=4": "/runs/r-1#seq=4", "": "/", "https://evil.example/": "/", "//evil.example": "/", "/\\evil.example": "/", "\\\\evil.example": "/",
		"javascript:alert(1)": "/", "/\t/evil.example": "/", "runs": "/", "/\r\nSet-Cookie: a=b": "/", "http:/evil": "/", " //evil.example": "/",
	} {
		c := newClient(t)
		if code, to, body := get(t, c, s.atIssuer(t, c, s.toIssuer(t, c, next), "ada")); code != 303 || to != want {
			t.Errorf("next %q leads to %q, %d %s", next, to, code, body)
		}
	}
}

func TestBearer(t *testing.T) {
	s := newOIDC(t, func(o *access.OIDC) { o.Audience = "custody-api" })
	now := time.Now().Unix()
	type m = map[string]any
	for name, c := range map[string]struct {
		claims m
		header map[string]string
		status int
	}{
		"holds":              {nil, nil, 200},
		"for the API":        {m{"aud": []string{"x", "custody-api"}}, nil, 200},
		"access token":       {nil, map[string]string{"typ": "at+jwt"}, 200},
		"a little early":     {m{"nbf": now + 30, "iat": now + 30}, nil, 200},
		"group as text":      {m{"groups": "custody-auditors"}, nil, 200},
		"own party":          {m{"azp": "custody"}, nil, 200},
		"for ages":           {m{"exp": 1 << 40}, nil, 200},
		"expired":            {m{"exp": now - 1}, nil, 401},
		"no expiry":          {m{"exp": nil}, nil, 401},
		"expiry of 0":        {m{"exp": 0}, nil, 401},
		"expiry below 0":     {m{"exp": -1}, nil, 401},
		"not yet":            {m{"nbf": now + 120}, nil, 401},
		"made in the future": {m{"iat": now + 120}, nil, 401},
		"another issuer":     {m{"iss": "https://evil.example"}, nil, 401},
		"issuer with slash":  {m{"iss": s.Issuer + "/"}, nil, 401},
		"no issuer":          {m{"iss": nil}, nil, 401},
		"another audience":   {m{"aud": "other"}, nil, 401},
		"audience like ours": {m{"aud": "custody2"}, nil, 401},
		"audience's case":    {m{"aud": "Custody"}, nil, 401},
		"no audience":        {m{"aud": nil}, nil, 401},
		"empty audience":     {m{"aud": []string{}}, nil, 401},
		"another party":      {m{"aud": []string{"custody", "other"}, "azp": "other"}, nil, 401},
		"no subject":         {m{"sub": nil}, nil, 401},
		"logout token":       {m{"events": m{"http://schemas.openid.net/event/backchannel-logout": m{}}}, nil, 401},
		"logout type":        {nil, map[string]string{"typ": "logout+jwt"}, 401},
		"another key":        {nil, map[string]string{"kid": "key-99"}, 401},
		"kid as a path":      {nil, map[string]string{"kid": "../../../../dev/null"}, 401},
		"kid as SQL":         {nil, map[string]string{"kid": "x' UNION SELECT 'key"}, 401},
		"keys elsewhere":     {nil, map[string]string{"jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/"}, 200}, // not looked at
		"no grant":           {m{"groups": nil}, nil, 403},
		"groups of no list":  {m{"groups": m{"custody-auditors": true}}, nil, 403},
		"group of a number":  {m{"groups": []any{1, "custody-auditors"}}, nil, 403},
		"a group like ours":  {m{"groups": []string{"Custody-Auditors", "custody-auditors "}}, nil, 403},
		"name to steer with": {m{"sub": "a\x1b[2Jb", "email": nil}, nil, 403},
		"name to turn with":  {m{"sub": "a\u202eb", "email": nil}, nil, 403},
	} {
		w := s.do(s.request("GET", "/api/v1/auditor/r-1", "", bearer(s.sign(t, c.claims, c.header)), "From-Address: "+address(len(s.log.all()))+":1"))
		e := s.log.last(t)
		if w.Code != c.status || (e.Verdict == audit.Allow) != (c.status == 200) || c.status == 200 && (e.Who != "ada@example.com" || e.Via != "oidc") {
			t.Errorf("%s: %d %s, recorded %+v", name, w.Code, w.Body, e)
		}
	}
}

// TestLongJWT: an expiry that no date can say does not break the answer.
func TestLongJWT(t *testing.T) {
	s := newOIDC(t, nil)
	w := s.do(s.request("GET", "/api/v1/session", "", bearer(s.sign(t, map[string]any{"exp": 1 << 45}, nil))))
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"expires":"2`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// compact makes a JWT by hand.
func compact(header, claims map[string]any, sign func(string) []byte) string {
	part := func(v any) string {
		b, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(header) + "." + part(claims)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(text))
}

// TestForgedJWT: what an attacker can make who has the public keys and tokens that once held.
func TestForgedJWT(t *testing.T) {
	s := newOIDC(t, nil)
	good := s.sign(t, nil, nil)
	if w := s.do(s.request("GET", "/api/v1/viewer/r", "", bearer(good))); w.Code != 200 {
		t.Fatalf("one that holds: %d %s", w.Code, w.Body)
	}
	resp, err := http.Get(s.Issuer + "/keys")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var set jose.JSONWebKeySet
	if err := json.NewDecoder(resp.Body).Decode(&set); err != nil {
		t.Fatal(err)
	}
	pub := set.Keys[0].Key.(*rsa.PublicKey)
	der, _ := x509.MarshalPKIXPublicKey(pub)
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	hs256 := func(key []byte) func(string) []byte {
		return func(text string) []byte {
			m := hmac.New(sha256.New, key)
			m.Write([]byte(text))
			return m.Sum(nil)
		}
	}
	none := func(string) []byte { return nil }
	mine, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	myJWK := jose.JSONWebKey{Key: mine, KeyID: "key-1", Algorithm: "RS256"}
	byMine := func(o *jose.SignerOptions) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: myJWK}, o)
		if err != nil {
			t.Fatal(err)
		}
		claims, _ := json.Marshal(s.claims(nil))
		jws, err := signer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := jws.CompactSerialize()
		return text
	}
	type m = map[string]any
	parts := strings.Split(good, ".")
	more := compact(m{"alg": "RS256"}, s.claims(m{"groups": []string{"sre"}}), none)
	for name, token := range map[string]string{
		"none":                compact(m{"alg": "none", "kid": "key-1"}, s.claims(nil), none),
		"None":                compact(m{"alg": "None", "kid": "key-1"}, s.claims(nil), none),
		"no alg":              compact(m{"kid": "key-1"}, s.claims(nil), none),
		"alg of a list":       compact(m{"alg": []string{"RS256", "none"}, "kid": "key-1"}, s.claims(nil), none),
		"HS256 with the PEM":  compact(m{"alg": "HS256", "kid": "key-1"}, s.claims(nil), hs256(asPEM)),
		"HS256 with the DER":  compact(m{"alg": "HS256", "kid": "key-1"}, s.claims(nil), hs256(der)),
		"HS256 with N":        compact(m{"alg": "HS256", "kid": "key-1"}, s.claims(nil), hs256(pub.N.Bytes())),
		"HS256 with nothing":  compact(m{"alg": "HS256", "kid": "key-1"}, s.claims(nil), hs256(nil)),
		"my key, its name":    byMine(nil),
		"my key in the head":  byMine(&jose.SignerOptions{EmbedJWK: true}),
		"no signature":        parts[0] + "." + parts[1] + ".",
		"other claims":        parts[0] + "." + strings.Split(more, ".")[1] + "." + parts[2],
		"other head":          strings.Split(more, ".")[0] + "." + parts[1] + "." + parts[2],
		"another alg":         compact(m{"alg": "PS256", "kid": "key-1"}, s.claims(nil), func(string) []byte { b, _ := base64.RawURLEncoding.DecodeString(parts[2]); return b }),
		"truncated":           good[:len(good)-4],
		"longer":              good + "AAAA",
		"four parts":          good + ".x",
		"two parts":           parts[0] + "." + parts[1],
		"critical":            compact(m{"alg": "RS256", "kid": "key-1", "crit": []string{"x"}, "x": 1}, s.claims(nil), none),
		"encrypted":           "eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6IkEyNTZHQ00ifQ.a.b.c.d",
		"dots":                "..",
		"token in a token":    "cst_." + parts[1] + "." + parts[2],
		"padding":             good + "==",
		"claims are no JSON":  parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte("{")) + "." + parts[2],
		"not in base64":       parts[0] + ".!!." + parts[2],
		"a newline inside it": parts[0] + ".\n" + parts[1] + "." + parts[2],
		"JSON form":           `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
	} {
		w := s.do(s.request("GET", "/api/v1/viewer/r", "", bearer(token), "From-Address: "+address(len(s.log.all()))+":1"))
		if e := s.log.last(t); w.Code != 401 || e.Reason != "credential" || e.Who != "" {
			t.Errorf("%s: %d %s, recorded %+v", name, w.Code, w.Body, e)
		}
	}
}

// TestKeyRotation: a new key works immediately, and made-up ones do not make the issuer work.
func TestKeyRotation(t *testing.T) {
	s := newOIDC(t, nil)
	status := func(jwt string) int { return s.do(s.request("GET", "/api/v1/viewer/r", "", bearer(jwt))).Code }
	old := s.sign(t, nil, nil)
	if status(old) != 200 {
		t.Fatal("the first key does not work")
	}
	s.control(t, "POST", "/rotate?alg=ES256&keep=1", nil)
	time.Sleep(2100 * time.Millisecond) // the issuer is asked every two seconds at most
	fresh := s.sign(t, nil, nil)
	if status(fresh) != 200 || status(old) != 200 {
		t.Error("a new key, or the one beside it, does not work")
	}
	before := s.asked(t)
	for range 300 {
		s.do(s.request("GET", "/api/v1/viewer/r", "", bearer(s.sign(t, nil, map[string]string{"kid": "made-up"}))))
	}
	if n := s.asked(t) - before; n > 3 {
		t.Errorf("the issuer was asked for its keys %d times", n)
	}
	// A key that the issuer takes back goes with the next look at its keys, which a new one brings about.
	s.control(t, "POST", "/rotate?alg=RS256", nil)
	time.Sleep(2100 * time.Millisecond)
	if status(s.sign(t, nil, nil)) != 200 || status(old) == 200 || status(fresh) == 200 {
		t.Error("a key that was taken back works on")
	}
}

func TestIssuerAway(t *testing.T) {
	s := newOIDC(t, nil)
	jwt := s.sign(t, nil, nil)
	own := "Authorization: Bearer " + s.token(t, "ann", "acme", access.Viewer)
	s.control(t, "POST", "/close", nil)
	w := s.do(s.request("GET", "/api/v1/viewer/r", "", bearer(jwt)))
	if e := s.log.last(t); w.Code != 503 || w.Header().Get("Retry-After") == "" || e.Reason != "issuer-away" || e.Status != 503 {
		t.Errorf("away: %d %s, recorded %+v", w.Code, w.Body, e)
	}
	if code, _, body := get(t, newClient(t), s.base+"/oidc/login"); code != 503 || !strings.Contains(body, "does not answer") {
		t.Errorf("login: %d %s", code, body)
	}
	if w := s.do(s.request("GET", "/api/v1/viewer/r", "", own)); w.Code != 200 {
		t.Errorf("a token of our own: %d", w.Code)
	}
	s.control(t, "POST", "/open", nil)
	time.Sleep(2100 * time.Millisecond)
	if w := s.do(s.request("GET", "/api/v1/viewer/r", "", bearer(jwt))); w.Code != 200 {
		t.Errorf("back: %d %s", w.Code, w.Body)
	}
	// It goes while someone logs in: what was begun is refused, and the session that is there goes on.
	c := newClient(t)
	get(t, c, s.atIssuer(t, c, s.toIssuer(t, c, "/"), "ada"))
	late := newClient(t)
	back := s.atIssuer(t, late, s.toIssuer(t, late, "/"), "ada")
	s.control(t, "POST", "/close", nil)
	if code, _, _ := get(t, late, back); code != 503 || s.log.last(t).Reason != "issuer-away" {
		t.Errorf("callback: %d", code)
	}
	if code, _, _ := get(t, c, s.base+"/api/v1/auditor/r"); code != 200 {
		t.Errorf("a session: %d", code)
	}
}

// TestOIDCConfig: what an issuer may not be.
func TestOIDCConfig(t *testing.T) {
	grants := map[string]access.Grants{"g": {{Tenant: "acme", Role: access.Viewer}}}
	for name, o := range map[string]access.OIDC{
		"http":         {Issuer: "http://id.example.com", ClientID: "c", Grants: grants},
		"no URL":       {Issuer: "id.example.com", ClientID: "c", Grants: grants},
		"query":        {Issuer: "https://id.example.com/?x", ClientID: "c", Grants: grants},
		"password":     {Issuer: "https://a:b@id.example.com/", ClientID: "c", Grants: grants},
		"no client":    {Issuer: "https://id.example.com", Grants: grants},
		"no grants":    {Issuer: "https://id.example.com", ClientID: "c"},
		"none":         {Issuer: "https://id.example.com", ClientID: "c", Grants: grants, Algs: []string{"none"}},
		"HS256":        {Issuer: "https://id.example.com", ClientID: "c", Grants: grants, Algs: []string{"RS256", "HS256"}},
		"bad role":     {Issuer: "https://id.example.com", ClientID: "c", Grants: map[string]access.Grants{"g": {{Tenant: "acme", Role: "root"}}}},
		"bad tenant":   {Issuer: "https://id.example.com", ClientID: "c", Grants: map[string]access.Grants{"g": {{Tenant: "(none)", Role: "admin"}}}},
		"empty grants": {Issuer: "https://id.example.com", ClientID: "c", Grants: map[string]access.Grants{"g": {}}},
	} {
		err := access.Config{OIDC: &o}.Check()
		if h, ok := err.(interface{ Hint() string }); err == nil || !ok || h.Hint() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
