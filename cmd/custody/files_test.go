package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
)

// TestSandboxFiles: a program uses the files of a sandbox through the API, as its users, and the record and the access log have each operation.
func TestSandboxFiles(t *testing.T) {
	c, s := newClient(t)
	usesFiles(t, c, s)
}

func usesFiles(t *testing.T, c *client.Client, s *served) {
	t.Helper()
	box, err := c.Create(t.Context(), client.SandboxRequest{Lazy: true})
	check(t, err)
	files, ctx := box.Files(""), t.Context()
	const name = "/workspace/not \xff UTF-8"
	large := strings.Repeat("content ", 1<<18)
	info, err := files.Write(ctx, name, strings.NewReader(large), 0o640, true)
	if err != nil || info.Size != int64(len(large)) || info.FileMode() != 0o640 || string(info.Name) != name[11:] {
		t.Fatalf("%+v, %v", info, err)
	}
	if got, err := files.ReadFile(ctx, name); err != nil || string(got) != large {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_, err = files.Mkdir(ctx, "/workspace/a/b", 0o700, true)
	check(t, err)
	check(t, files.WriteFile(ctx, "/workspace/a/empty", nil, 0))
	_, err = files.Move(ctx, "/workspace/a/empty", "/workspace/a/b/moved", true)
	check(t, err)
	if names := walk(t, files.FS(ctx), "workspace"); names != "workspace workspace/a workspace/a/b workspace/a/b/moved workspace/not \xff UTF-8" {
		t.Errorf("the files are %q", names)
	}
	refusedFiles(t, box)
	brokenFiles(t, box)
	check(t, files.Remove(ctx, "/workspace/a", true))
	if _, err := files.Stat(ctx, "/workspace/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was removed: %v", err)
	}
	auditor := caller{t, s.page(), s.admin.newToken("auditor", string(access.Auditor))}
	auditor.ask(http.StatusForbidden, "GET", "/sandboxes/"+box.ID+"/files?path=/", nil, nil)
	check(t, box.Destroy(ctx))
	if _, err := files.Stat(ctx, "/"); !client.IsStatus(err, http.StatusGone) {
		t.Errorf("a file of a sandbox that has ended: %v", err)
	}
	s.admin.verified(box.ID)
	sum := sha256.Sum256([]byte(large))
	var ops []string
	failed := 0
	for _, r := range s.admin.records(box.ID) {
		if f := r.File; f != nil && f.Caller != "" {
			if f.Error != "" {
				failed++
				continue
			}
			ops = append(ops, string(f.Op))
			if f.Path == name && (f.SHA256 != hex.EncodeToString(sum[:]) || f.Size != int64(len(large)) || f.Caller != "client" || r.Observer != audit.Host) {
				t.Errorf("%+v", f)
			}
		}
	}
	if got := strings.Join(ops[:4], " "); got != "write read create write" || failed < 10 {
		t.Errorf("the record begins with %s, and has %d failures", got, failed)
	}
	s.stop()
	for _, a := range s.admin.looks() {
		if strings.HasPrefix(a.Route, "PUT /api/v1/sandboxes/{run}/files/content") && strings.Contains(string(a.Query), "path="+name) {
			return
		}
	}
	t.Error("the access log has no write of the file")
}

// walk returns the names of a tree.
func walk(t *testing.T, of fs.FS, root string) string {
	t.Helper()
	var names []string
	check(t, fs.WalkDir(of, root, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	return strings.Join(names, " ")
}

// refusedFiles tries what no caller may do.
func refusedFiles(t *testing.T, box *client.Box) {
	t.Helper()
	ctx, files := t.Context(), box.Files("")
	p, err := box.Start(ctx, client.ProcessRequest{Shell: "mkfifo /tmp/fifo; ln -s /proc/1/environ /tmp/link; mkdir -m 700 /tmp/private"})
	check(t, err)
	_, err = p.Wait(ctx)
	check(t, err)
	for path, status := range map[string]int{
		"/tmp/fifo": http.StatusConflict, "/tmp/link": http.StatusForbidden, "/proc/1/environ": http.StatusForbidden, "/run/secrets/x": http.StatusForbidden, "/none": http.StatusNotFound,
		"/workspace": http.StatusConflict, "relative": http.StatusBadRequest, "/nul\x00": http.StatusBadRequest, "": http.StatusBadRequest, "/dev/zero": http.StatusConflict,
	} {
		if _, err := files.ReadFile(ctx, path); !client.IsStatus(err, status) {
			t.Errorf("reading %q: %v, in place of %d", path, err, status)
		}
	}
	if err := box.Files("nobody").WriteFile(ctx, "/tmp/private/x", nil, 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a write to another user's directory: %v", err)
	}
	if _, err := files.Write(ctx, "/tmp/fifo", strings.NewReader(""), 0, true); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an exclusive write: %v", err)
	}
	if _, err := box.Files("unknown").Stat(ctx, "/"); !client.IsStatus(err, http.StatusBadRequest) {
		t.Errorf("an unknown user: %v", err)
	}
}

// brokenFiles writes contents that break or do not fit.
func brokenFiles(t *testing.T, box *client.Box) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	go func() {
		w.Write(make([]byte, 1<<20))
		cancel() // the caller disappears
	}()
	if _, err := box.Files("").Write(ctx, "/tmp/broken", r, 0, false); err == nil {
		t.Error("a content that breaks is written")
	}
	ctx = t.Context()
	if _, err := box.Files("").Write(ctx, "/run/full", io.LimitReader(endless{}, 1<<30), 0, false); !client.IsStatus(err, http.StatusConflict) {
		t.Errorf("a content that does not fit: %v", err)
	}
	for _, dir := range []string{"/tmp", "/run"} {
		for { // the sandbox notices that the caller has left
			list, err := box.Files("").ReadDir(ctx, dir)
			check(t, err)
			left := ""
			for _, f := range list {
				if n := string(f.Name); strings.HasPrefix(n, ".custody-") || n == "broken" || n == "full" {
					left += n + " "
				}
			}
			if left == "" {
				break
			}
		}
	}
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
