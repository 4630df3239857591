package main

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
)

// TestPortsTLS: HTTP/2 with TLS to a port of a sandbox: bodies, streams, and the end of one whose token is removed, beside others on the same
// connection. A WebSocket is HTTP/1.1 with TLS.
func TestPortsTLS(t *testing.T) {
	t.Parallel()
	c, w := newSecureWeb(t)
	box := w.start(t, c)
	at := "8080-" + box.ID + ".sandboxes.localhost"
	token := w.admin.newToken("web", "operator")
	bearer := []string{"Authorization", "Bearer " + token}

	res := w.do(t, "GET", at, "/a?b=c", "", bearer...)
	text := w.read(t, res)
	if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK || !strings.Contains(text, `"/a?b=c"`) || !strings.Contains(text, `["X-Forwarded-Proto", "https"]`) || strings.Contains(text, "cst_") {
		t.Errorf("%s %s: %s", res.Proto, res.Status, text)
	}
	want := strings.Repeat("0123456789", 200_000)
	if got := w.read(t, w.do(t, "POST", at, "/", want, bearer...)); got != want {
		t.Errorf("%d bytes came back", len(got))
	}

	removed := w.do(t, "GET", at, "/stream", "", "Custody-Token", w.admin.newToken("removed", "operator"))
	stays := w.do(t, "GET", at, "/stream", "", bearer...)
	lines := bufio.NewReader(stays.Body)
	for _, r := range []io.Reader{removed.Body, lines} {
		if _, err := io.ReadFull(r, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
	w.admin.must(0, "token", "rm", "removed")
	if rest, err := io.ReadAll(removed.Body); err == nil || len(rest) > 0 {
		t.Errorf("the answer ends with %q as if it were whole", rest)
	}
	w.do(t, "GET", at, "/go", "", bearer...)
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "two\n" || stays.ProtoMajor != 2 {
		t.Errorf("the other answer ends with %q, %v", rest, err)
	}
	res = w.do(t, "GET", at, "/garbage", "", bearer...)
	if text := w.read(t, res); res.StatusCode != http.StatusBadGateway || !strings.Contains(text, "sent no answer in HTTP") {
		t.Errorf("%s: %s", res.Status, text)
	}
	if _, err := w.http.Get("https://" + at + "/"); err != nil {
		t.Error(err)
	}
	w.secureSocket(t, at, token)
	tunnel, err := box.Dial(t.Context(), 8080)
	check(t, err)
	check(t, tunnel.Close())
	check(t, box.Destroy(t.Context()))
	w.admin.verified(box.ID)
}

// secureSocket sends a message over a WebSocket with TLS.
func (w *web) secureSocket(t *testing.T, at, token string) {
	t.Helper()
	config, err := websocket.NewConfig("wss://"+at+"/socket", "https://"+at)
	check(t, err)
	config.Header.Set("Authorization", "Bearer "+token)
	conn, err := w.dialTLS(t.Context(), at)
	check(t, err)
	ws, err := websocket.NewClient(config, conn)
	check(t, err)
	defer ws.Close()
	var got string
	check(t, websocket.Message.Send(ws, "hello"))
	if err := websocket.Message.Receive(ws, &got); err != nil || got != "hello" {
		t.Errorf("%q came back: %v", got, err)
	}
}
