package access_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay/access"
)

// login posts a token as the page does.
func (s *site) login(token string, headers ...string) *httptest.ResponseRecorder {
	body, _ := json.Marshal(map[string]string{"token": token})
	return s.do(s.request("POST", "/api/v1/session", string(body), append([]string{"Content-Type: application/json", "Sec-Fetch-Site: same-origin"}, headers...)...))
}

// cookie returns the session's cookie as the browser sends it back.
func cookie(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	for _, c := range w.Result().Cookies() {
		if strings.HasSuffix(c.Name, access.CookieName) && c.Value != "" {
			return "Cookie: " + c.Name + "=" + c.Value
		}
	}
	t.Fatalf("no session: %d %s", w.Code, w.Body)
	return ""
}

func (s *site) status(headers ...string) int {
	return s.do(s.request("GET", "/api/v1/viewer/r-1", "", headers...)).Code
}

func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Config{})
		token, ok := s.Once()
		if !ok {
			t.Fatal("there is no one-time token")
		}
		if w := s.login(token, "From-Address: 192.0.2.9:1"); w.Code != 401 || s.log.last(t).Reason != "once-elsewhere" {
			t.Errorf("from elsewhere: %d %+v", w.Code, s.log.last(t))
		}
		if w := s.login(token, "From-Address: 192.0.2.9:1", "X-Forwarded-For: 127.0.0.1", "X-Real-Ip: 127.0.0.1", "Forwarded: for=127.0.0.1"); w.Code != 401 {
			t.Errorf("from elsewhere, with headers that say otherwise: %d", w.Code)
		}
		w := s.login(token)
		e := s.log.last(t)
		if w.Code != 201 || e.Who != "local" || e.Via != "once" || e.Tenant != "acme" || e.Role != "admin" || e.Action != "login" || e.Verdict != audit.Allow {
			t.Errorf("%d %s, recorded %+v", w.Code, w.Body, e)
		}
		session := cookie(t, w)
		if got := s.do(s.request("GET", "/api/v1/admin/r-1", "", session)); got.Code != 200 || got.Body.String() != "local@acme as admin" {
			t.Errorf("the session: %d %s", got.Code, got.Body)
		}
		if w := s.login(token); w.Code != 401 || s.log.last(t).Reason != "once-used" || s.log.last(t).Verdict != audit.Deny {
			t.Errorf("used twice: %d %+v", w.Code, s.log.last(t))
		}
		if s.status("Authorization: Bearer "+token) != 401 {
			t.Error("a one-time token is a bearer token")
		}
		late, _ := s.Once()
		time.Sleep(10*time.Minute + time.Second)
		if w := s.login(late); w.Code != 401 || s.log.last(t).Reason != "once-unknown" {
			t.Errorf("after ten minutes: %d %+v", w.Code, s.log.last(t))
		}
		for _, bad := range []string{"", "cso_", late[:len(late)-1], late + "A", strings.ToUpper(late), " " + late, "cso_" + strings.Repeat("A", 43)} {
			if w := s.login(bad); w.Code == 201 {
				t.Errorf("%q makes a session", bad)
			}
		}
	})
}

// TestOnceRace: of many concurrent uses of a link, one succeeds.
func TestOnceRace(t *testing.T) {
	s := newSite(t, access.Config{})
	token, _ := s.Once()
	codes := make(chan int)
	for range 50 {
		go func() { codes <- s.login(token).Code }()
	}
	in := 0
	for range 50 {
		if <-codes == 201 {
			in++
		}
	}
	if in != 1 {
		t.Errorf("%d got in", in)
	}
}

func TestNoOnce(t *testing.T) {
	s := newSite(t, access.Config{Local: "none"})
	if token, ok := s.Once(); ok || token != "" {
		t.Error("there is a one-time token that nobody wanted")
	}
	far := newSite(t, access.Config{Listen: "192.0.2.7:8443", Cert: "c", Key: "k"})
	if _, ok := far.Once(); ok {
		t.Error("there is a one-time token that nobody could use")
	}
	viewer := newSite(t, access.Config{Local: "viewer"})
	token, _ := viewer.Once()
	c := cookie(t, viewer.login(token))
	if got := viewer.do(viewer.request("GET", "/api/v1/auditor/r", "", c)).Code; got != 403 {
		t.Errorf("local as a viewer gets %d", got)
	}
}

func TestSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Config{Session: access.SessionTime{Max: 3 * time.Hour, Idle: time.Hour}})
		text := s.token(t, "ann", "acme", access.Viewer)

		idle := cookie(t, s.login(text))
		time.Sleep(time.Hour - time.Second)
		if s.status(idle) != 200 {
			t.Error("ended before its idle time")
		}
		time.Sleep(time.Hour)
		if s.status(idle) != 401 || s.log.last(t).Reason != "credential" {
			t.Error("goes on after its idle time")
		}

		long := cookie(t, s.login(text))
		for i := range 8 {
			time.Sleep(25 * time.Minute)
			if got, want := s.status(long), 200; i < 7 && got != want || i == 7 && got != 401 {
				t.Errorf("after %d minutes: %d", (i+1)*25, got)
			}
		}

		out := cookie(t, s.login(text))
		w := s.do(s.request("DELETE", "/api/v1/session", "", out, "Sec-Fetch-Site: same-origin"))
		if w.Code != 204 || s.status(out) != 401 {
			t.Errorf("logout: %d", w.Code)
		}
		if c := w.Result().Cookies(); len(c) != 1 || c[0].MaxAge >= 0 || c[0].Value != "" {
			t.Errorf("logout leaves %v", c)
		}

		kept := cookie(t, s.login(text))
		all, _ := s.Tokens().List()
		if _, err := s.Tokens().Remove(t.Context(), all[0].ID); err != nil {
			t.Fatal(err)
		}
		if s.status(kept) != 401 || s.status("Authorization: Bearer "+text) != 401 {
			t.Error("a session outlives its token")
		}

		short, err := s.Tokens().New(t.Context(), "short", "acme", access.Viewer, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		c := cookie(t, s.login(short))
		time.Sleep(10*time.Minute + time.Second)
		if s.status(c) != 401 || s.status("Authorization: Bearer "+short) != 401 {
			t.Error("a token holds after its expiry")
		}
	})
}

// TestFixation: no id that a browser brings becomes a session, and a login ends the one before.
func TestFixation(t *testing.T) {
	s := newSite(t, access.Config{})
	text := s.token(t, "ann", "acme", access.Viewer)
	planted := "Cookie: " + access.CookieName + "=" + strings.Repeat("A", 43)
	first := cookie(t, s.login(text, planted))
	if first == planted || s.status(planted) != 401 {
		t.Error("a planted id is a session")
	}
	second := cookie(t, s.login(text, first))
	if second == first || s.status(first) != 401 || s.status(second) != 200 {
		t.Error("the session before goes on")
	}
}

func TestCookie(t *testing.T) {
	s := newSite(t, access.Config{})
	text := s.token(t, "ann", "acme", access.Viewer)
	c := s.login(text).Result().Cookies()[0]
	if c.Name != "custody_session" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "/" || c.Domain != "" || len(c.Value) != 43 || c.MaxAge > 12*3600 {
		t.Errorf("cookie %+v", c)
	}
	body := `{"token":"` + text + `"}`
	r := s.request("POST", "https://127.0.0.1:8333/api/v1/session", body, "Content-Type: application/json") // httptest gives it TLS
	tls := s.do(r).Result().Cookies()[0]
	if tls.Name != "__Host-custody_session" || !tls.Secure || !tls.HttpOnly || tls.SameSite != http.SameSiteStrictMode || tls.Domain != "" || tls.Path != "/" {
		t.Errorf("cookie with TLS %+v", tls)
	}
	// With TLS only the name that no other host can set is looked at.
	r = s.request("GET", "https://127.0.0.1:8333/api/v1/viewer/r", "", "Cookie: custody_session="+c.Value)
	if w := s.do(r); w.Code != 401 {
		t.Errorf("the cookie without a prefix, with TLS: %d", w.Code)
	}
}

// TestSmuggling: a request has one credential, and headers of proxies count for nothing.
func TestSmuggling(t *testing.T) {
	s := newSite(t, access.Config{})
	ann, bob := s.token(t, "ann", "acme", access.Viewer), s.token(t, "bob", "beta", access.Admin)
	session := cookie(t, s.login(ann))
	value := strings.TrimPrefix(session, "Cookie: ")
	auth := func(v string) string { return "Authorization: " + v }
	for name, c := range map[string]struct {
		headers []string
		status  int
	}{
		"two tokens":                  {[]string{auth("Bearer " + ann), auth("Bearer " + bob)}, 400},
		"the same token twice":        {[]string{auth("Bearer " + ann), auth("Bearer " + ann)}, 400},
		"cookie and another's token":  {[]string{session, auth("Bearer " + bob)}, 400},
		"cookie and its token":        {[]string{session, auth("Bearer " + ann)}, 400},
		"two cookies in one header":   {[]string{"Cookie: " + value + "; " + value}, 400},
		"two cookies in two headers":  {[]string{session, session}, 400},
		"cookie and an empty one":     {[]string{"Cookie: " + value + "; custody_session="}, 400},
		"empty cookie":                {[]string{"Cookie: custody_session="}, 401},
		"token as a cookie":           {[]string{"Cookie: custody_session=" + ann}, 401},
		"another cookie beside":       {[]string{"Cookie: theme=dark; " + value}, 200},
		"cookie in another case":      {[]string{"Cookie: " + strings.ToUpper(value[:15]) + value[15:]}, 401},
		"two in one header":           {[]string{auth("Bearer " + ann + ", Bearer " + bob)}, 401},
		"two spaces":                  {[]string{auth("Bearer  " + ann)}, 401},
		"no space":                    {[]string{auth("Bearer" + ann)}, 401},
		"tab":                         {[]string{auth("Bearer\t" + ann)}, 401},
		"trailing space":              {[]string{auth("Bearer " + ann + " ")}, 401},
		"lower case scheme":           {[]string{auth("bearer " + ann)}, 200},
		"basic":                       {[]string{auth("Basic " + ann)}, 401},
		"no scheme":                   {[]string{auth(ann)}, 401},
		"empty":                       {[]string{auth("")}, 401},
		"truncated":                   {[]string{auth("Bearer " + ann[:len(ann)-1])}, 401},
		"longer":                      {[]string{auth("Bearer " + ann + "A")}, 401},
		"another prefix":              {[]string{auth("Bearer cso_" + ann[4:])}, 401},
		"upper case":                  {[]string{auth("Bearer " + strings.ToUpper(ann))}, 401},
		"forged":                      {[]string{auth("Bearer cst_" + strings.Repeat("A", 43))}, 401},
		"a megabyte":                  {[]string{auth("Bearer " + strings.Repeat("A", 1<<20))}, 401},
		"nothing":                     {nil, 401},
		"proxy's headers":             {[]string{"X-Forwarded-User: bob", "X-Remote-User: bob", "Proxy-Authorization: Bearer " + bob, "X-Original-Url: /api/v1/admin/r"}, 401},
		"another host by proxy":       {[]string{auth("Bearer " + ann), "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: https"}, 200},
		"method by header":            {[]string{auth("Bearer " + ann), "X-Http-Method-Override: DELETE"}, 200},
		"tenant by a header like it":  {[]string{auth("Bearer " + ann), "X-Custody-Tenant: beta", "Custody_Tenant: beta"}, 200},
		"unicode that looks like one": {[]string{auth("Bearer " + strings.Replace(ann, "c", "с", 1))}, 401},
	} {
		w := s.do(s.request("GET", "/api/v1/viewer/r-1", "", append(c.headers, "From-Address: "+address(len(name)*7+len(s.log.all()))+":1")...))
		e := s.log.last(t)
		if w.Code != c.status || e.Status != c.status && c.status != 200 || c.status == 200 && (e.Who != "ann" || e.Tenant != "acme") {
			t.Errorf("%s: %d %s, recorded %+v", name, w.Code, w.Body, e)
		}
		if strings.HasPrefix(e.Remote, "127.") {
			t.Errorf("%s: recorded as from %s", name, e.Remote)
		}
	}
	for _, query := range []string{"access_token=" + ann, "token=" + ann, "authorization=Bearer%20" + ann} {
		w := s.do(s.request("GET", "/api/v1/viewer/r-1?"+query, ""))
		if w.Code != 401 || strings.Contains(string(s.log.last(t).Query), ann[4:]) {
			t.Errorf("?%s: %d, recorded %q", query[:8], w.Code, s.log.last(t).Query)
		}
	}
}

// address is one of many, so that no rate of an address matters.
func address(n int) string {
	return "10." + string(rune('0'+n/100%10)) + "." + string(rune('0'+n/10%10)) + "." + string(rune('0'+n%10))
}

// TestOrigins: what another site has a browser do changes nothing and shows nothing.
func TestOrigins(t *testing.T) {
	s := newSite(t, access.Config{})
	text := s.token(t, "ann", "acme", access.Admin)
	session := cookie(t, s.login(text))
	bearer := "Authorization: Bearer " + text
	for _, c := range []struct {
		method  string
		headers []string
		status  int
	}{
		{"POST", []string{session, "Sec-Fetch-Site: same-origin"}, 200},
		{"POST", []string{session, "Origin: http://127.0.0.1:8333"}, 200},
		{"POST", []string{session}, 403}, // no browser forgets to say
		{"POST", []string{session, "Origin: null"}, 403},
		{"POST", []string{session, "Origin: http://evil.example"}, 403},
		{"POST", []string{session, "Origin: http://127.0.0.1:9999"}, 403}, // SameSite does not tell ports apart
		{"POST", []string{session, "Sec-Fetch-Site: same-site"}, 403},
		{"POST", []string{session, "Sec-Fetch-Site: cross-site"}, 403},
		{"POST", []string{session, "Sec-Fetch-Site: cross-site", "Origin: http://127.0.0.1:8333"}, 403},
		{"POST", []string{session, "Referer: http://127.0.0.1:8333/"}, 403},
		{"POST", []string{session, "Sec-Fetch-Site: Same-Origin "}, 403},
		{"GET", []string{session}, 200},
		{"GET", []string{session, "Sec-Fetch-Site: same-origin"}, 200},
		{"GET", []string{session, "Sec-Fetch-Site: none"}, 200},
		{"GET", []string{session, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"}, 403}, // <script src>
		{"GET", []string{session, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate"}, 403},
		{"POST", []string{bearer}, 200},
		{"POST", []string{bearer, "Sec-Fetch-Site: cross-site"}, 403},
	} {
		w := s.do(s.request(c.method, "/api/v1/viewer/r-1", "", c.headers...))
		e := s.log.last(t)
		if w.Code != c.status || c.status == 403 && (e.Reason != "origin" || e.Verdict != audit.Deny) {
			t.Errorf("%s %q: %d, recorded %+v", c.method, c.headers[1:], w.Code, e)
		}
	}
	// No form of another site can log someone in, or out.
	form := s.do(s.request("POST", "/api/v1/session", `{"token":"`+text+`"}`, "Content-Type: text/plain"))
	cross := s.login(text, "Origin: http://evil.example")
	out := s.do(s.request("DELETE", "/api/v1/session", "", session, "Origin: http://evil.example"))
	if form.Code != 400 || cross.Code != 201 && cross.Code != 403 || out.Code != 403 || s.status(session) != 200 {
		t.Errorf("form %d, cross-site %d, logout %d", form.Code, cross.Code, out.Code)
	}
	if w := s.do(s.request("POST", "/api/v1/session", `{"token":"`+text+`"}`, "Content-Type: application/json", "Sec-Fetch-Site: cross-site")); w.Code != 403 {
		t.Errorf("login of another site: %d", w.Code)
	}
}

func TestWhoAmI(t *testing.T) {
	s := newSite(t, access.Config{})
	if w := s.do(s.request("GET", "/api/v1/session", "")); w.Code != 401 || len(s.log.all()) != 0 {
		t.Errorf("without a session: %d, recorded %v", w.Code, s.log.all())
	}
	c := cookie(t, s.login(s.token(t, "ann", "acme", access.Auditor)))
	w := s.do(s.request("GET", "/api/v1/session", "", c))
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got["name"] != "ann" || got["via"] != "token" || got["tenant"] != "acme" || got["role"] != "auditor" || got["expires"] == nil || got["grants"] == nil {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := s.do(s.request("GET", "/api/v1/session", "", "Cookie: custody_session=x")); w.Code != 401 || s.log.last(t).Reason != "credential" {
		t.Errorf("with a forged session: %d", w.Code)
	}
}

func TestBadLogins(t *testing.T) {
	s := newSite(t, access.Config{})
	text := s.token(t, "ann", "acme", access.Auditor)
	for i, body := range []string{"", "{}", "null", `"` + text + `"`, `{"token":""}`, `{"token":1}`, `{"token":"` + text + `","x":1}`, `{"token":"` + text + `"}{}`,
		`{"token":"` + text + `"`, `[{"token":"` + text + `"}]`, `{"token":"` + strings.Repeat("A", 1<<20) + `"}`} {
		w := s.do(s.request("POST", "/api/v1/session", body, "Content-Type: application/json", "From-Address: "+address(i)+":1"))
		if w.Code != 400 || s.log.last(t).Verdict != audit.Deny || s.log.last(t).Action != "login" {
			t.Errorf("%.60q: %d %s", body, w.Code, w.Body)
		}
		if w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.60q: %v", body, w.Header())
		}
	}
}
