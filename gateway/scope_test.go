package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

// ask sends a raw HTTP/1 request to name, in TLS on port 443, and returns the response's status and, for a refusal, the
// reason.
func (w *keyWorld) ask(name string, port uint16, raw string) (int, string) {
	w.Helper()
	var c net.Conn
	if port == 443 {
		t, err := w.handshake(name, name, w.trust)
		if err != nil {
			w.Fatal(name, err)
		}
		c = t
	} else {
		c = w.dial(name, port)
	}
	defer c.Close()
	io.WriteString(c, raw) // the gateway may respond before all of it was sent
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.Errorf("%.200q: %v", raw, err)
		return 0, ""
	}
	defer resp.Body.Close()
	if resp.Header.Get("Cache-Control") != "no-store" {
		hear(resp.Body)
		return resp.StatusCode, ""
	}
	return resp.StatusCode, w.refusalOf(resp)
}

// TestSteering tries to send the credential of a.example elsewhere or with another one, and secrets to hosts that they
// are not for. It checks what the hosts receive.
func TestSteering(t *testing.T) {
	w := newKeyWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(rw, r, "https://b.example/", http.StatusTemporaryRedirect)
		}
	}))
	const (
		a     = "Host: a.example\r\n"
		b     = "Host: b.example\r\n"
		plain = "Host: plain.example\r\n"
		held  = "X-Api-Key: " + apiHolder + "\r\n"
		end   = "\r\n"
	)
	for n, c := range []struct {
		what   string
		name   string
		port   uint16
		raw    string
		status int
		value  bool // the host receives the credential
		told   string
	}{
		{"as it should be", "a.example", 443, "GET /v1 HTTP/1.1\r\n" + a + held + end, 200, true, ""},
		{"absolute-form", "a.example", 443, "GET https://a.example/v1 HTTP/1.1\r\n" + a + held + end, 200, true, ""},
		{"a listed field", "a.example", 443, "GET / HTTP/1.1\r\n" + a + held + "Connection: x-api-key\r\n" + end, 200, true, ""},
		{"an upgrade that is not made", "a.example", 443, "GET / HTTP/1.1\r\n" + a + held + "Connection: upgrade\r\nUpgrade: h2c\r\n" + end, 200, true, ""},
		{"a redirect", "a.example", 443, "GET /redirect HTTP/1.1\r\n" + a + held + end, 307, true, ""},
		{"after the redirect", "b.example", 443, "GET / HTTP/1.1\r\n" + b + held + end, 403, false, "api b.example header X-Api-Key"},
		{"Host of another", "a.example", 443, "GET / HTTP/1.1\r\n" + b + held + end, 403, false, ""},
		{"Host of its own elsewhere", "b.example", 443, "GET / HTTP/1.1\r\n" + a + end, 403, false, ""},
		{"Host of its own elsewhere, held", "b.example", 443, "GET / HTTP/1.1\r\n" + a + held + end, 403, false, "api b.example header X-Api-Key"},
		{"absolute-form of another", "a.example", 443, "GET https://b.example/ HTTP/1.1\r\n" + a + held + end, 403, false, ""},
		{"absolute-form of its own elsewhere", "b.example", 443, "GET https://a.example/ HTTP/1.1\r\n" + b + held + end, 403, false, "api b.example header X-Api-Key"},
		{"CRLF before Host", "a.example", 443, "\r\nGET / HTTP/1.1\r\n" + b + held + end, 400, false, ""},
		{"space before Host", "a.example", 443, "GET / HTTP/1.1\r\n Host: b.example\r\n" + a + held + end, 400, false, ""},
		{"two Hosts", "a.example", 443, "GET / HTTP/1.1\r\n" + a + b + held + end, 400, false, ""},
		{"forwarded host", "a.example", 443, "GET / HTTP/1.1\r\n" + a + "X-Forwarded-Host: b.example\r\n" + held + end, 403, false, ""},
		{"forwarded host with underscores", "a.example", 443, "GET / HTTP/1.1\r\n" + a + "X_Forwarded_Host: b.example\r\n" + held + end, 403, false, ""},
		{"obs-fold", "a.example", 443, "GET / HTTP/1.1\r\n" + a + "X-Api-Key:\r\n " + apiHolder + "\r\n" + end, 400, false, ""},
		{"blank before the colon", "a.example", 443, "GET / HTTP/1.1\r\n" + a + "X-Api-Key : own\r\n" + end, 400, false, ""},
		{"underscores", "a.example", 443, "GET / HTTP/1.1\r\n" + a + "X_Api_Key: own\r\n" + end, 403, false, ""},
		{"two fields", "a.example", 443, "GET / HTTP/1.1\r\n" + a + held + "x-api-key: own\r\n" + end, 403, false, ""},
		{"another field", "a.example", 443, "GET / HTTP/1.1\r\n" + a + held + "Authorization: Bearer own\r\n" + end, 403, false, ""},
		{"CONNECT", "a.example", 443, "CONNECT b.example:443 HTTP/1.1\r\n" + a + held + end, 403, false, ""},
		{"TRACE", "a.example", 443, "TRACE / HTTP/1.1\r\n" + a + held + end, 403, false, ""},
		{"a WebSocket", "a.example", 443, "GET / HTTP/1.1\r\n" + a + held + "Connection: upgrade\r\nUpgrade: websocket\r\n" + end, 403, false, ""},
		{"in a trailer", "a.example", 443, "POST / HTTP/1.1\r\n" + a + "Transfer-Encoding: chunked\r\nTrailer: authorization\r\n\r\n1\r\nx\r\n0\r\nAuthorization: Bearer own\r\nX-Api-Key: own\r\n\r\n", 200, true, ""},
		{"in the clear", "a.example", 80, "GET / HTTP/1.1\r\n" + a + held + end, 403, false, ""},
		{"in the clear, asking for it", "a.example", 80, "GET / HTTP/1.1\r\n" + a + end, 200, false, ""},
		{"absolute-form of https in the clear", "a.example", 80, "GET https://a.example/ HTTP/1.1\r\n" + a + held + end, 400, false, ""},
		{"placeholder to a clear host", "plain.example", 80, "GET / HTTP/1.1\r\n" + plain + "X-Any: " + apiHolder + "\r\n" + end, 403, false, "api plain.example header X-Any"},
		{"value to a clear host", "plain.example", 80, "GET / HTTP/1.1\r\n" + plain + "X-Any: " + gitValue + "\r\n" + end, 403, false, "git plain.example header X-Any"},
		{"value to its host", "git.example", 443, "GET / HTTP/1.1\r\nHost: git.example\r\nAuthorization: token " + gitValue + "\r\n" + end, 200, false, "git git.example header Authorization"},
		{"value to another", "b.example", 443, "GET / HTTP/1.1\r\n" + b + "Authorization: Bearer " + gitValue + "\r\n" + end, 403, false, "git b.example header Authorization"},
		{"value in Basic", "b.example", 443, "GET / HTTP/1.1\r\n" + b + "Authorization: Basic " + encode64("me:"+gitValue) + "\r\n" + end, 403, false, "git b.example header Authorization"},
		{"value in a field's name", "b.example", 443, "GET / HTTP/1.1\r\n" + b + "X-" + gitValue + ": 1\r\n" + end, 403, false, "git b.example the name of a header"},
		{"value in the path", "b.example", 443, "GET /a/" + gitValue + " HTTP/1.1\r\n" + b + end, 403, false, "git b.example path or query"},
		{"value in the query, in part escaped", "b.example", 443, "GET /?q=%67hp_" + gitValue[4:] + " HTTP/1.1\r\n" + b + end, 403, false, "git b.example path or query"},
		{"value in the query, twice escaped", "b.example", 443, "GET /?q=%2567hp_" + gitValue[4:] + " HTTP/1.1\r\n" + b + end, 403, false, "git b.example path or query"},
		{"value in the query, in hex", "b.example", 443, "GET /?q=" + hex.EncodeToString([]byte(gitValue)) + " HTTP/1.1\r\n" + b + end, 403, false, "git b.example path or query"},
		{"value in Host", "b.example", 443, "GET / HTTP/1.1\r\nHost: " + gitValue + ".b.example\r\n" + end, 403, false, "git b.example host"},
		{"value in a method", "b.example", 443, strings.ToUpper(gitValue[:3]) + "-" + " / HTTP/1.1\r\n" + b + end, 200, false, ""},
		{"the injected value", "a.example", 443, "GET / HTTP/1.1\r\n" + a + "X-Api-Key: " + apiValue + "\r\n" + end, 403, false, ""},
		{"the injected value elsewhere", "b.example", 443, "GET / HTTP/1.1\r\n" + b + "X-Api-Key: " + apiValue + "\r\n" + end, 403, false, "api b.example header X-Api-Key"},
		{"another's value beside it", "a.example", 443, "GET /?q=" + gitValue + " HTTP/1.1\r\n" + a + held + end, 403, false, "git a.example path or query"},
		{"a marker is no value", "b.example", 443, "GET / HTTP/1.1\r\n" + b + "X-Note: [REDACTED:git:" + w.red.Tag([]byte(gitValue)) + "]\r\n" + end, 200, false, ""},
		{"its name in the clear, by label", "ghp_zk3vtq8lmx.5crw1nsy7d.wild.example", 80, "GET / HTTP/1.1\r\nHost: x\r\n" + end, 403, false, "git ghp_zk3vtq8lmx.5crw1nsy7d.wild.example the destination's name"},
	} {
		status, reason := w.ask(c.name, c.port, c.raw)
		seen := w.seen()
		all := strings.Join(seen, "\n")
		if status != c.status || (len(seen) > 0) != (status < 400) {
			t.Errorf("%d %s: %d (%s), want %d; the hosts received %q", n, c.what, status, reason, c.status, seen)
		}
		if c.value != strings.Contains(all, "X-Api-Key: "+apiValue+"\n") || strings.Count(all, apiValue) > 1 || strings.Contains(all, "own") {
			t.Errorf("%d %s: the hosts received %q", n, c.what, seen)
		}
		told := w.keys.sightings()
		if (len(told) > 0) != (c.told != "") || len(told) > 1 {
			t.Errorf("%d %s: sightings %v", n, c.what, told)
			continue
		}
		if c.told != "" {
			if s := told[0]; !strings.HasPrefix(s.secret+" "+s.host+" "+s.where, c.told) || s.seq == 0 || w.log.all()[s.seq-1].Flow == nil {
				t.Errorf("%d %s: sighting %+v", n, c.what, s)
			}
		}
		if c.status == 403 && c.told != "" && !strings.Contains(reason, "the secret ") && !strings.Contains(c.what, "Host") && !strings.Contains(c.what, "absolute") {
			t.Errorf("%d %s: %s", n, c.what, reason)
		}
	}
	for _, q := range w.zone.questions() {
		if strings.Contains(q, "wild") {
			t.Errorf("the name was looked up: %s", q)
		}
	}
	w.checkRecord()
}

// TestSteeringStreams: :authority differs from the connection's name.
func TestSteeringStreams(t *testing.T) {
	w := newKeyWorld(t, nil)
	fields := func(authority string, more ...string) []string {
		return append([]string{":method", "GET", ":scheme", "https", ":authority", authority, ":path", "/"}, more...)
	}
	for n, c := range []struct {
		fields []string
		status string
		value  bool
	}{
		{fields("a.example", "x-api-key", apiHolder), "200", true},
		{fields("a.example"), "200", true},
		{fields("b.example", "x-api-key", apiHolder), "403", false},
		{fields("a.example", "host", "b.example"), "", false},
		{fields("a.example", "x-api-key", apiHolder, "x-api-key", "own"), "403", false},
		{fields("a.example", "x_api_key", "own"), "403", false},
		{fields("a.example", "authorization", "Bearer own"), "403", false},
		{fields("a.example", "proxy-authorization", "Bearer own"), "403", false},
		{fields("a.example", "cookie", "a=own", "cookie", "b=own"), "200", true},
		{fields("a.example", "x-note", gitValue), "403", false},
	} {
		if got := w.frame(c.fields); got != c.status {
			t.Errorf("%d: %q, want %q", n, got, c.status)
		}
		all := strings.Join(w.seen(), "\n")
		if c.value != strings.Contains(all, "X-Api-Key: "+apiValue+"\n") || strings.Contains(all, "own") || strings.Contains(all, gitValue) {
			t.Errorf("%d: the host received %q", n, all)
		}
	}
}

// TestHello has secrets in a client's data before the encryption begins.
func TestHello(t *testing.T) {
	w := newKeyWorld(t, nil)
	hidden := strings.ToLower(hex.EncodeToString([]byte(gitValue)))
	for name, c := range map[string]struct{ dialled, sni, alpn string }{
		"server name":         {"plain.example", hidden + ".plain.example", ""},
		"the right name":      {hidden + ".wild.example", hidden + ".wild.example", ""},
		"over labels":         {hidden[:20] + "." + hidden[20:] + ".wild.example", hidden[:20] + "." + hidden[20:] + ".wild.example", ""},
		"a protocol":          {"plain.example", "plain.example", gitValue},
		"a protocol, opened":  {"b.example", "b.example", apiHolder},
		"a protocol, to home": {"a.example", "a.example", apiHolder},
	} {
		_, err := w.handshake(c.dialled, c.sni, func(cfg *tls.Config) {
			w.trust(cfg)
			if c.alpn != "" {
				cfg.NextProtos = []string{c.alpn}
			}
		})
		told := w.keys.sightings()
		if err == nil || len(told) != 1 {
			t.Errorf("%s: %v, sightings %v", name, err, told)
			continue
		}
		ev := w.log.all()[told[0].seq-1]
		if ev.Flow == nil || ev.Flow.State != audit.FlowDeny || told[0].host != c.dialled {
			t.Errorf("%s: sightings %v, recorded %+v", name, told, ev.Flow)
		}
	}
	if q := w.zone.questions(); len(q) > 0 {
		t.Errorf("asked for %q", q)
	}
	w.checkRecord()
}

// TestBody sends secrets in bodies, split at each offset into two chunks, or byte by byte. The host must never receive
// all of one, and allowed ones must pass unchanged.
func TestBody(t *testing.T) {
	w := newKeyWorld(t, nil)
	for _, change := range [][]func(*http.Transport){nil, {withH2}} {
		for _, c := range []struct {
			host, text, whole string
			passes            bool
		}{
			{"b.example", `{"a":"` + gitValue + `","b":1}`, gitValue, false},
			{"b.example", `{"a":"` + apiHolder + `","b":1}`, apiHolder, false},
			{"b.example", "a=" + encode64("x"+gitValue+"xx") + "&b", encode64("x" + gitValue + "xx")[4:30], false},
			{"b.example", "a=" + url.QueryEscape(gitValue[:8]) + "\n" + gitValue[8:], gitValue[8:], false}, // on two lines
			{"a.example", "[" + apiHolder + "]", "", true},
			{"git.example", "token=" + gitValue + "&x=1", "", true},
			{"git.example", "token=" + gitValue + "&x=" + apiHolder, apiHolder, false},
			{"b.example", "nothing of that kind, but " + gitValue[:len(gitValue)-1] + "!", "", true},
			{"b.example", gitValue[:len(gitValue)-1], "", true},
		} {
			client := w.client(c.host, change...)
			splits := []int{-1}
			for at := 0; at <= len(c.text); at += 3 {
				splits = append(splits, at)
			}
			for _, at := range splits {
				resp, err := client.Post("https://"+c.host+"/", "text/plain", chunks(c.text, at))
				seen := strings.Join(w.seen(), "\n")
				if c.passes {
					if err != nil || resp.StatusCode != 200 || !strings.HasSuffix(seen, "\n\n"+c.text) {
						t.Fatalf("%s %q at %d: %v %v, the host received %q", c.host, c.text, at, resp, err, seen)
					}
					hear(resp.Body)
					w.nextHTTP()
					continue
				}
				if strings.Contains(seen, c.whole) {
					t.Fatalf("%q at %d: the host received %q", c.text, at, seen)
				}
				if err != nil {
					t.Fatalf("%q at %d: %v", c.text, at, err)
				}
				if reason := w.refusalOf(resp); resp.StatusCode != 403 || !strings.Contains(reason, "is in the request (body)") {
					t.Fatalf("%q at %d: %d %s", c.text, at, resp.StatusCode, reason)
				}
				resp.Body.Close()
				if ev := w.nextHTTP(); ev.Verdict != audit.Deny {
					t.Fatalf("%+v", ev)
				}
				if !slices.ContainsFunc(w.keys.sightings(), func(s sighting) bool { return s.host == c.host && s.where == "body" }) {
					t.Fatalf("%q at %d: not reported", c.text, at)
				}
			}
		}
	}
	w.checkRecord()
}

// chunks returns a body in two pieces; at -1 every byte is one.
func chunks(text string, at int) io.Reader {
	r, w := io.Pipe()
	go func() {
		defer w.Close()
		if at >= 0 {
			io.WriteString(w, text[:at])
			io.WriteString(w, text[at:])
			return
		}
		for i := range len(text) {
			if _, err := io.WriteString(w, text[i:i+1]); err != nil {
				return
			}
		}
	}()
	return r
}

// TestBodyStreams: a body and a response flow concurrently, except for what is held back.
func TestBodyStreams(t *testing.T) {
	w := newKeyWorld(t, nil)
	h := w.newHostAt(newAddr(), w.ca.leaf(t, "b.example"), 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.(http.Flusher).Flush()
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			fmt.Fprintf(rw, "<%s>", buf[:n])
			rw.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	}))
	w.zone.set("b.example", h.addr)
	r, wr := io.Pipe()
	req, _ := http.NewRequestWithContext(context.Background(), "POST", "https://b.example/", r)
	resp, err := w.client("b.example", withH2).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for _, word := range []string{"one;", "two;", "three;"} {
		io.WriteString(wr, word)
		if n, err := io.ReadAtLeast(resp.Body, buf, len(word)+2); err != nil || string(buf[:n]) != "<"+word+">" {
			t.Fatalf("%q %v", buf[:n], err)
		}
	}
	go io.WriteString(wr, "x"+gitValue+"y, more") // after the response has begun: only its end can report it
	if rest, err := io.ReadAll(resp.Body); err == nil || strings.Contains(string(rest), gitValue) {
		t.Errorf("%q %v", rest, err)
	}
	if ev := w.http(1); ev.Verdict != audit.Deny || ev.Status != 200 || !strings.Contains(ev.Reason, "the secret git is in the request (body)") {
		t.Errorf("%+v", ev)
	}
}
