package run

import (
	"os"
	"strings"
	"testing"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
)

// TestOwnVariables: a variable that Custody sets in each step cannot be given.
func TestOwnVariables(t *testing.T) {
	policy, err := netpolicy.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	j := &Job{policy: policy}
	for _, kv := range j.environ(Console{Window: new(channel.Winsize), Term: "xterm"}) {
		name, _, _ := strings.Cut(kv, "=")
		if _, err := project.ParseVariables([]string{name + "=x"}, os.LookupEnv); err == nil {
			t.Errorf("%s can be given", name)
		}
	}
}
