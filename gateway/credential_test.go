package gateway

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/secrets"
)

// TestInject compares what the host receives with what the guest sent, in both versions of HTTP.
func TestInject(t *testing.T) {
	basic := func(s string) string { return "Basic " + encode64(s) }
	bearer := secrets.Credential{Header: "authorization", Value: []byte(apiValue), Placeholder: apiHolder}
	schemed := secrets.Credential{Header: "Authorization", Value: []byte("Token " + apiValue), Placeholder: apiHolder}
	key := secrets.Credential{Header: "x-api-key", Value: []byte(apiValue), Placeholder: apiHolder}
	bare := secrets.Credential{Header: "X-Api-Key", Value: []byte(apiValue)}
	cookie := secrets.Credential{Header: "cookie", Value: []byte(apiValue), Placeholder: apiHolder}
	for _, change := range [][]func(*http.Transport){nil, {withH2}} {
		w := newKeyWorld(t, nil)
		client := w.client("a.example", change...)
		for n, c := range []struct {
			of    secrets.Credential
			sent  []string // names and values
			query string
			want  string // of the field; empty: denied
			no    string // the reason
			uri   string
		}{
			{of: key, want: apiValue},
			{of: key, sent: []string{"x-api-key", apiHolder}, want: apiValue},
			{of: key, sent: []string{"X-API-KEY", apiHolder}, want: apiValue},
			{of: key, sent: []string{"x-api-key", "own-key"}, no: "send nothing there, or the placeholder"},
			{of: key, sent: []string{"x-api-key", ""}, no: "send nothing there"},
			{of: key, sent: []string{"x-api-key", apiValue}, no: "send nothing there"},
			{of: key, sent: []string{"x-api-key", strings.ToUpper(apiHolder)}, no: "send nothing there"},
			{of: key, sent: []string{"x-api-key", apiHolder + ",own-key"}, no: "send nothing there"},
			{of: key, sent: []string{"x-api-key", "own-key " + apiHolder + " x"}, no: "send nothing there"},
			{of: key, sent: []string{"x-api-key", apiHolder, "x-api-key", "own-key"}, no: "is repeated"},
			{of: key, sent: []string{"x-api-key", apiHolder, "x-api-key", apiHolder}, no: "is repeated"},
			{of: key, sent: []string{"x_api_key", apiHolder}, no: "another spelling"},
			{of: key, sent: []string{"x_api-key", "own-key"}, no: "another spelling"},
			{of: key, sent: []string{"xapikey", "own-key"}, no: "another spelling"},
			{of: key, sent: []string{"authorization", "Bearer own-key"}, no: "another authentication"},
			{of: key, sent: []string{"authorization", "Bearer " + apiHolder}, want: apiValue},
			{of: key, sent: []string{"authorization", basic("me:own")}, no: "another authentication"},
			{of: key, sent: []string{"proxy-authorization", basic("me:own")}, no: "another authentication"},
			{of: key, sent: []string{"api-key", "own-key"}, no: "another authentication"},
			{of: key, sent: []string{"api_key", "own-key"}, no: "another authentication"},
			{of: key, sent: []string{"x-goog-api-key", "own-key"}, no: "another authentication"},
			{of: key, sent: []string{"x-goog-api-key", apiHolder}, want: apiValue},
			{of: key, sent: []string{"anthropic-auth-token", "own-key"}, no: "another authentication"},
			{of: key, sent: []string{"x-auth", "own"}, no: "another authentication"},
			{of: key, sent: []string{"private-token", "own"}, no: "another authentication"},
			{of: key, sent: []string{"ocp-apim-subscription-key", "own"}, no: "another authentication"},
			{of: key, sent: []string{"x-amz-security-token", "own"}, no: "another authentication"},
			{of: key, sent: []string{"signature-input", "own"}, no: "another authentication"},
			{of: key, sent: []string{"idempotency-key", "1", "anthropic-version", "2023-06-01", "x-stainless-retry-count", "0"}, want: apiValue},
			{of: key, sent: []string{"cookie", "session=own", "cookie2", "x"}, want: apiValue},
			{of: key, query: "?a=1&key=own", no: "key in its query"},
			{of: key, query: "?%6bey=own", no: "key in its query"},
			{of: key, query: "?API-Key=own", no: "apikey in its query"},
			{of: key, query: "?access_token=own", no: "accesstoken in its query"},
			{of: key, query: "?a=1;token=own", no: "token in its query"},
			{of: key, query: "?token[]=own", no: "token in its query"},
			{of: key, query: "?key=" + apiHolder + "own", no: "key in its query"},
			{of: key, query: "?a=1&key=" + apiHolder + "&page_token=2", want: apiValue, uri: "/v1/x?a=1&page_token=2"},
			{of: key, query: "?key=" + apiHolder, want: apiValue, uri: "/v1/x?"},
			{of: key, query: "?q=" + apiHolder, want: apiValue, uri: "/v1/x?q=" + apiHolder}, // not substituted
			{of: bearer, want: "Bearer " + apiValue},
			{of: bearer, sent: []string{"authorization", apiHolder}, want: apiValue},
			{of: bearer, sent: []string{"authorization", "Bearer " + apiHolder}, want: "Bearer " + apiValue},
			{of: bearer, sent: []string{"authorization", "token " + apiHolder}, want: "token " + apiValue},
			{of: bearer, sent: []string{"authorization", "key=" + apiHolder}, want: "key=" + apiValue},
			{of: bearer, sent: []string{"authorization", `Token token="` + apiHolder + `"`}, want: `Token token="` + apiValue + `"`},
			{of: bearer, sent: []string{"authorization", basic("me:" + apiHolder)}, want: basic("me:" + apiValue)},
			{of: bearer, sent: []string{"authorization", basic(apiHolder + ":x-oauth-basic")}, want: basic(apiValue + ":x-oauth-basic")},
			{of: bearer, sent: []string{"authorization", basic("me:own" + apiHolder)}, no: "send nothing there"},
			{of: bearer, sent: []string{"authorization", "Basic " + apiHolder}, no: "send nothing there"},
			{of: bearer, sent: []string{"authorization", "Bearer own, Bearer " + apiHolder}, no: "send nothing there"},
			{of: bearer, sent: []string{"authorization", "Bearer " + apiHolder + ", Bearer own"}, no: "send nothing there"},
			{of: bearer, sent: []string{"authorization", `Digest user="x", nonce="` + apiHolder + `"`}, no: "send nothing there"},
			{of: bearer, sent: []string{"authorization", "Bearer own"}, no: "send nothing there"},
			{of: bearer, sent: []string{"x-api-key", apiHolder}, want: "Bearer " + apiValue},
			{of: schemed, want: "Token " + apiValue},
			{of: schemed, sent: []string{"authorization", "Bearer " + apiHolder}, want: "Token " + apiValue},
			{of: bare, want: apiValue},
			{of: bare, sent: []string{"x-api-key", apiHolder}, no: "send nothing there"},
			{of: cookie, sent: []string{"cookie", "session=" + apiHolder}, want: "session=" + apiValue},
			{of: cookie, sent: []string{"cookie", "session=own"}, no: "send nothing there"},
			{of: secrets.Credential{Header: "x-key", Value: []byte("two\r\nx-host: b.example")}, no: "control character"},
			{of: secrets.Credential{Header: "x-key", Value: []byte("trailing\n")}, no: "control character"},
			{of: secrets.Credential{Header: "x-key", Value: []byte("nul\x00nul")}, no: "control character"},
			{of: secrets.Credential{Header: "x-key", Value: []byte(" blank")}, no: "space"},
			{of: secrets.Credential{Header: "x-key"}, no: "empty"},
			{of: secrets.Credential{Header: "host", Value: []byte(apiValue)}, no: "cannot be set"},
			{of: secrets.Credential{Header: "Transfer-Encoding", Value: []byte(apiValue)}, no: "cannot be set"},
			{of: secrets.Credential{Header: "x-forwarded-host", Value: []byte(apiValue)}, no: "cannot be set"},
			{of: secrets.Credential{Header: "proxy-authorization", Value: []byte(apiValue)}, no: "cannot be set"},
			{of: secrets.Credential{Header: "a: b", Value: []byte(apiValue)}, no: "cannot be set"},
		} {
			w.keys.set("api", c.of)
			req, _ := http.NewRequest("POST", "https://a.example/v1/x"+c.query, strings.NewReader("body with "+apiHolder))
			for i := 0; i < len(c.sent); i += 2 {
				req.Header[c.sent[i]] = append(req.Header[c.sent[i]], c.sent[i+1])
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(n, err)
			}
			seen := w.seen()
			if c.want == "" {
				if reason := w.refusalOf(resp); resp.StatusCode != 403 || !strings.Contains(reason, c.no) || len(seen) > 0 {
					t.Errorf("%d %v%s: %d %s; the host received %q", n, c.sent, c.query, resp.StatusCode, reason, seen)
				}
				resp.Body.Close()
				if ev := w.nextHTTP(); ev.Credential != "" || ev.Verdict != audit.Deny {
					t.Errorf("%d: %+v", n, ev)
				}
				continue
			}
			hear(resp.Body)
			uri := c.uri
			if uri == "" {
				uri = "/v1/x" + c.query
			}
			field := http.CanonicalHeaderKey(c.of.Header)
			if resp.StatusCode != 200 || len(seen) != 1 || !strings.HasPrefix(seen[0], "POST "+uri+" a.example\n") ||
				!strings.Contains(seen[0], "\n"+field+": "+c.want+"\n") || !strings.HasSuffix(seen[0], "\n\nbody with "+apiHolder) {
				t.Errorf("%d %v%s: %d, the host received %q", n, c.sent, c.query, resp.StatusCode, seen)
			}
			if strings.Contains(strings.Join(seen, ""), "own") {
				t.Errorf("%d: the host received %q", n, seen)
			}
			w.checkUse(n)
		}
		if told := w.keys.sightings(); len(told) > 0 {
			t.Errorf("sightings %v", told)
		}
		w.checkRecord()
	}
}

// checkUse checks that the last http event has a credential, and that an event of its use precedes it.
func (w *keyWorld) checkUse(n int) {
	w.Helper()
	ev := w.nextHTTP()
	if ev.Credential != "api" || ev.Verdict != audit.Allow {
		w.Errorf("%d: %+v", n, ev)
	}
	used := slices.ContainsFunc(w.log.all(), func(e audit.Event) bool {
		return e.Secret != nil && e.Secret.Op == audit.SecretUse && e.Secret.Name == "api" && e.Secret.Flow == ev.Flow && e.Secret.Host == "a.example"
	})
	if !used {
		w.Errorf("%d: no use is recorded", n)
	}
}

// TestInjectUnrecorded: the record fails before a credential is used.
func TestInjectUnrecorded(t *testing.T) {
	w := newKeyWorld(t, nil)
	client := w.client("a.example")
	resp, err := client.Get("https://a.example/")
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	hear(resp.Body)
	w.seen()
	w.log.fail.Store(true)
	resp, err = client.Get("https://a.example/")
	if err == nil && resp.StatusCode != 503 {
		t.Errorf("%d", resp.StatusCode)
	}
	if seen := w.seen(); len(seen) > 0 {
		t.Errorf("the host received %q", seen)
	}
}

// TestInjectDead: there is no lease for the credential.
func TestInjectDead(t *testing.T) {
	w := newKeyWorld(t, nil)
	w.keys.gone = errors.New("the step has ended")
	for _, sent := range []string{"", apiHolder} {
		req, _ := http.NewRequest("GET", "https://a.example/", nil)
		if sent != "" {
			req.Header.Set("X-Api-Key", sent)
		}
		resp, err := w.client("a.example").Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if reason := w.refusalOf(resp); resp.StatusCode != 403 || !strings.Contains(reason, "the credential api cannot be used: the step has ended") {
			t.Errorf("%d %s", resp.StatusCode, reason)
		}
		told := w.keys.sightings()
		if (len(told) == 1) != (sent != "") {
			t.Errorf("%q: sightings %v", sent, told)
		}
	}
	if seen := w.seen(); len(seen) > 0 {
		t.Errorf("the hosts received %q", seen)
	}
}

// TestWithdraw ends a request with an endless body when its credential is revoked.
func TestWithdraw(t *testing.T) {
	for _, change := range [][]func(*http.Transport){nil, {withH2}} {
		gone := make(chan error, 1)
		w := newKeyWorld(t, nil)
		w.newHostAt(newAddr(), nil, 81, nil)
		h := w.newHostAt(newAddr(), w.ca.leaf(t, "a.example"), 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			gone <- err
		}))
		w.zone.set("a.example", h.addr)
		r, wr := io.Pipe()
		req, _ := http.NewRequest("POST", "https://a.example/", r)
		done := make(chan *http.Response, 1)
		go func() {
			resp, _ := w.client("a.example", change...).Do(req)
			done <- resp
		}()
		io.WriteString(wr, "some")
		w.until("the request at the host", func() bool { return len(h.seen) > 0 })
		if n := w.Withdraw("other", "x") + w.Withdraw("api", "an anomaly"); n != 1 {
			t.Errorf("%d withdrawn", n)
		}
		select {
		case err := <-gone:
			if err == nil {
				t.Error("the host saw an orderly end")
			}
		case <-time.After(time.Minute):
			t.Fatal("the request continues")
		}
		wr.CloseWithError(io.ErrUnexpectedEOF)
		if resp := <-done; resp != nil && resp.StatusCode != 403 {
			t.Errorf("%d", resp.StatusCode)
		}
		if ev := w.http(1); ev.Verdict != audit.Deny || !strings.Contains(ev.Reason, "was withdrawn: an anomaly") || ev.Credential != "api" {
			t.Errorf("%+v", ev)
		}
		w.until("no request that carries it", func() bool { return w.Withdraw("api", "again") == 0 })
	}
}

func encode64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// FuzzSubstitute sends arbitrary values of the field. The result may contain at most the value, a scheme and a name, and
// no part of a placeholder.
func FuzzSubstitute(f *testing.F) {
	for _, s := range []string{
		apiHolder, "Bearer " + apiHolder, "Token token=\"" + apiHolder + "\"", "key=" + apiHolder, "Basic " + encode64("me:"+apiHolder),
		"Basic " + encode64(apiHolder+":x"), "basic " + encode64(apiHolder+":"+apiHolder), "Bearer a, Bearer " + apiHolder, apiHolder + apiHolder, "",
		"Basic " + encode64("a\r\nb:"+apiHolder), "Bearer \x00" + apiHolder,
	} {
		f.Add(s, "Authorization")
		f.Add(s, "X-Api-Key")
	}
	f.Fuzz(func(t *testing.T, sent, field string) {
		s := &substitution{name: "api", field: field, credential: secrets.Credential{Value: []byte(apiValue), Placeholder: apiHolder}}
		out, ok := s.substitute(sent)
		if !ok {
			if out != "" {
				t.Fatalf("%q with a refusal", out)
			}
			return
		}
		if scheme, rest, _ := strings.Cut(out, " "); strings.EqualFold(scheme, "basic") {
			plain, err := base64.StdEncoding.DecodeString(rest)
			if err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			out = string(plain)
			if strings.Count(out, ":") < 1 || len(out) > len(apiValue)+maxBesides+1 {
				t.Fatalf("%q", out)
			}
		} else if before, after, _ := strings.Cut(out, apiValue); strings.ContainsAny(before+after, ",;:") || after != "" && after != `"` || strings.Count(before, " ") > 1 {
			t.Fatalf("%q", out)
		}
		if strings.Count(out, apiValue) != 1 || strings.Contains(out, apiHolder) || !printable(out) {
			t.Fatalf("%q for %q", out, sent)
		}
	})
}

// FuzzQuery sends arbitrary queries. The result has no parameter that authenticates.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"key=" + apiHolder, "a=1&key=x", "%6Bey=x", "a;token=x", "token[]=x", "&&==", "a=b&API_KEY=" + apiHolder + "&c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		s := &substitution{name: "api", field: "X-Api-Key", credential: secrets.Credential{Value: []byte(apiValue), Placeholder: apiHolder}}
		out, no := s.query(query)
		if no != nil {
			return
		}
		values, _ := url.ParseQuery(out) // as much as can be parsed
		for name, list := range values {
			if authParameter(name) != "" && strings.Join(list, "") != "" {
				t.Fatalf("%q of %q", out, query)
			}
		}
		if len(out) > len(query) || strings.Contains(out, apiValue) && !strings.Contains(query, apiValue) {
			t.Fatalf("%q of %q", out, query)
		}
	})
}
