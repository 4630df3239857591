package commands

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/client"
)

// lists is a service whose sandbox has one directory, /d, and lies about what is in it.
func lists(t *testing.T, answer func(dir, after string) client.FileList) Service {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch path.Base(r.URL.Path) {
		case "files":
			json.NewEncoder(w).Encode(client.FileInfo{Name: "d", Type: "directory", Mode: "0755"})
		case "list":
			json.NewEncoder(w).Encode(answer(q.Get("path"), q.Get("after")))
		default:
			io.WriteString(w, "content")
		}
	}))
	t.Cleanup(s.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Service{Host: s.URL, TokenFile: token}
}

func file(name string) client.FileInfo {
	return client.FileInfo{Name: audit.Text(name), Type: "file", Mode: "0644"}
}

// TestHostileDirectory: whatever a sandbox lists, a copy ends, and writes nothing outside of its target.
func TestHostileDirectory(t *testing.T) {
	named := func(names ...string) func(string, string) client.FileList {
		return func(string, string) (l client.FileList) {
			for _, name := range names {
				l.Files = append(l.Files, file(name))
			}
			return l
		}
	}
	more := func(next string, names ...string) func(string, string) client.FileList {
		return func(string, string) client.FileList {
			l := named(names...)("", "")
			l.Next = audit.Text(next)
			return l
		}
	}
	for name, c := range map[string]struct {
		answer func(dir, after string) client.FileList
		says   string
	}{
		"parent":         {named(".."), `lists ".."`},
		"itself":         {named("."), `lists "."`},
		"path":           {named("../x"), `lists "../x"`},
		"absolute":       {named("/x"), `lists "/x"`},
		"below":          {named("x/y"), `lists "x/y"`},
		"empty":          {named(""), `lists ""`},
		"NUL":            {named("x\x00y"), `lists "x\x00y"`},
		"twice":          {named("x", "x"), `lists "x"`},
		"descending":     {named("y", "x"), `lists "x"`},
		"same page":      {more("x", "x"), `lists "x"`},
		"skips":          {more("z", "x"), `continues the list of "/d" at "z"`},
		"nothing so far": {more("z"), `continues the list of "/d" at "z"`},
		"endless depth": {func(string, string) client.FileList {
			return client.FileList{Files: []client.FileInfo{{Name: "d", Type: "directory", Mode: "0000"}}}
		}, "within 128 others"},
		"unknown type": {func(string, string) client.FileList {
			return client.FileList{Files: []client.FileInfo{{Name: "x", Type: "socket"}, {Name: "y", Type: "device"}, {Name: "z", Type: "symlink", Target: "/etc"}}}
		}, "3 symbolic links and special files were not copied"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			target := filepath.Join(dir, "target")
			err := CpCmd{From: "sandbox:/d", To: target, Service: lists(t, c.answer)}.Run(env(t))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s", err, c.says)
			}
			if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
				t.Errorf("beside the target there are %v, %v", list, err)
			}
		})
	}
}

// TestManySkipped: few of many files that are not copied are named.
func TestManySkipped(t *testing.T) {
	var said []string
	e := env(t)
	e.Say = func(text string) { said = append(said, text) }
	answer := func(string, string) (l client.FileList) {
		for i := range 900 {
			l.Files = append(l.Files, client.FileInfo{Name: audit.Text(fmt.Sprintf("%03d", i)), Type: "symlink"})
		}
		return l
	}
	err := CpCmd{From: "sandbox:/d", To: filepath.Join(t.TempDir(), "target"), Service: lists(t, answer)}.Run(e)
	if err == nil || len(said) != maxNamed+1 {
		t.Errorf("%d messages, %v", len(said), err)
	}
}

// TestBrokenFile: of a file that does not arrive as a whole nothing is left, and the one that it would replace stays.
func TestBrokenFile(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "files" {
			json.NewEncoder(w).Encode(file("f"))
			return
		}
		io.WriteString(w, "a part")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer s.Close()
	service := lists(t, nil)
	service.Host = s.URL
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := CpCmd{From: "sandbox:/f", To: dir, Service: service}.Run(env(t))
	if err == nil || !strings.Contains(err.Error(), `"/f" is not copied: unexpected EOF`) {
		t.Errorf("the error is %v", err)
	}
	list, _ := os.ReadDir(dir)
	if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "old" || len(list) != 1 {
		t.Errorf("afterwards there are %v, %q, %v", list, b, err)
	}
}

func env(t *testing.T) *Env {
	return &Env{Context: t.Context(), Stdout: io.Discard, Stderr: io.Discard, Say: func(string) {}}
}
