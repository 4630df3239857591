package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/vmm"
)

// filesClient returns a client of the service of a user, whose projects are "small", with a small disk, and "beating", with a short limit of silence.
func filesClient(t *testing.T, admin *door) (*client.Client, *served) {
	t.Helper()
	admin.asks = true
	path := filepath.Join(admin.home, "host.yaml")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		text, err = []byte("version: 1\n"), nil
	}
	check(t, err)
	admin.write(path, string(text)+"serve: {rate: {per_second: 1000, burst: 1000}}\n")
	for name, limits := range map[string]string{"small": "disk: 64MiB", "beating": "silence: 5s"} {
		file := filepath.Join(admin.dir, name+".yaml")
		admin.write(file, fmt.Sprintf("version: 1\nproject: %s\nlimits: {%s}\n", name, limits))
		admin.must(0, "project", "apply", file)
	}
	s := serveFor(t, admin, publicDir(t))
	c, err := client.New(s.page(), admin.newToken("client", string(access.Operator)))
	check(t, err)
	return c, s
}

// inSandbox runs a script.
func inSandbox(t *testing.T, box *client.Box, script string) {
	t.Helper()
	p, err := box.Start(t.Context(), client.ProcessRequest{Shell: script})
	check(t, err)
	if exit, err := p.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v", script, exit, err)
	}
}

// TestFilesOfVM: the files of a VM are used through the API as those of a sandbox of gVisor are.
func TestFilesOfVM(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*testing.T, *client.Client, *served){"files": usesFiles, "archives": usesArchives, "watches": usesWatches} {
		t.Run(name, func(t *testing.T) {
			c, s := filesClient(t, newDoor(t))
			box, err := c.Create(t.Context(), client.SandboxRequest{})
			check(t, err)
			if info, err := box.Info(t.Context()); err != nil || info.Tier == vmm.GVisor {
				t.Fatalf("the sandbox is %+v, %v", info, err)
			}
			check(t, box.Destroy(t.Context()))
			use(t, c, s)
		})
	}
}

// TestFilesAtATime: 64 operations are carried out in a sandbox at a time. One more is refused with the reason; when they have ended, there is place again.
// Another sandbox has places of its own.
func TestFilesAtATime(t *testing.T) {
	t.Parallel()
	c, s := filesClient(t, newGVisorDoor(t))
	box, err := c.Create(t.Context(), client.SandboxRequest{})
	check(t, err)
	other, err := c.Create(t.Context(), client.SandboxRequest{})
	check(t, err)
	files := box.Files("")
	inSandbox(t, box, "true")
	s.admin.must(0, "pause", box.ID)
	results := make(chan error)
	for range 65 {
		go func() {
			_, err := files.Stat(t.Context(), "/tmp")
			results <- err
		}()
	}
	p := new(client.Problem)
	if err := <-results; !errors.As(err, &p) || p.Status != http.StatusTooManyRequests || p.After <= 0 || !strings.Contains(err.Error(), "64 operations") {
		t.Errorf("one more: %v", err)
	}
	for name, one := range map[string]func() error{
		"read":   func() error { _, err := files.ReadFile(t.Context(), "/etc/passwd"); return err },
		"write":  func() error { return files.WriteFile(t.Context(), "/tmp/more", []byte("x"), 0) },
		"pack":   func() error { _, err := files.Pack(t.Context(), "/etc"); return err },
		"remove": func() error { return files.Remove(t.Context(), "/tmp", true) },
	} {
		if err := one(); !client.IsStatus(err, http.StatusTooManyRequests) {
			t.Errorf("one more, to %s: %v", name, err)
		}
	}
	if _, err := other.Files("").Stat(t.Context(), "/tmp"); err != nil {
		t.Errorf("in another sandbox: %v", err)
	}
	s.admin.must(0, "resume", box.ID)
	for range 64 {
		check(t, <-results)
	}
	check(t, files.WriteFile(t.Context(), "/tmp/more", []byte("x"), 0))
	check(t, box.Destroy(t.Context()))
	s.admin.verified(box.ID)
}

// counted counts how much of a content is read.
type counted struct {
	io.Reader
	bytes atomic.Int64
}

// Read implements io.Reader.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

// TestFilesOfAnySize: of an upload that does not fit into the sandbox, not more is taken than it has place for, and nothing is left. Of a large file
// a client gets what it asks for, and custody cp copies none above its limit.
func TestFilesOfAnySize(t *testing.T) {
	t.Parallel()
	c, s := filesClient(t, newGVisorDoor(t))
	box, err := c.Create(t.Context(), client.SandboxRequest{Project: "small"})
	check(t, err)
	files := box.Files("")
	caller := caller{t, s.page(), s.admin.newToken("any", string(access.Operator))}
	const most = 256 << 20 // the disk and what is on its way
	for _, size := range []int64{-1, 1 << 40} {
		content := &counted{Reader: endless{}}
		status := caller.upload(box, "/workspace/large", content, size)
		if n := content.bytes.Load(); status != http.StatusConflict || n > most {
			t.Errorf("an upload of %d bytes: status %d after %d bytes", size, status, n)
		}
	}
	content := &counted{Reader: endless{}}
	if status := caller.upload(box, "/none/large", content, 1<<40); status != http.StatusNotFound || content.bytes.Load() > most {
		t.Errorf("an upload to no directory: status %d after %d bytes", status, content.bytes.Load())
	}
	list, err := files.ReadDir(t.Context(), "/workspace")
	check(t, err)
	if len(list) > 0 {
		t.Errorf("what is left: %+v", list)
	}
	inSandbox(t, box, "truncate -s 3G /tmp/sparse")
	if status, part := caller.do("GET", "/sandboxes/"+box.ID+"/files/content?path=/tmp/sparse&offset=3221225462&length=100", nil); status != http.StatusOK || len(part) != 10 {
		t.Errorf("the end of a large file: status %d, %d bytes", status, len(part))
	}
	s.user.program, s.user.env = "", []string{"CUSTODY_URL=" + s.page(), "CUSTODY_TOKEN=" + caller.token}
	s.user.contains(s.user.must(125, "cp", "--max-size", "1", box.ID+":/tmp/sparse", "copy").stderr, "--max-size")
	if left, err := os.ReadDir(s.user.dir); err != nil || len(left) > 0 {
		t.Errorf("what is left of a copy: %v, %v", left, err)
	}
}

// upload sends a content of a size, -1 if that is not declared, and returns the status of the answer.
func (c caller) upload(box *client.Box, path string, content io.Reader, size int64) int {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), "PUT", c.base+"api/v1/sandboxes/"+box.ID+"/files/content?path="+path, content)
	check(c.T, err)
	req.ContentLength = size
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/octet-stream")
	res, err := http.DefaultClient.Do(req)
	check(c.T, err)
	defer res.Body.Close()
	return res.StatusCode
}

// TestFilesOfStopped: an upload, a download and a watch that are under way in a sandbox that is stopped end when it has been silent for too long,
// with the reason where there is an answer. Nothing of it is left, and another sandbox goes on.
func TestFilesOfStopped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		door    func(*testing.T) *door
		machine string // in the arguments of its process
	}{"gvisor": {newGVisorDoor, "runsc-sandbox"}, "qemu": {newDoor, "qemu-system-"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, s := filesClient(t, c.door(t))
			before := map[int]bool{}
			for _, p := range below(s.serve.Process.Pid) {
				before[p.pid] = true
			}
			box, err := api.Create(t.Context(), client.SandboxRequest{Project: "beating"})
			check(t, err)
			inSandbox(t, box, "truncate -s 1G /tmp/sparse")
			machine, left := 0, map[int]child{}
			for _, p := range below(s.serve.Process.Pid) {
				if !before[p.pid] {
					left[p.pid] = p
				}
				if strings.Contains(p.args, c.machine) {
					machine = p.pid
				}
			}
			if machine == 0 {
				t.Fatalf("there is no %s among %v", c.machine, left)
			}
			other, err := api.Create(t.Context(), client.SandboxRequest{})
			check(t, err)
			stopped(t, box, other, machine)
			eventually(t, "ended: the sandbox", func() bool {
				info, err := box.Info(t.Context())
				check(t, err)
				return info.State == "ended" && strings.Contains(info.Error, "no sign of life")
			})
			check(t, other.Destroy(t.Context()))
			s.admin.verified(box.ID)
			s.admin.verified(other.ID)
			s.admin.nothingLeft(left)
		})
	}
}

// stopped stops a machine while files of its sandbox are used.
func stopped(t *testing.T, box, other *client.Box, machine int) {
	t.Helper()
	files := box.Files("")
	content, err := files.Open(t.Context(), "/tmp/sparse", 0)
	check(t, err)
	defer content.Close()
	_, err = io.ReadFull(content, make([]byte, 1<<20))
	check(t, err)
	ends := map[string]chan error{}
	begin := func(what string, do func() error) {
		end := make(chan error, 1)
		go func() { end <- do() }()
		ends[what] = end
	}
	r, w := io.Pipe()
	defer w.Close()
	begin("write", func() error { _, err := files.Write(t.Context(), "/tmp/upload", r, 0, false); return err })
	_, err = w.Write(make([]byte, 1<<20))
	check(t, err)
	ready := make(chan struct{})
	begin("watch", func() error {
		for change, err := range files.Watch(t.Context(), "/tmp", false) {
			if err != nil {
				return err
			}
			if change.Op == "ready" {
				close(ready)
			}
		}
		return nil
	})
	<-ready
	check(t, unix.Kill(machine, unix.SIGSTOP))
	go io.Copy(w, endless{}) // the service takes a part of it, and then waits for the sandbox
	begin("stat", func() error { _, err := files.Stat(t.Context(), "/tmp"); return err })
	begin("read", func() error { _, err := io.Copy(io.Discard, content); return err })
	check(t, other.Files("").WriteFile(t.Context(), "/tmp/x", []byte("goes on"), 0))
	if text, err := other.Files("").ReadFile(t.Context(), "/tmp/x"); err != nil || string(text) != "goes on" {
		t.Errorf("another sandbox: %q, %v", text, err)
	}
	for _, what := range []string{"stat", "write", "watch", "read"} {
		err := <-ends[what]
		answered := client.IsStatus(err, http.StatusGone) && strings.Contains(err.Error(), "no sign of life")
		if what == "read" && err == nil || what != "read" && !answered {
			t.Errorf("%s in a sandbox that is stopped: %v", what, err)
		}
	}
}

// TestFilesStall: a client that sends only a part of a body gets an answer that it was too slow, and nothing is written.
func TestFilesStall(t *testing.T) {
	t.Parallel()
	c, s := filesClient(t, newGVisorDoor(t))
	box, err := c.Create(t.Context(), client.SandboxRequest{})
	check(t, err)
	token := s.admin.newToken("slow", string(access.Operator))
	page, err := url.Parse(s.page())
	check(t, err)
	var slow []net.Conn
	for _, kind := range []string{"content?path=/workspace/slow", "archive?path=/workspace"} {
		conn, err := net.Dial("tcp", page.Host)
		check(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /api/v1/sandboxes/%s/files/%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/octet-stream\r\nContent-Length: 10\r\n\r\nhalf", box.ID, kind, page.Host, token)
		slow = append(slow, conn)
	}
	for _, conn := range slow {
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		check(t, err)
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(text), "nothing of the body came for 30s") {
			t.Errorf("the slow client gets %s: %s, %v", res.Status, text, err)
		}
	}
	if list, err := box.Files("").ReadDir(t.Context(), "/workspace"); err != nil || len(list) > 0 {
		t.Errorf("what is left: %+v, %v", list, err)
	}
}
