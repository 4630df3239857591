package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
)

// TestSandboxWatch: changes of files are reported through the API, to a bounded number of clients, and the record has each watch.
func TestSandboxWatch(t *testing.T) {
	t.Parallel()
	c, s := newClient(t)
	usesWatches(t, c, s)
}

func usesWatches(t *testing.T, c *client.Client, s *served) {
	t.Helper()
	box, err := c.Create(t.Context(), client.SandboxRequest{})
	check(t, err)
	files := box.Files("")
	_, err = files.Mkdir(t.Context(), "/workspace/w/below", 0, true)
	check(t, err)
	var seen []string
	for change, err := range files.Watch(t.Context(), "/workspace/w", true) {
		check(t, err)
		text := change.Op + " " + string(change.Path)
		if len(seen) > 0 && seen[len(seen)-1] == text {
			continue // a file is written in several steps
		}
		seen = append(seen, text)
		switch text {
		case "ready ":
			p, err := box.Start(t.Context(), client.ProcessRequest{Shell: "echo x >/workspace/w/below/file"})
			check(t, err)
			_, err = p.Wait(t.Context())
			check(t, err)
		case "write below/file":
			check(t, files.Remove(t.Context(), "/workspace/w", true))
		}
	}
	if got := strings.Join(seen, ", "); got != "ready , create below/file, write below/file, remove below/file, remove below, remove ." {
		t.Errorf("the changes are %s", got)
	}
	watchBounds(t, files)
	watchEnds(t, s, box)
	s.admin.verified(box.ID)
	watches := 0
	for _, r := range s.admin.records(box.ID) {
		if f := r.File; f != nil && f.Op == audit.FileWatch && f.Caller == "client" && f.Error == "" {
			watches++
		}
	}
	if watches != 18 { // those with the credential of client
		t.Errorf("the record has %d watches", watches)
	}
}

// watchEnds: the last event of a watch has the reason of its end: its directory was removed, its credential withdrawn, its sandbox destroyed.
// A watch that has not begun because the sandbox is paused is answered when its credential is withdrawn.
func watchEnds(t *testing.T, s *served, box *client.Box) {
	t.Helper()
	removed, revoked, destroyed := watchRaw(t, s, box, "/workspace/gone"), watchRaw(t, s, box, "/workspace"), watchRaw(t, s, box, "/workspace")
	check(t, box.Files("").Remove(t.Context(), "/workspace/gone", true))
	removed.last("event: end\ndata: {}", `{"seq":2,"op":"remove","path":".","directory":true}`)
	s.admin.must(0, "token", "rm", revoked.name)
	revoked.last("event: problem", "urn:custody:problem:credential")
	s.admin.must(0, "pause", box.ID)
	waits := make(chan int, 1)
	late := caller{t, s.page(), s.admin.newToken("late", string(access.Operator))}
	go func() {
		status, _ := late.do("GET", "/sandboxes/"+box.ID+"/files/watch?path=/workspace", nil)
		waits <- status
	}()
	eventually(t, "admitted: the watch", func() bool {
		return slices.ContainsFunc(s.admin.looks(), func(a audit.Access) bool { return a.Who == "late" && a.Verdict == audit.Allow })
	})
	s.admin.must(0, "token", "rm", "late")
	if status := <-waits; status != http.StatusUnauthorized {
		t.Errorf("a watch that waits: status %d", status)
	}
	s.admin.must(0, "resume", box.ID)
	check(t, box.Destroy(t.Context()))
	destroyed.last("event: problem", "urn:custody:problem:ended")
}

// rawWatch is a watch with a credential of its own.
type rawWatch struct {
	*testing.T
	name string
	body *bufio.Reader
}

// watchRaw begins to watch a directory, and makes it first.
func watchRaw(t *testing.T, s *served, box *client.Box, path string) rawWatch {
	t.Helper()
	_, err := box.Files("").Mkdir(t.Context(), path, 0, true)
	check(t, err)
	w := rawWatch{T: t, name: "watcher-" + rand.Text()}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.page()+"api/v1/sandboxes/"+box.ID+"/files/watch?path="+path, nil)
	check(t, err)
	req.Header.Set("Authorization", "Bearer "+s.admin.newToken(w.name, string(access.Operator)))
	res, err := http.DefaultClient.Do(req)
	check(t, err)
	t.Cleanup(func() { res.Body.Close() })
	w.body = bufio.NewReader(res.Body)
	for line := ""; !strings.Contains(line, `"op":"ready"`); {
		if line, err = w.body.ReadString('\n'); err != nil {
			t.Fatalf("a watch of %s: status %d, %q, %v", path, res.StatusCode, line, err)
		}
	}
	return w
}

// last reads the rest of the events, which have all of some text.
func (w rawWatch) last(texts ...string) {
	w.Helper()
	rest, err := io.ReadAll(w.body)
	for _, text := range texts {
		if !strings.Contains(string(rest), text) {
			w.Errorf("a watch ends with %q, %v: no %q", rest, err, text)
		}
	}
}

// watchBounds: 16 clients watch at a time. The places of those that leave are free again.
func watchBounds(t *testing.T, files *client.Files) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	first := func(ctx context.Context) error {
		for change, err := range files.Watch(ctx, "/workspace", true) {
			if err != nil || change.Op == "ready" {
				return err
			}
		}
		return errors.New("no change")
	}
	var ended []chan error
	for range 16 {
		ready, over := make(chan error, 1), make(chan error, 1) // what the first event says, and what ended the watch
		go func() {
			to := ready
			for _, err := range files.Watch(ctx, "/workspace", true) {
				to <- err
				to = over
			}
			close(over)
		}()
		check(t, <-ready)
		ended = append(ended, over)
	}
	if err := first(t.Context()); !client.IsStatus(err, http.StatusTooManyRequests) || !strings.Contains(err.Error(), "16 directories") {
		t.Errorf("one more: %v", err)
	}
	leave()
	for _, over := range ended {
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("a watch whose caller leaves: %v", err)
		}
	}
	eventually(t, "a free place", func() bool { return first(t.Context()) == nil })
}
