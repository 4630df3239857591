package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

// TestPortStalls: a client that sends nothing of a body for a minute gets 408, and one that takes nothing of an answer is cut off. Headers beyond
// 64 KiB are no answer. Requests of others are answered meanwhile.
func TestPortStalls(t *testing.T) {
	t.Parallel()
	c, w := newWeb(t, "")
	box := w.start(t, c)
	at := portHost(box.ID)
	token := w.admin.newToken("stalls", "operator")
	bearer := []string{"Authorization", "Bearer " + token}
	res := w.do(t, "GET", at, "/headers", "", bearer...)
	if text := w.read(t, res); res.StatusCode != http.StatusBadGateway || !strings.Contains(text, "longer than 64 KiB") {
		t.Errorf("%s: %s", res.Status, text)
	}

	slow, err := w.dial(t.Context(), "tcp")
	check(t, err)
	defer slow.Close()
	fmt.Fprintf(slow, "POST / HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: 10\r\n\r\nhalf", at, token)
	deaf, err := w.dial(t.Context(), "tcp")
	check(t, err)
	defer deaf.Close()
	fmt.Fprintf(deaf, "GET /endless HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", at, token)

	other := append([]string{}, "Authorization", "Bearer "+w.admin.newToken("other", "operator"))
	if res := w.do(t, "GET", at, "/", "", other...); res.StatusCode != http.StatusOK {
		t.Errorf("another user: %s", res.Status)
	}
	answer, err := http.ReadResponse(bufio.NewReader(slow), nil)
	check(t, err)
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(text), "nothing of the request's body came for 1m0s") {
		t.Errorf("the slow client gets %s: %s, %v", answer.Status, text, err)
	}
	if rest, err := io.ReadAll(slow); len(rest) > 0 || err != nil {
		t.Errorf("its connection goes on with %q, %v", rest, err)
	}
	eventually(t, "the end of the answer that no one takes", func() bool {
		ended := 0
		for _, r := range w.admin.records(box.ID) {
			if c := r.Inbound; c != nil && c.Who == "stalls" && c.Op == audit.InboundClose {
				ended++
			}
		}
		return ended == 3
	})
	if res := w.do(t, "GET", at, "/", "", other...); res.StatusCode != http.StatusOK {
		t.Errorf("another user afterwards: %s", res.Status)
	}
	check(t, box.Destroy(t.Context()))
	w.admin.verified(box.ID)
}
