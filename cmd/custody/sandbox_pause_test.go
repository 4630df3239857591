package main

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/internal/browser"
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

// TestSandboxPause: a user pauses a sandbox, the service starts again, the sandbox continues, and is forked. A client that follows the output of a process
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
	forks = append(forks, forkedOnce(caller{t, s.page(), s.admin.newToken("program", string(access.Operator))}, box))
	var runs []string
	for _, id := range append(forks, box) {
		i := s.described(id)
		if want := map[bool]int{true: 4, false: 1}[id == box]; i.State != "live" || len(i.Runs) != want || i.Runs[0] != id || (i.Metadata["task"] == "fork") != (id != box) {
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
			if slices.Contains(runs[len(forks):], run) {
				op = "resume of "
			}
			s.admin.contains(s.admin.custody("timeline", run).stdout, op+"r-")
		}
	}
}

// forkedOnce forks a sandbox with requests that are repeated, while the first is carried out and after it, and returns the only fork.
func forkedOnce(c caller, box string) string {
	c.Helper()
	type answer struct{ Sandboxes []client.Sandbox }
	request := client.ForkRequest{Count: 1, Metadata: map[string]string{"task": "fork"}}
	var all [3]answer
	var work sync.WaitGroup
	for i := range all[:2] {
		work.Go(func() {
			status, text := c.do("POST", "/sandboxes/"+box+"/fork", request, "Idempotency-Key", "once")
			if err := json.Unmarshal(text, &all[i]); err != nil || status != http.StatusCreated {
				c.Errorf("%d: %.1000s", status, text)
			}
		})
	}
	work.Wait()
	c.ask(http.StatusCreated, "POST", "/sandboxes/"+box+"/fork", request, &all[2], "Idempotency-Key", "once")
	for _, a := range all {
		if len(a.Sandboxes) != 1 || a.Sandboxes[0].ID != all[0].Sandboxes[0].ID || a.Sandboxes[0].State != "live" {
			c.Fatalf("the forks are %+v", all)
		}
	}
	request.Count = 2
	c.ask(http.StatusConflict, "POST", "/sandboxes/"+box+"/fork", request, nil, "Idempotency-Key", "once")
	return all[0].Sandboxes[0].ID
}

// TestBrowserSandboxPause: operators pause, resume and fork a sandbox on the page; viewers see that it is paused.
func TestBrowserSandboxPause(t *testing.T) {
	t.Parallel()
	s := newPausable(t)
	c := caller{t, s.page(), s.admin.newToken("op", string(access.Operator))}
	var box client.Sandbox
	c.ask(http.StatusCreated, "POST", "/sandboxes", client.SandboxRequest{}, &box)
	c.ask(http.StatusCreated, "POST", "/sandboxes/"+box.ID+"/processes", client.ProcessRequest{Shell: counter}, nil)
	p := loggedIn(t, c.base, c.token)
	visit(p, spot{"sandboxes", "#/sandboxes"})
	press := func(what, sure string) {
		p.ClickOn(labelled(what + " " + box.ID))
		p.ClickWith("button", sure)
	}
	p.WaitTextIn("main", "1 live, 0 queued, 0 paused")
	press("Pause", "Sure? Its connections end")
	p.WaitTextIn("main", box.ID+" is paused. Its 1 process continues when it is used.", "0 live, 0 queued, 1 paused", "iB")
	accessible(t, p, "a paused sandbox")
	viewer := loggedIn(t, c.base, s.admin.newToken("look", string(access.Viewer)))
	visit(viewer, spot{"sandboxes", "#/sandboxes"})
	viewer.WaitTextIn("main", box.ID, "1 paused")
	if n := browser.Eval[int](viewer, `[...document.querySelectorAll("main button")].filter(e => /pause|resume|fork/i.test(e.innerText + e.ariaLabel)).length`); n != 0 {
		t.Errorf("a viewer has %d buttons", n)
	}
	press("Resume", "Sure? Its processes continue")
	p.WaitTextIn("main", box.ID+" is live in another run.", "latest of 2 runs", "1 live, 0 queued, 0 paused")
	browser.Eval[bool](p, `(() => { const s = [...document.querySelectorAll("label")].find(l => l.innerText.startsWith("Fork into")).querySelector("select"); s.value = "2"; s.dispatchEvent(new Event("change", {bubbles: true})); return true; })()`)
	press("Fork", "Sure? It makes 2 sandboxes")
	p.WaitTextIn("main", box.ID+" was forked into r-", "3 live, 0 queued, 0 paused")
	for _, page := range []*browser.Page{p, viewer} {
		if problems := page.Problems(); len(problems) > 0 {
			t.Errorf("the browser has problems: %.2000q", problems)
		}
	}
}
