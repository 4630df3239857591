package access_test

import (
	"testing"

	"github.com/custody-project/custody/replay/access"
)

// TestPortHost: only the exact form names a port, so that all other hosts are refused.
func TestPortHost(t *testing.T) {
	c := access.Config{PortDomain: "sandboxes.example"}
	for host, want := range map[string]struct {
		port    int
		sandbox string
	}{
		"8080-r-1.sandboxes.example": {8080, "r-1"}, "65535-R-1.Sandboxes.example:8443": {65535, "r-1"}, "1-r.sandboxes.example": {1, "r"},
		"8080-r-1.sandboxes.example.": {}, "08080-r-1.sandboxes.example": {}, "+1-r.sandboxes.example": {}, "0-r.sandboxes.example": {}, "65536-r.sandboxes.example": {},
		"8080-.sandboxes.example": {}, "8080.sandboxes.example": {}, "r-1.sandboxes.example": {}, "8080-r.x.sandboxes.example": {}, "x.8080-r.sandboxes.example": {},
		"8080-rsandboxes.example": {}, "sandboxes.example": {}, "8080-r.other.example": {}, "": {}, "[::1]": {}, "8080-r/.sandboxes.example": {}, "-r.sandboxes.example": {},
	} {
		port, sandbox, ok := c.PortHost(host)
		if port != want.port || sandbox != want.sandbox || ok != (want.port > 0) {
			t.Errorf("%q: %d %q %v", host, port, sandbox, ok)
		}
	}
	if _, _, ok := (access.Config{}).PortHost("8080-r."); ok {
		t.Error("there is no domain, and a host is one of a port")
	}
}
