package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
)

// newPausable starts a service with sandboxes in virtual machines, at an address that stays, for an ordinary user.
func newPausable(t *testing.T) *served {
	t.Helper()
	admin := newDoor(t)
	admin.asks = true
	s := serveFor(t, admin, publicDir(t))
	s.listen = strings.Trim(strings.TrimPrefix(s.page(), "http://"), "/")
	s.user.env = append(s.user.env, "CUSTODY_URL=http://"+s.listen, "CUSTODY_TOKEN="+admin.newToken("someone", string(access.Operator)))
	return s
}

// described returns the description of a sandbox.
func (s *served) described(id string) client.Sandbox {
	s.user.Helper()
	list := decode[client.Sandbox](s.user, s.user.must(0, "ps", "--json").stdout)
	i := slices.IndexFunc(list, func(one client.Sandbox) bool { return one.ID == id })
	if i < 0 {
		s.user.Fatalf("there is no sandbox %s: %+v", id, list)
	}
	return list[i]
}

// counter is a script that counts.
const counter = "i=0; while :; do echo $((i+=1)); sleep 0.05; done"

// countedTo checks that the lines of a counter's output are all there, and returns their number.
func countedTo(t *testing.T, out string) int {
	t.Helper()
	lines := strings.Split(out, "\n")
	lines = lines[:len(lines)-1]
	for i, line := range lines {
		if line != strconv.Itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	return len(lines)
}

// TestSandboxPause: a user pauses a sandbox, the service starts again, the sandbox continues, and is forked. Whoever follows the output of a process
// gets all of it, and each run has a record of its own.
func TestSandboxPause(t *testing.T) {
	t.Parallel()
	s := newPausable(t)
	user := s.user
	box := strings.TrimSpace(user.must(0, "run", "-q", "-d", "--", "sh", "-c", counter).stdout)
	logs := user.command("logs", "-f", box)
	var out screen
	logs.Stdout, logs.Stderr = &out, os.Stderr
	user.start(logs)
	out.await(t, "\n20\n")
	user.contains(user.must(0, "sandbox", "pause", box).stderr, "sandbox "+box+" is paused (", "its processes (1) continue when it is used")
	user.must(0, "sandbox", "pause", box)
	user.contains(user.must(0, "ps").stdout, "paused for ")
	if i := s.described(box); i.State != "paused" || i.Paused == nil || i.StoredBytes == 0 || i.FilesOnly != "" || len(i.Runs) != 1 {
		t.Errorf("the paused sandbox: %+v", i)
	}
	s.stop()
	s.start()
	user.contains(user.must(0, "ps").stdout, "paused for ")
	before := countedTo(t, out.String())
	user.contains(user.must(0, "sandbox", "resume", box).stderr, "sandbox "+box+" is live in run r-", "processes that run: 1")
	user.must(0, "sandbox", "resume", box)
	out.await(t, "\n"+strconv.Itoa(before+40)+"\n")
	forks := strings.Fields(user.must(0, "sandbox", "fork", "-n", "3", "-m", "task=fork", box).stdout)
	if len(forks) != 3 || slices.Contains(forks, box) {
		t.Fatalf("the forks are %q", forks)
	}
	reached := countedTo(t, out.String())
	for i, fork := range forks {
		user.must(0, "exec", fork, "--", "sh", "-c", "echo "+strconv.Itoa(i)+" >/root/me; touch /root/only"+strconv.Itoa(i))
	}
	for i, fork := range forks {
		if got := user.must(0, "exec", fork, "--", "sh", "-c", "cat /root/me; ls /root/only*").stdout; got != strconv.Itoa(i)+"\n/root/only"+strconv.Itoa(i)+"\n" {
			t.Errorf("the files of fork %d: %q", i, got)
		}
		eventually(t, "counted in the fork", func() bool {
			return countedTo(t, user.must(0, "logs", fork, "p1").stdout) > reached+20
		})
	}
	out.await(t, "\n"+strconv.Itoa(reached+40)+"\n")
	var runs []string
	for _, id := range append(forks, box) {
		i := s.described(id)
		if want := map[bool]int{true: 3, false: 1}[id == box]; i.State != "live" || len(i.Runs) != want || i.Runs[0] != id || (i.Metadata["task"] == "fork") != (id != box) {
			t.Errorf("%+v", i)
		}
		runs = append(runs, i.Runs...)
		user.must(0, "destroy", id)
	}
	logs.Wait()
	countedTo(t, out.String())
	user.contains(user.must(exitFailed, "sandbox", "pause", box).stderr, "has ended", "hint: ")
	user.contains(user.must(exitFailed, "sandbox", "resume", "r-unknown").stderr, "hint: custody ps lists the sandboxes")
	for _, run := range runs {
		s.admin.verified(run)
		if run != box {
			op := "fork of "
			if slices.Contains(runs[3:], run) {
				op = "resume of "
			}
			s.admin.contains(s.admin.custody("timeline", run).stdout, op+"r-")
		}
	}
}
