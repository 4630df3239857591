package gateway

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// mirror is a host that responds with its credential, in the form that the request's path names.
func mirror(rw http.ResponseWriter, r *http.Request) {
	value := apiValue
	text := `{"you sent":"` + value + `","and":1}`
	header := rw.Header()
	kind, arg, _ := strings.Cut(r.URL.Path[1:], "/")
	switch kind {
	case "split":
		at, _ := strconv.Atoi(arg)
		io.WriteString(rw, text[:at])
		rw.(http.Flusher).Flush()
		io.WriteString(rw, text[at:])
	case "bytes":
		for i := range len(text) {
			io.WriteString(rw, text[i:i+1])
			rw.(http.Flusher).Flush()
		}
	case "form":
		forms := map[string]string{"base64": encode64("x" + value), "hex": hex.EncodeToString([]byte(value)), "json": escaped(value)}
		io.WriteString(rw, "form: "+forms[arg])
	case "length":
		header.Set("Content-Length", strconv.Itoa(len(text)))
		header.Set("ETag", `"1"`)
		io.WriteString(rw, text)
	case "header":
		header.Set("X-Sent", value)
		header.Set("Location", "https://b.example/?key="+value)
		header["X-"+value] = []string{"1"}
		rw.WriteHeader(http.StatusFound)
	case "trailer":
		header.Set("Trailer", "X-End")
		io.WriteString(rw, "body")
		header.Set("X-End", value)
	case "hints":
		header.Set("Link", "</"+value+">; rel=preload")
		rw.WriteHeader(http.StatusEarlyHints)
		header.Del("Link")
		io.WriteString(rw, "after")
	case "part":
		header.Set("Content-Range", "bytes 0-9/100")
		rw.WriteHeader(http.StatusPartialContent)
		io.WriteString(rw, value[:10])
	case "none":
		header.Set("Content-Encoding", "gzip")
		status, _ := strconv.Atoi(arg)
		rw.WriteHeader(status)
	case "encoded":
		header.Set("Content-Encoding", arg)
		rw.Write(encodeAs(arg, text))
	case "lie":
		header.Set("Content-Encoding", arg)
		io.WriteString(rw, text)
	case "cut":
		header.Set("Content-Encoding", "gzip")
		b := encodeAs("gzip", strings.Repeat("much text, and ", 10000)+text)
		rw.Write(b[:len(b)-20])
	case "echo":
		fmt.Fprintf(rw, "%q %q %s", r.Header["Accept-Encoding"], r.Header["Range"], text)
	}
}

// escaped writes every letter as a JSON escape.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

func encodeAs(coding, text string) []byte {
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip", "x-gzip", "GZIP":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "identity":
		return []byte(text)
	default:
		w, _ = flate.NewWriter(&b, 1)
	}
	io.WriteString(w, text)
	w.Close()
	return b.Bytes()
}

// TestReflection: a host sends the request back. The guest must not receive the credential.
func TestReflection(t *testing.T) {
	const whole = `{"you sent":"` + apiValue + `","and":1}`
	w := newKeyWorld(t, http.HandlerFunc(mirror))
	masked := `{"you sent":"[REDACTED:api:` + w.red.Tag([]byte(apiValue)) + `]","and":1}`
	type result struct {
		path   string
		status int
		body   string // empty: any
		count  int
	}
	cases := []result{
		{"/bytes", 200, masked, 1},
		{"/form/base64", 200, "form: e[REDACTED:api:", 1},
		{"/form/hex", 200, "form: [REDACTED:api:", 1},
		{"/form/json", 200, "form: [REDACTED:api:", 1},
		{"/length", 200, masked, 1},
		{"/header", 302, "", 3},
		{"/trailer", 200, "body", 0},
		{"/hints", 200, "after", 0},
		{"/part", 502, "withheld", 0},
		{"/none/204", 204, "", 0},
		{"/none/304", 304, "", 0},
		{"/encoded/gzip", 200, masked, 1},
		{"/encoded/x-gzip", 200, masked, 1},
		{"/encoded/GZIP", 200, masked, 1},
		{"/encoded/deflate", 200, masked, 1},
		{"/encoded/identity", 200, masked, 1},
		{"/encoded/br", 502, "withheld", 0},
		{"/encoded/zstd", 502, "withheld", 0},
		{"/encoded/gzip, gzip", 502, "withheld", 0},
		{"/lie/gzip", 502, "withheld", 0},
		{"/lie/deflate", 502, "withheld", 0},
		{"/lie/aes128gcm", 502, "withheld", 0},
		{"/echo", 200, `["identity"] [] ` + masked, 1},
	}
	for at := range len(whole) + 1 {
		cases = append(cases, result{fmt.Sprintf("/split/%d", at), 200, masked, 1})
	}
	for _, change := range [][]func(*http.Transport){nil, {withH2}} {
		for _, host := range []string{"a.example", "masked.example"} {
			client := w.client(host, change...)
			for _, c := range cases {
				req, _ := http.NewRequest("GET", "https://"+host+strings.ReplaceAll(c.path, " ", "%20"), nil)
				req.Header.Set("Accept-Encoding", "br, gzip")
				req.Header.Set("Range", "bytes=0-9")
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(host, c, err)
				}
				body, err := io.ReadAll(resp.Body)
				all := fmt.Sprint(resp.Header, resp.Trailer, string(body))
				if err != nil || resp.StatusCode != c.status || !strings.Contains(string(body), c.body) || strings.Contains(strings.ToLower(all), strings.ToLower(apiValue)) {
					t.Errorf("%s%s: %d %v %s", host, c.path, resp.StatusCode, err, all)
				}
				if strings.HasPrefix(c.body, "{") && string(body) != c.body {
					t.Errorf("%s%s: %q", host, c.path, body)
				}
				if n := resp.ContentLength; n >= 0 && int(n) != len(body) {
					t.Errorf("%s%s: a length of %d", host, c.path, n)
				}
				count := c.count
				if c.path == "/trailer" && change != nil {
					count = 1
				}
				if ev := w.nextHTTP(); ev.Redacted != count || c.status == 502 && (ev.Status != 502 || !strings.Contains(ev.Reason, "withheld")) {
					t.Errorf("%s%s: %+v", host, c.path, ev)
				}
			}
			resp, err := client.Get("https://" + host + "/cut")
			if err == nil {
				_, err = io.ReadAll(resp.Body)
			}
			if err == nil {
				t.Errorf("%s: an incomplete encoded answer ended without an error", host)
			}
			w.nextHTTP()
			resp, err = client.Head("https://" + host + "/length")
			if err != nil || resp.ContentLength != int64(len(whole)) || resp.Header.Get("ETag") == "" {
				t.Errorf("HEAD: %+v %v", resp, err)
			}
			w.nextHTTP()
		}
		resp, err := w.client("raw.example", change...).Get("https://raw.example/length")
		if err != nil || hear(resp.Body) != whole || resp.ContentLength != int64(len(whole)) {
			t.Errorf("a response without masking: %+v %v", resp, err)
		}
		w.nextHTTP()
	}
	w.checkRecord()
}

// TestReflectionClear has masked responses without TLS, and for an HTTP/1.0 client.
func TestReflectionClear(t *testing.T) {
	w := newKeyWorld(t, http.HandlerFunc(mirror))
	answer := w.say("masked.example", 80, "GET /length HTTP/1.0\r\nHost: masked.example\r\n\r\n")
	if !strings.Contains(answer, "[REDACTED:api:") || strings.Contains(answer, apiValue) || strings.Contains(answer, "Content-Length") {
		t.Errorf("%q", answer)
	}
}

// TestMaskedStream: a masked and decoded stream arrives as it is sent.
func TestMaskedStream(t *testing.T) {
	for _, coding := range []string{"", "gzip"} {
		next := make(chan struct{})
		w := newKeyWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			var out io.Writer = rw
			flush := func() { rw.(http.Flusher).Flush() }
			if coding != "" {
				z := gzip.NewWriter(rw)
				rw.Header().Set("Content-Encoding", coding)
				out, flush = z, func() { z.Flush(); rw.(http.Flusher).Flush() }
			}
			for i := range 3 {
				fmt.Fprintf(out, "data: {\"n\":%d, \"v\":%q}\n\n", i, apiValue)
				flush()
				<-next
			}
		}))
		resp, err := w.client("a.example").Get("https://a.example/")
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(resp.Body)
		for i := range 3 {
			line, err := r.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, fmt.Sprintf(`data: {"n":%d, "v":"[REDACTED:api:`, i)) {
				t.Fatalf("%q: %q %v", coding, line, err)
			}
			next <- struct{}{}
			r.ReadString('\n')
		}
	}
}

// TestReflectionCertificate: a host's certificate contains the value, and the error with it is sent to the guest.
func TestReflectionCertificate(t *testing.T) {
	w := newKeyWorld(t, nil)
	h := w.newHostAt(newAddr(), w.ca.leaf(t, apiValue+".example"), 443, nil)
	w.zone.set("a.example", h.addr)
	resp, err := w.client("a.example").Get("https://a.example/")
	if err != nil {
		t.Fatal(err)
	}
	if reason := w.refusalOf(resp); resp.StatusCode != 502 || strings.Contains(reason, apiValue) || !strings.Contains(reason, "[REDACTED:api:") {
		t.Errorf("%d %s", resp.StatusCode, reason)
	}
}
