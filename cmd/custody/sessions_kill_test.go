//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// programs make concurrent calls, each of which has one command carried out in a sandbox.
type programs struct {
	*testing.T
	client *client.Client

	mu       sync.Mutex          // guards the fields below
	of       map[string][]string // the sandboxes of a session, in the order in which calls got them
	returned map[int]int         // number of answers, by call
	done     int                 // calls whose command was carried out
	failed   int                 // calls that were answered with an error
}

// got notes the sandbox of a call. It fails the test if the session has another one that lives.
func (c *programs) got(session, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.of[session]
	switch {
	case session == "" && slices.Contains(all, id):
		c.Errorf("two calls without a session have the sandbox %s", id)
	case slices.Contains(all, id):
		return
	case session == "":
		c.of[session] = append(all, id)
		return
	}
	for _, other := range all {
		if s, err := c.client.Sandbox(other).Info(c.Context()); err != nil || s.State != "ending" && s.State != "ended" {
			c.Errorf("the session %q gets the sandbox %s and has %s, which is %s: %v", session, id, other, s.State, err)
		}
	}
	c.of[session] = append(all, id)
}

// call has a command carried out that fails if it was carried out before, and notes the answer.
func (c *programs) call(n int, session string) {
	box, err := c.client.Create(c.Context(), client.SandboxRequest{Session: session})
	if err == nil {
		c.got(session, box.ID)
		err = c.command(n, box)
		if session == "" {
			c.destroy(box.ID)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned[n]++
	if err == nil {
		c.done++
		return
	}
	c.failed++
	if !errors.As(err, new(*client.Problem)) && !errors.Is(err, errEnded) {
		c.Errorf("call %d: %v", n, err)
	}
}

func (c *programs) destroy(id string) {
	if err := c.client.Sandbox(id).Destroy(c.Context()); err != nil {
		c.Errorf("destroy %s: %v", id, err)
	}
}

// sandboxes returns those of a session.
func (c *programs) sandboxes(session string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.of[session])
}

// errEnded is the answer to a call whose sandbox was killed when its command ran.
var errEnded = errors.New("the sandbox ended")

func (c *programs) command(n int, box *client.Box) error {
	p, err := box.Start(c.Context(), client.ProcessRequest{Shell: fmt.Sprintf("mkdir /tmp/call%d && sleep 0.3 && echo carried out", n)})
	if err != nil {
		return err
	}
	s, err := p.Wait(c.Context())
	switch {
	case err != nil:
		return err
	case s.ExitCode == nil || *s.ExitCode > 1:
		return fmt.Errorf("%w: %s %s", errEnded, s.Error, s.Signal)
	case *s.ExitCode == 1:
		c.Errorf("the command of call %d was carried out twice", n)
	}
	if out, err := io.ReadAll(p.Output(c.Context(), client.Stdout)); err != nil || string(out) != "carried out\n" {
		c.Errorf("call %d: %q, %v", n, out, err)
	}
	return nil
}

// killSandboxes kills workers and machines below a process at random, until ctx is done, and returns how many. It adds the processes that
// were there to seen.
func killSandboxes(ctx context.Context, host int, seen map[int]child) (killed int) {
	for ctx.Err() == nil {
		select {
		case <-time.After(time.Duration(rand.IntN(4000)) * time.Millisecond):
		case <-ctx.Done():
			return killed
		}
		var victims []int
		for _, c := range below(host) {
			seen[c.pid] = c
			if strings.HasPrefix(c.args, "custody custody-worker") || strings.Contains(c.args, "runsc-sandbox") {
				victims = append(victims, c.pid)
			}
		}
		if len(victims) > 0 && unix.Kill(victims[rand.IntN(len(victims))], unix.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// TestSessionsKilled: 200 concurrent calls with 50 session keys, and 50 without, while workers and machines are killed at random. Each call is
// answered once, its command is carried out at most once, a session has one sandbox at a time, and nothing is left.
func TestSessionsKilled(t *testing.T) {
	const keys, each, anonymous = 50, 4, 50
	s := newSeparated(t)
	s.stop()
	settings := filepath.Join(s.root.home, "host.yaml")
	text, err := os.ReadFile(settings)
	check(t, err)
	s.root.write(settings, string(text)+"quotas: {host: {sandboxes: 10}, queue: {wait: 30m}}\n")
	s.start()
	api, err := client.New(s.page(), s.admin.newToken("agents", string(access.Operator)))
	check(t, err)
	c := &programs{T: t, client: api, of: map[string][]string{}, returned: map[int]int{}}
	ctx, stop := context.WithCancel(t.Context())
	var killing, all sync.WaitGroup
	left, killed := map[int]child{}, 0
	killing.Go(func() { killed = killSandboxes(ctx, s.host.Process.Pid, left) })
	for group := range keys + anonymous {
		all.Go(func() { // calls of one session, or one without
			session, n := fmt.Sprint("session ", group), each
			if group >= keys {
				session, n = "", 1
			}
			var together sync.WaitGroup
			for i := range n {
				together.Go(func() { c.call(group*each+i, session) })
			}
			together.Wait()
			if session != "" {
				for _, id := range c.sandboxes(session) {
					c.destroy(id)
				}
			}
		})
	}
	all.Wait()
	stop()
	killing.Wait()
	t.Logf("%d calls were carried out, %d failed; %d processes were killed", c.done, c.failed, killed)
	for n, answers := range c.returned {
		if answers != 1 {
			t.Errorf("call %d has %d answers", n, answers)
		}
	}
	if len(c.returned) != keys*each+anonymous || len(c.of[""]) != anonymous || len(c.of) != keys+1 || c.done < 50 || killed < 5 {
		t.Errorf("%d answers, %d sandboxes without a session, %d sessions", len(c.returned), len(c.of[""]), len(c.of)-1)
	}
	for _, r := range s.admin.runs() {
		if r.Status != store.Sealed && r.Status != store.Interrupted {
			t.Errorf("the run %s is %s", r.ID, r.Status)
		}
		s.admin.verified(r.ID)
	}
	s.stop()
	s.host.Process.Signal(unix.SIGTERM)
	s.host.Wait()
	s.root.nothingLeft(left)
}
