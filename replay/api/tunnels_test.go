package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/custody-project/custody/replay/access"
)

// TestTunnelBounds: one principal has 512 connections to ports, all together 4096. One more is refused, and those of others go on.
func TestTunnelBounds(t *testing.T) {
	t.Parallel()
	h := &portsHandler{tunnels: turnstile{most: maxTunnels, each: maxTunnelsOf}}
	var leave []func()
	fill := func(name string, n int) {
		t.Helper()
		for range n {
			l, err := h.tunnels.enter("\x00"+name, "connections to ports")
			if err != nil {
				t.Fatalf("%s has %d connections: %v", name, len(leave), err)
			}
			leave = append(leave, l)
		}
	}
	refused := func(name string) {
		t.Helper()
		_, _, err := h.dial(&request{who: access.Principal{Name: name}}, nil, 8080, "http")
		var p *access.Problem
		if !errors.As(err, &p) || p.Status != http.StatusTooManyRequests || !strings.Contains(p.Detail, "connections to ports") || p.Hint == "" || p.After == 0 {
			t.Errorf("one more of %s: %v", name, err)
		}
	}
	for i := range 8 {
		name := fmt.Sprint("user ", i)
		fill(name, 511)
		fill(name, 1)
		refused(name)
	}
	refused("another user")
	leave[0]()
	fill("another user", 1)
	refused("user 0")
}
