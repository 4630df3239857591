//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// TestSandboxPauseKilled kills custody serve or custody host while a sandbox is paused, continues or is forked. After the next start it is paused, and
// continues without a gap, or it has ended, as a live one does whose service is killed. Every record is closed and verifies, and nothing is left.
func TestSandboxPauseKilled(t *testing.T) {
	const rounds = 5
	s := separate(newDoor(t))
	s.stop()
	s.listen = strings.Trim(strings.TrimPrefix(s.page(), "http://"), "/")
	s.start()
	user := s.user
	user.env = append(user.env, "CUSTODY_URL=http://"+s.listen, "CUSTODY_TOKEN="+s.admin.newToken("someone", string(access.Operator)))
	left := map[int]child{}
	start := func() string {
		return strings.TrimSpace(user.must(0, "run", "-q", "-d", "--", "sh", "-c", counter).stdout)
	}
	state := func(box string) string {
		list := decode[client.Sandbox](user, user.must(0, "ps", "--json").stdout)
		for _, one := range list {
			if one.ID == box {
				return one.State
			}
		}
		return fmt.Sprintf("unknown in %+v", list)
	}
	operations := [][]string{{"sandbox", "pause"}, {"sandbox", "resume"}, {"sandbox", "fork", "-n", "2"}}
	box, survived, ended := start(), 0, 0
	for i := range rounds {
		operation := operations[i%len(operations)]
		if operation[1] == "resume" {
			user.must(0, "sandbox", "pause", box)
		}
		c := user.command(append(slices.Clone(operation), box)...)
		user.start(c)
		within := 6 * time.Second
		if operation[1] == "resume" {
			within = time.Second
		}
		time.Sleep(rand.N(within))
		for _, one := range append(below(s.host.Process.Pid), below(s.serve.Process.Pid)...) {
			left[one.pid] = one
		}
		if i%4 == 3 {
			s.host.Process.Kill()
			s.host.Wait()
			s.stop()
			s.startHost(filepath.Join(filepath.Dir(s.root.home), "host.sock"))
		} else {
			s.serve.Process.Kill()
			s.serve.Wait()
		}
		c.Process.Kill()
		c.Wait()
		s.start()
		if line := state(box); line != "paused" {
			ended++
			t.Logf("round %d, %q: %q", i, operation, line)
			box = start()
			continue
		}
		survived++
		user.must(0, "sandbox", "resume", box)
		whole := func() string {
			out := user.must(0, "logs", box, "p1").stdout
			return out[:strings.LastIndex(out, "\n")+1]
		}
		before := countedTo(t, whole())
		eventually(t, "counted after "+strconv.Itoa(i), func() bool { return countedTo(t, whole()) > before+10 })
	}
	t.Logf("%d sandboxes survived, %d ended", survived, ended)
	for _, line := range strings.Split(user.must(0, "ps").stdout, "\n") {
		if id, _, _ := strings.Cut(line, " "); strings.HasPrefix(id, "r-") {
			user.must(0, "destroy", id)
		}
	}
	for _, r := range s.admin.runs() {
		if r.Status != store.Sealed && r.Status != store.Interrupted {
			t.Errorf("the run %s is %s", r.ID, r.Status)
		}
		s.admin.verified(r.ID)
	}
	s.stop()
	s.host.Process.Signal(syscall.SIGTERM)
	s.host.Wait()
	s.root.nothingLeft(left)
	for _, pattern := range []string{filepath.Join(s.root.home, "paused", "*r-*"), filepath.Join(s.admin.home, "serve", "paused", "*")} {
		if found, err := filepath.Glob(pattern); err != nil || len(found) > 0 {
			t.Errorf("left over: %q, %v", found, err)
		}
	}
}
