package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
)

// TestPauseGVisor: a sandbox whose isolation cannot be paused continues, and the error names the reason.
func TestPauseGVisor(t *testing.T) {
	r := newRig(t, fleet.Config{}, quota.Config{})
	s := r.create(fleet.Request{})
	p, err := s.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", "read line; echo got $line"}}, true)
	check(t, err)
	if err := s.Pause(t.Context()); !errors.Is(err, fleet.ErrConflict) || !strings.Contains(err.Error(), "of the isolation gvisor cannot be paused") {
		t.Errorf("the pause: %v", err)
	} else {
		t.Log(err)
	}
	_, err = p.Write(t.Context(), []byte("it\n"))
	check(t, err)
	if got := read(t, p, "stdout"); got != "got it\n" {
		t.Errorf("it prints %q", got)
	}
	if i := s.Info(); i.State != fleet.Live || len(i.Runs) != 1 {
		t.Errorf("%+v", i)
	}
}
