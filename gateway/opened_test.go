package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

func openedWorld(t testing.TB, handler http.Handler, change ...func(*Config)) (*world, *host) {
	t.Helper()
	w := newWorld(t, []netpolicy.Rule{rule("a.example", withHTTP([]string{"GET", "POST", "HEAD"}, []string{"/v1/*", "/"}))}, change...)
	return w, w.newHost("a.example", 443, handler)
}

func TestOpened(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		w, h := openedWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			rw.Header().Set("Trailer", "X-End")
			fmt.Fprintf(rw, "%s %s %s %d", r.Proto, r.Host, r.RequestURI, len(b))
			rw.Header().Set("X-End", "over")
		}))
		client := w.client("a.example")
		if version == "HTTP/2.0" {
			client = w.client("a.example", withH2)
		}
		resp, err := client.Post("https://a.example/v1/messages?beta=true", "text/plain", strings.NewReader("question"))
		if err != nil {
			t.Fatal(version, err)
		}
		if got := hear(resp.Body); got != version+" a.example /v1/messages?beta=true 8" || resp.Proto != version {
			t.Errorf("%s: %q over %s", version, got, resp.Proto)
		}
		if version == "HTTP/2.0" && resp.Trailer.Get("X-End") != "over" {
			t.Errorf("trailers: %v", resp.Trailer)
		}
		if issuer := resp.TLS.PeerCertificates[0].Issuer.CommonName; issuer != "Custody sandbox r-test" {
			t.Errorf("certificate of %q", issuer)
		}
		ev := w.http(1)
		if ev.Proto != version || ev.Method != "POST" || ev.Host != "a.example" || ev.Path != "/v1/messages?beta=true" || ev.Status != 200 ||
			ev.BytesOut != 8 || ev.BytesIn == 0 || ev.Verdict != audit.Allow || ev.Flow != w.flow(audit.FlowOpen).ID {
			t.Errorf("%+v", ev)
		}
		for n, c := range []struct {
			method, path string
			reason       netpolicy.Reason
		}{
			{"DELETE", "/v1/messages", netpolicy.WrongMethod},
			{"GET", "/v2/messages", netpolicy.WrongPath},
			{"GET", "/v1/../v2", netpolicy.UnclearPath},
			{"GET", "/v1/%2e%2e/v2", netpolicy.UnclearPath},
			{"GET", "/v1//x", netpolicy.UnclearPath},
			{"GET", "/v1/x;y", netpolicy.UnclearPath},
			{"GET", "//b.example/v1/x", netpolicy.UnclearPath},
		} {
			req, _ := http.NewRequest(c.method, "https://a.example/", nil)
			req.URL.Opaque = "//a.example" + c.path // the client sends it unchanged
			if version == "HTTP/1.1" {
				req.URL.Opaque = "https://a.example" + c.path
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(version, c, err)
			}
			if reason := w.refusalOf(resp); reason != string(c.reason) || resp.StatusCode != 403 || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %v: %d %s", version, c, resp.StatusCode, reason)
			}
			resp.Body.Close()
			if ev := w.http(n + 2); ev.Verdict != audit.Deny || ev.Method != audit.Text(c.method) {
				t.Errorf("%s %v: %+v", version, c, ev)
			}
		}
		req, _ := http.NewRequest("POST", "https://a.example/v1/x", nil)
		req.Header.Set("X-HTTP-Method-Override", "DELETE")
		if resp, err := client.Do(req); err != nil || resp.StatusCode != 403 {
			t.Errorf("%s: override: %v %v", version, resp, err)
		}
		if h.hits.Load() != 1 {
			t.Errorf("%s: %d connections", version, h.hits.Load())
		}
	}
}

// TestOpenedScripts requests paths that are not in English.
func TestOpenedScripts(t *testing.T) {
	w, h := openedWorld(t, nil)
	for _, client := range []*http.Client{w.client("a.example"), w.client("a.example", withH2)} {
		for _, path := range []string{"/v1/caf%C3%A9.txt", "/v1/caf%c3%a9.txt", "/v1/%E6%96%87%E4%BB%B6/%F0%9F%93%84"} {
			req, _ := http.NewRequest("GET", "https://a.example/", nil)
			req.URL.Path, _ = url.PathUnescape(path)
			req.URL.RawPath = path
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("%s: %d", path, resp.StatusCode)
				continue
			}
			if saw := <-h.seen; saw != "GET "+path+" a.example" {
				t.Errorf("%s: the host received %q", path, saw)
			}
		}
	}
}

// TestOpenedHosts uses different names inside and outside of TLS.
func TestOpenedHosts(t *testing.T) {
	w, h := openedWorld(t, nil)
	for _, client := range []*http.Client{w.client("a.example"), w.client("a.example", withH2)} {
		for _, other := range []string{"b.example", "a.example.", "a.example:444", "xa.example", "a.example:"} {
			req, _ := http.NewRequest("GET", "https://a.example/", nil)
			req.Host = other
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(other, err)
			}
			if reason := w.refusalOf(resp); resp.StatusCode != 403 || !strings.Contains(reason, "not the destination") {
				t.Errorf("%s: %d %s", other, resp.StatusCode, reason)
			}
			resp.Body.Close()
		}
	}
	if h.hits.Load() != 0 {
		t.Errorf("%d connections", h.hits.Load())
	}
}

// TestOpenedFrames sends HTTP/2 requests that client libraries would not send.
func TestOpenedFrames(t *testing.T) {
	w, h := openedWorld(t, nil)
	good := func(change ...string) []string {
		f := []string{":method", "GET", ":scheme", "https", ":authority", "a.example", ":path", "/v1/x"}
		for i := 0; i < len(change); i += 2 {
			found := false
			for j := 0; j < len(f); j += 2 {
				if f[j] == change[i] {
					f[j+1], found = change[i+1], true
				}
			}
			if !found {
				f = append(f, change[i], change[i+1])
			}
		}
		return f
	}
	for name, c := range map[string]struct {
		fields []string
		status string // empty: the stream is reset
	}{
		"good":              {good(), "200"},
		"host agrees":       {good("host", "a.example"), "200"},
		"other host":        {good("host", "b.example"), ""},
		"two hosts":         {append(good("host", "a.example"), "host", "a.example"), ""},
		"two authorities":   {append(good(), ":authority", "b.example"), ""},
		"late pseudo":       {append(good("x", "y"), ":path", "/v1/y"), ""},
		"scheme http":       {good(":scheme", "http"), "400"},
		"scheme other":      {good(":scheme", "ftp"), ""},
		"connect":           {[]string{":method", "CONNECT", ":authority", "b.example:443"}, "400"},
		"extended connect":  {good(":method", "CONNECT", ":protocol", "websocket"), ""},
		"trace":             {good(":method", "TRACE"), "403"},
		"small method":      {good(":method", "get"), "400"},
		"space in method":   {good(":method", "GET /x"), "400"},
		"path star":         {good(":method", "GET", ":path", "*"), "400"},
		"path host":         {good(":path", "b.example/v1/x"), ""},
		"path absolute":     {good(":path", "https://b.example/v1/x"), ""},
		"path space":        {good(":path", "/v1/x y"), "400"},
		"path crlf":         {good(":path", "/v1/x HTTP/1.1\r\nHost: b.example\r\n\r\n"), ""},
		"empty path":        {good(":path", ""), ""},
		"crlf in a field":   {good("x", "a\r\nhost: b.example"), ""},
		"nul in a field":    {good("x", "a\x00b"), ""},
		"capitals":          {good("X-Y", "a"), ""},
		"te":                {good("te", "gzip"), "400"},
		"transfer-encoding": {good("transfer-encoding", "chunked"), "400"},
		"connection":        {good("connection", "close"), "400"},
		"upgrade":           {good("upgrade", "websocket"), "400"},
		"length":            {good("content-length", "5"), "400"},
		"two lengths":       {append(good("content-length", "0"), "content-length", "5"), "400"},
		"no authority":      {[]string{":method", "GET", ":scheme", "https", ":path", "/v1/x"}, "403"},
		"authority user":    {good(":authority", "u@a.example"), ""},
		"forwarded host":    {good("x-forwarded-host", "b.example"), "403"},
	} {
		if got := w.frame(c.fields); got != c.status {
			t.Errorf("%s: %q, want %q", name, got, c.status)
		}
	}
	for len(h.seen) > 0 {
		if r := <-h.seen; r != "GET /v1/x a.example" {
			t.Errorf("the host received %q", r)
		}
	}
	for _, reason := range []string{"authority host mismatch", "userinfo in authority", "bad connect"} {
		w.until("an event of a request that the library has rejected", func() bool { return strings.Contains(w.dump(), "not proper HTTP/2: "+reason) })
	}
}

// frame sends one HEADERS frame that ends its stream, and returns the response's status; empty if there is none.
func (w *world) frame(fields []string) string {
	w.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.cfg.Authority.PEM())
	c, err := w.handshake("a.example", "a.example", func(cfg *tls.Config) { cfg.RootCAs, cfg.NextProtos = roots, []string{"h2"} })
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		if err := enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			w.Fatal(err)
		}
	}
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			return ""
		}
		switch fr := fr.(type) {
		case *http2.MetaHeadersFrame:
			return fr.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return ""
		}
	}
}

// TestOpenedSmuggling repeats some of TestSmuggling inside TLS.
func TestOpenedSmuggling(t *testing.T) {
	w, h := openedWorld(t, nil)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.cfg.Authority.PEM())
	for _, raw := range []string{
		"\r\nGET /v1/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET /v1/x HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
		"POST /v1/x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET /v1/x HTTP/1.1\nHost: a.example\n\n",
		"GET https://b.example/v1/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET http://a.example/v1/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET /v1/x HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
	} {
		c, err := w.handshake("a.example", "a.example", func(cfg *tls.Config) { cfg.RootCAs = roots })
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, raw)
		buf := make([]byte, 13)
		if _, err := io.ReadFull(c, buf); err != nil || !strings.HasPrefix(string(buf), "HTTP/1.1 4") {
			t.Errorf("%q: %q %v", raw, buf, err)
		}
		c.Close()
	}
	if h.hits.Load() != 0 {
		t.Errorf("%d connections", h.hits.Load())
	}
}

// TestOpenedCertificates: hosts have invalid certificates.
func TestOpenedCertificates(t *testing.T) {
	w, _ := openedWorld(t, nil)
	self := w.ca
	stranger := newCA(t)
	for name, cert := range map[string]*tls.Certificate{
		"other name": self.leaf(t, "b.example"),
		"expired":    self.leaf(t, "a.example", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"stranger":   stranger.leaf(t, "a.example"),
		"address":    self.leaf(t, "93.184.0.1"),
	} {
		addr := newAddr()
		h := w.newHostAt(addr, cert, 443, nil)
		w.zone.set("a.example", addr)
		for _, client := range []*http.Client{w.client("a.example"), w.client("a.example", withH2)} {
			resp, err := client.Get("https://a.example/v1/x")
			if err != nil {
				t.Fatal(name, err)
			}
			if reason := w.refusalOf(resp); resp.StatusCode != 502 || !strings.Contains(reason, "the certificate of a.example is not valid") {
				t.Errorf("%s: %d %s", name, resp.StatusCode, reason)
			}
		}
		if len(h.seen) > 0 {
			t.Errorf("%s: a request was sent", name)
		}
	}
	addr := newAddr()
	l, err := tls.Listen("tcp", addr.String()+":443", &tls.Config{Certificates: []tls.Certificate{*self.leaf(t, "a.example")}, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			c.Close()
		}
	}()
	w.zone.set("a.example", addr)
	if resp, err := w.client("a.example").Get("https://a.example/v1/x"); err != nil || resp.StatusCode != 502 {
		t.Errorf("TLS 1.1: %v %v", resp, err)
	}
}

// TestOpenedGuest: guests do not trust the authority, or use old TLS.
func TestOpenedGuest(t *testing.T) {
	w, h := openedWorld(t, nil)
	if _, err := w.handshake("a.example", "a.example"); err == nil {
		t.Error("a certificate of the authority was trusted without being set as trusted")
	}
	if f := w.flow(audit.FlowClose); !strings.Contains(f.Reason, "does its program trust the sandbox's authority?") {
		t.Errorf("%+v", f)
	}
	if _, err := w.handshake("a.example", "a.example", func(c *tls.Config) { c.InsecureSkipVerify, c.MaxVersion = true, tls.VersionTLS11 }); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
	// An ECH-like extension cannot hide a name from a gateway that opens the connection.
	raw := withExtension(rawHello(t, &tls.Config{ServerName: "a.example"}), extECH, []byte{0, 0, 1, 0, 1, 0, 0, 0, 0, 0})
	c := w.dial("a.example", 443)
	c.Write(raw)
	first := make([]byte, 6)
	if _, err := io.ReadFull(c, first); err != nil || first[0] != typeHandshake {
		t.Errorf("%x %v", first, err)
	}
	if h.hits.Load() != 0 {
		t.Errorf("%d connections", h.hits.Load())
	}
}

// TestOpenedStream: both directions of HTTP/2 flow concurrently.
func TestOpenedStream(t *testing.T) {
	w, _ := openedWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(200)
		rw.(http.Flusher).Flush()
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			if n > 0 {
				fmt.Fprintf(rw, "<%s>", buf[:n])
				rw.(http.Flusher).Flush()
			}
			if err != nil {
				return
			}
		}
	}))
	r, wr := io.Pipe()
	req, _ := http.NewRequest("POST", "https://a.example/v1/x", r)
	resp, err := w.client("a.example", withH2).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for _, word := range []string{"one", "two", "three"} {
		io.WriteString(wr, word)
		if n, err := resp.Body.Read(buf); err != nil || string(buf[:n]) != "<"+word+">" {
			t.Fatalf("%q %v", buf[:n], err)
		}
	}
	wr.Close()
	if rest := hear(resp.Body); rest != "" {
		t.Errorf("%q", rest)
	}
}

// TestAuthority verifies certificates of the authority.
func TestAuthority(t *testing.T) {
	a, err := NewAuthority("r-1", []string{"a.example", "*.b.example"})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(a.PEM())
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	for name, want := range map[string]bool{"a.example": true, "x.b.example": true, "x.y.b.example": true, "b.example": false, "c.example": false, "xa.example": false, "xb.example": false} {
		c, err := a.leaf(name)
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// Even if its key signed other names, the constraint would apply.
	for _, san := range []x509.Certificate{{DNSNames: []string{"c.example"}}, {IPAddresses: []net.IP{net.IPv4(1, 2, 3, 4)}}, {IPAddresses: []net.IP{net.ParseIP("2000::1")}}} {
		san.SerialNumber, san.NotBefore, san.NotAfter = serial(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, &san, a.cert, &a.leafKey.PublicKey, a.key)
		if err != nil {
			t.Fatal(err)
		}
		leaf, _ := x509.ParseCertificate(der)
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots}); err == nil {
			t.Errorf("%v %v is taken", leaf.DNSNames, leaf.IPAddresses)
		}
	}
	if c1, _ := a.leaf("a.example"); c1 != must(a.leaf("a.example")) {
		t.Error("a certificate was made twice")
	}
	for _, bad := range [][]string{nil, {"10.0.0.0/8"}, {"*"}, {""}, {"a.example", "1.2.3.4"}} {
		if _, err := NewAuthority("r", bad); err == nil {
			t.Errorf("%q", bad)
		}
	}
	if (*Authority)(nil).covers("a.example") {
		t.Error("a nil authority covers a name")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestNotCovered: a rule with http is added after the authority was made.
func TestNotCovered(t *testing.T) {
	w, _ := openedWorld(t, nil)
	h := w.newHost("late.example", 443, nil)
	w.live.Set(w.policy(rule("late.example", withHTTP(nil, nil))))
	if _, err := w.handshake("late.example", "late.example"); err == nil {
		t.Error("opened")
	}
	if f := w.lastDeny(); !strings.Contains(f.Reason, "does not cover") || h.hits.Load() != 0 {
		t.Errorf("%+v", f)
	}
}

// TestManyStreams sends many concurrent requests on one connection.
func TestManyStreams(t *testing.T) {
	w, _ := openedWorld(t, nil)
	client := w.client("a.example", withH2, func(t *http.Transport) { t.MaxConnsPerHost = 4 }) // not one for each request
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	errs := make(chan error, 300)
	for i := range cap(errs) {
		go func() {
			req, _ := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("https://a.example/v1/%d", i), nil)
			resp, err := client.Do(req)
			if err == nil {
				hear(resp.Body)
				if resp.StatusCode != 200 {
					err = fmt.Errorf("status %d", resp.StatusCode)
				}
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	w.http(300)
}

// TestTooManyRequests has more open requests than a sandbox may have.
func TestTooManyRequests(t *testing.T) {
	release := make(chan struct{})
	w, _ := openedWorld(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }), func(c *Config) { c.Limits.Exchanges = 2 })
	client := w.client("a.example", withH2)
	statuses := make(chan int, 3)
	for range 3 {
		go func() {
			resp, err := client.Get("https://a.example/v1/x")
			if err != nil {
				statuses <- 0
				return
			}
			resp.Body.Close()
			statuses <- resp.StatusCode
		}()
	}
	if s := <-statuses; s != 503 {
		t.Errorf("a request over the limit: status %d", s)
	}
	close(release)
	if a, b := <-statuses, <-statuses; a != 200 || b != 200 {
		t.Errorf("%d %d", a, b)
	}
}
