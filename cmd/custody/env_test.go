package main

import (
	"os"
	"strings"
	"testing"

	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
)

// TestOwnVariables: a variable that Custody sets in each step cannot be given.
func TestOwnVariables(t *testing.T) {
	t.Setenv("TERM", "xterm")
	policy, err := netpolicy.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	j := &job{cmd: runCmd{TTY: true}, record: &home.Run{ID: "r-1"}, policy: policy}
	for _, kv := range j.environ() {
		name, _, _ := strings.Cut(kv, "=")
		if _, err := project.ParseVariables([]string{name + "=x"}, os.LookupEnv); err == nil {
			t.Errorf("%s can be given", name)
		}
	}
}
