package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/custody-project/custody/client"
)

// TestPortBounds: a sandbox has at most 64 connections to its ports, of both kinds together. A removed token ends an answer that goes on. The
// sandbox of another tenant is answered as one that does not exist.
func TestPortBounds(t *testing.T) {
	t.Parallel()
	c, w := newWeb(t, "tenant: acme\nquotas: {tenants: {beta: {}}}\n")
	box := w.start(t, c)
	at := portHost(box.ID)
	token := w.admin.newToken("web", "operator")

	beta := strings.TrimSpace(w.admin.must(0, "token", "new", "beta", "--tenant", "beta", "--role", "operator").stdout)
	answers := map[string]string{}
	for _, id := range []string{box.ID, strings.Repeat("x", len(box.ID))} {
		res := w.do(t, "GET", portHost(id), "/", "", "Custody-Token", beta)
		answers[strings.ReplaceAll(w.read(t, res), id, "ID")] = res.Status
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("beta asks for %s: %s", id, res.Status)
		}
	}
	if len(answers) != 1 {
		t.Errorf("the answers differ: %v", answers)
	}

	res := w.do(t, "GET", at, "/stream", "", "Custody-Token", w.admin.newToken("removed", "operator"))
	lines := bufio.NewReader(res.Body)
	if first, err := lines.ReadString('\n'); err != nil || first != "one\n" {
		t.Errorf("%q, %v", first, err)
	}
	w.admin.must(0, "token", "rm", "removed")
	if rest, err := io.ReadAll(lines); err == nil || len(rest) > 0 {
		t.Errorf("the answer ends with %q as if it were whole", rest)
	}

	var open []net.Conn
	for range 63 {
		conn, err := box.Dial(t.Context(), 8080)
		check(t, err)
		defer conn.Close()
		open = append(open, conn)
	}
	last := w.do(t, "GET", at, "/stream", "", "Custody-Token", token)
	if _, err := io.ReadFull(last.Body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Dial(t.Context(), 8080); !client.IsStatus(err, http.StatusConflict) || !strings.Contains(err.Error(), "64 connections") {
		t.Errorf("one more tunnel: %v", err)
	}
	if res := w.do(t, "GET", at, "/", "", "Custody-Token", token); res.StatusCode != http.StatusConflict {
		t.Errorf("one more request: %s", res.Status)
	}
	check(t, open[0].Close())
	eventually(t, "a connection in place of one that was closed", func() bool {
		return w.do(t, "GET", at, "/", "", "Custody-Token", token).StatusCode == http.StatusOK
	})
}
