package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestLinked: no program that is delivered has a test's server or helper in it. A dependency may import package testing.
func TestLinked(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".", "../custody-client", "../custody-guest").Output()
	if err != nil {
		t.Fatal(err)
	}
	forTests := regexp.MustCompile(`^net/http/httptest$|^testing/|/custody/.*test$`)
	for path := range strings.Lines(string(out)) {
		if path = strings.TrimSpace(path); forTests.MatchString(path) {
			t.Errorf("%s is linked", path)
		}
	}
}
