package access_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/replay/access"
)

// TestMain is another process on the same tokens if the environment asks for it.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CUSTODY_TEST_TOKENS"); dir != "" {
		if err := otherProcess(dir, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// otherProcess does what custody token does: rm REF, or new NAME for each name.
func otherProcess(dir string, args []string) error {
	tokens, err := access.OpenTokens(dir)
	if err != nil {
		return err
	}
	if args[0] == "rm" {
		_, err := tokens.Remove(context.Background(), args[1])
		return err
	}
	for _, name := range args[1:] {
		text, err := tokens.New(context.Background(), name, "acme", access.Viewer, time.Hour)
		if err != nil {
			return err
		}
		fmt.Println(text)
	}
	return nil
}

func runOther(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "CUSTODY_TEST_TOKENS="+dir)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		t.Fatalf("%v: %s", err, failed.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestTokenFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "serve")
	tokens, err := access.OpenTokens(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := tokens.New(t.Context(), "ci pipeline", "acme", access.Auditor, 0)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "tokens.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(text))
	if !strings.HasPrefix(text, "cst_") || len(text) != 47 || strings.Contains(string(data), text[4:]) || !strings.Contains(string(data), hex.EncodeToString(sum[:])) {
		t.Errorf("the token %s stands in the file as %s", text, data)
	}
	for _, p := range []string{path, filepath.Join(dir, "tokens.lock")} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", p, info.Mode(), err)
		}
	}
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has %v", info.Mode())
	}
	list, err := tokens.List()
	if err != nil || len(list) != 1 || list[0].Name != "ci pipeline" || list[0].Tenant != "acme" || list[0].Role != access.Auditor || list[0].Expires.Sub(list[0].Created) != access.DefaultTTL {
		t.Errorf("%+v, %v", list, err)
	}
	again, err := access.OpenTokens(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.List(); err != nil || fmt.Sprint(got) != fmt.Sprint(list) {
		t.Errorf("read again: %+v, %v", got, err)
	}
}

func TestTokenNames(t *testing.T) {
	tokens, err := access.OpenTokens(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, tenant string
		role         access.Role
		ttl          time.Duration
		ok           bool
	}{
		{"a", "acme", access.Viewer, 0, true},
		{"a", "acme", access.Admin, 0, false}, // there is one
		{"a", "beta", access.Viewer, 0, true}, // of another tenant, which says nothing about it
		{"a", "", access.Viewer, time.Minute, true},
		{"", "acme", access.Viewer, 0, false},
		{" b", "acme", access.Viewer, 0, false},
		{"b\nc", "acme", access.Viewer, 0, false},
		{"b\x1b[31m", "acme", access.Viewer, 0, false},
		{"b\u202e", "acme", access.Viewer, 0, false},
		{"b\xff", "acme", access.Viewer, 0, false},
		{strings.Repeat("n", 65), "acme", access.Viewer, 0, false},
		{"b", "(none)", access.Viewer, 0, false},
		{"b", "a/b", access.Viewer, 0, false},
		{"b", strings.Repeat("t", 65), access.Viewer, 0, false},
		{"b", "acme", "", 0, false},
		{"b", "acme", "root", 0, false},
		{"b", "acme", access.Viewer, time.Second, false},
		{"b", "acme", access.Viewer, -time.Hour, false},
		{"b", "acme", access.Viewer, 367 * 24 * time.Hour, false},
	} {
		if text, err := tokens.New(t.Context(), c.name, c.tenant, c.role, c.ttl); (err == nil) != c.ok || (text != "") != c.ok {
			t.Errorf("New(%q, %q, %q, %v): %v", c.name, c.tenant, c.role, c.ttl, err)
		}
	}
	if _, err := tokens.Remove(t.Context(), "a"); err == nil || errors.Is(err, access.ErrNoToken) {
		t.Errorf("one of several of a name was removed: %v", err)
	}
	if _, err := tokens.Remove(t.Context(), "z"); !errors.Is(err, access.ErrNoToken) {
		t.Errorf("none: %v", err)
	}
	list, _ := tokens.List()
	for i, k := range list {
		gone, err := tokens.Remove(t.Context(), k.ID)
		if left, _ := tokens.List(); err != nil || gone.ID != k.ID || len(left) != len(list)-i-1 {
			t.Errorf("Remove(%s): %+v, %v", k.ID, gone, err)
		}
	}
}

// TestTokenProcesses: several processes make tokens concurrently, and none is lost.
func TestTokenProcesses(t *testing.T) {
	dir := t.TempDir()
	var all sync.Map
	var wait sync.WaitGroup
	for p := range 4 {
		wait.Go(func() {
			var names []string
			for i := range 12 {
				names = append(names, fmt.Sprintf("p%d-%d", p, i))
			}
			for _, text := range strings.Fields(runOther(t, dir, append([]string{"new"}, names...)...)) {
				all.Store(text, true)
			}
		})
	}
	wait.Wait()
	s := newSiteAt(t, access.Config{Rate: access.Rate{PerSecond: 1e6, Burst: 1e6}}, dir)
	n := 0
	all.Range(func(text, _ any) bool {
		n++
		if s.status("Authorization: Bearer "+text.(string)) != 200 {
			t.Errorf("%s was lost", text)
		}
		return true
	})
	if n != 48 {
		t.Errorf("%d tokens", n)
	}
}

// TestTokenKilled: a process that is killed while it writes leaves a file that can be read, and no lock.
func TestTokenKilled(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprint("n", i))
	}
	for range 5 {
		cmd := exec.Command(os.Args[0], append([]string{"new"}, names...)...)
		cmd.Env = append(os.Environ(), "CUSTODY_TEST_TOKENS="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		var got []string
		for len(got) < 7 && lines.Scan() {
			got = append(got, lines.Text())
		}
		cmd.Process.Kill()
		cmd.Wait()
		s := newSiteAt(t, access.Config{}, dir)
		for _, text := range got {
			if s.status("Authorization: Bearer "+text) != 200 {
				t.Errorf("%s was printed and does not hold", text)
			}
		}
		list, err := s.Tokens().List()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range list { // for the next round
			if _, err := s.Tokens().Remove(t.Context(), k.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRemovedElsewhere: what another process removes stops within a second: the token, its session and its streams.
func TestRemovedElsewhere(t *testing.T) {
	dir := t.TempDir()
	s := newSiteAt(t, access.Config{}, dir)
	deaf := make(chan error, 1) // of a handler that does not look at its context
	s.mux.Handle("GET /stream", s.Guard("GET /stream", access.Rule{Role: access.Viewer, Action: "follow"}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		deaf <- context.Cause(r.Context())
	})))
	s.mux.Handle("GET /deaf", s.Guard("GET /deaf", access.Rule{Role: access.Viewer, Action: "follow"}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write([]byte("tick\n")); err != nil {
				return
			}
			if http.NewResponseController(w).Flush() != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})))
	server := httptest.NewServer(s.mux)
	defer server.Close()
	text, other := s.token(t, "ann", "acme", access.Viewer), s.token(t, "bob", "acme", access.Viewer)
	session := cookie(t, s.login(text))
	open := func(path string, header ...string) *http.Response {
		req, err := http.NewRequest("GET", server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header[0], header[1])
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		return resp
	}
	streams := []*http.Response{
		open("/stream", "Authorization", "Bearer "+text), open("/deaf", "Authorization", "Bearer "+text),
		open("/deaf", "Cookie", strings.TrimPrefix(session, "Cookie: ")),
	}
	stays := open("/deaf", "Authorization", "Bearer "+other)
	defer stays.Body.Close()

	runOther(t, dir, "rm", "ann")
	removed := time.Now()
	if s.status("Authorization: Bearer "+text) != 401 || s.status(session) != 401 {
		t.Error("the token, or its session, holds after its removal")
	}
	for i, resp := range streams {
		for buf := make([]byte, 100); ; {
			if _, err := resp.Body.Read(buf); err != nil {
				break
			}
			if time.Since(removed) > 10*time.Second {
				t.Fatalf("stream %d goes on", i)
			}
		}
		resp.Body.Close()
	}
	if err := <-deaf; !errors.Is(err, access.ErrWithdrawn) {
		t.Errorf("the cause is %v", err)
	}
	buf := make([]byte, 5)
	if _, err := stays.Body.Read(buf); err != nil {
		t.Errorf("another token's stream: %v", err)
	}
}

// TestStreamsEnd: within a second of the end of what they rest on.
func TestStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Config{Session: access.SessionTime{Idle: 30 * time.Minute, Max: time.Hour}})
		ended := make(chan time.Time, 1)
		s.mux.Handle("GET /stream", s.Guard("GET /stream", access.Rule{Role: access.Viewer, Action: "follow"}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			ended <- time.Now()
		})))
		long := s.token(t, "long", "acme", access.Viewer)
		for name, c := range map[string]struct {
			header func() string // of a credential that begins now
			after  time.Duration
			end    func(header string)
		}{
			"expiry": {func() string {
				short, err := s.Tokens().New(t.Context(), "short", "acme", access.Viewer, 5*time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				return "Authorization: Bearer " + short
			}, 5 * time.Minute, func(string) {}},
			"idle": {func() string { return cookie(t, s.login(long)) }, 30 * time.Minute, func(string) {}},
			"logout": {func() string { return cookie(t, s.login(long)) }, 0, func(header string) {
				s.do(s.request("DELETE", "/api/v1/session", "", header, "Sec-Fetch-Site: same-origin"))
			}},
		} {
			begun, header := time.Now(), c.header()
			go s.do(s.request("GET", "/stream", "", header))
			synctest.Wait()
			c.end(header)
			select {
			case at := <-ended:
				if got := at.Sub(begun); got < c.after-time.Second || got > c.after+time.Second {
					t.Errorf("%s: ended after %v, want %v", name, got, c.after)
				}
			case <-time.After(time.Hour):
				t.Errorf("%s: it did not begin, or goes on", name)
			}
		}
	})
}

// TestBadTokenFiles: a file that others could have written, or that cannot be read, lets no one in.
func TestBadTokenFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens.json")
	s := newSiteAt(t, access.Config{}, dir)
	text := s.token(t, "ann", "acme", access.Viewer)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	session := cookie(t, s.login(text))
	write := func(data string, mode os.FileMode) {
		t.Helper()
		os.Remove(path)
		if err := errors.Join(os.WriteFile(path, []byte(data), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	var file map[string]any
	if err := json.Unmarshal(good, &file); err != nil {
		t.Fatal(err)
	}
	entry, _ := json.Marshal(file["tokens"].([]any)[0])
	for name, c := range map[string]struct {
		data string
		mode os.FileMode
	}{
		"group may write":  {string(good), 0o620},
		"others may read":  {string(good), 0o604},
		"empty":            {"", 0o600},
		"truncated":        {string(good[:len(good)/2]), 0o600},
		"twice":            {string(good) + string(good), 0o600},
		"another version":  {strings.Replace(string(good), `"version": 1`, `"version": 2`, 1), 0o600},
		"unknown field":    {strings.Replace(string(good), `"version"`, `"x": 1, "version"`, 1), 0o600},
		"the same twice":   {`{"version":1,"tokens":[` + string(entry) + "," + string(entry) + `]}`, 0o600},
		"no expiry":        {strings.Replace(string(good), `"expires"`, `"created"`, 1), 0o600},
		"another role":     {strings.Replace(string(good), `"viewer"`, `"root"`, 1), 0o600},
		"a tenant of none": {strings.Replace(string(good), `"acme"`, `"(none)"`, 1), 0o600},
		"a short sum":      {strings.Replace(string(good), `"sha256": "`, `"sha256": "00`, 1), 0o600},
	} {
		write(c.data, c.mode)
		w := s.do(s.request("GET", "/api/v1/viewer/r", "", "Authorization: Bearer "+text))
		if e := s.log.last(t); w.Code != 503 || e.Reason != "tokens-away" {
			t.Errorf("%s: %d, recorded %+v", name, w.Code, e)
		}
		if s.status(session) == 200 {
			t.Errorf("%s: the session goes on", name)
		}
		if _, err := s.Tokens().New(t.Context(), "n"+name, "acme", access.Viewer, 0); err == nil {
			t.Errorf("%s: a token was added", name)
		}
		if _, err := access.OpenTokens(dir); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	write(string(good), 0o600)
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if s.status("Authorization: Bearer "+text, "From-Address: 192.0.2.2:1") != 503 {
		t.Error("somebody else's file was believed")
	}
	if err := os.Chown(dir, 65534, 65534); err != nil { // whose directory it is could put any file there
		t.Fatal(err)
	}
	if s.status("Authorization: Bearer "+text, "From-Address: 192.0.2.2:1") != 200 {
		t.Error("the file of the directory's owner is not read")
	}
	link := filepath.Join(dir, "elsewhere")
	if err := errors.Join(os.WriteFile(link, good, 0o600), os.Remove(path), os.Symlink(link, path)); err != nil {
		t.Fatal(err)
	}
	if s.status("Authorization: Bearer "+text) != 503 {
		t.Error("a link was followed")
	}
	write(string(good), 0o600)
	if s.status("Authorization: Bearer "+text) != 200 {
		t.Error("the file that was put right is not read")
	}
	os.Remove(path)
	if s.status("Authorization: Bearer "+text, "From-Address: 192.0.2.1:1") != 401 {
		t.Error("a token holds without a file")
	}
}

// TestRoleChanged: a session ends when the file gives its token another role or tenant.
func TestRoleChanged(t *testing.T) {
	for from, to := range map[string]string{`"admin"`: `"viewer"`, `"viewer"`: `"admin"`, `"acme"`: `"beta"`} {
		dir := t.TempDir()
		s := newSiteAt(t, access.Config{}, dir)
		role := access.Admin
		if from == `"viewer"` {
			role = access.Viewer
		}
		session := cookie(t, s.login(s.token(t, "ann", "acme", role)))
		path := filepath.Join(dir, "tokens.json")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".new", []byte(strings.Replace(string(data), from, to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		if s.status(session) != 401 {
			t.Errorf("%s to %s: the session goes on", from, to)
		}
	}
}

// TestUsed: a token's latest use is noted by the hour.
func TestUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Config{})
		auth := "Authorization: Bearer " + s.token(t, "ann", "acme", access.Viewer)
		time.Sleep(30 * time.Minute)
		s.status(auth)
		time.Sleep(2 * time.Minute)
		list, err := s.Tokens().List()
		if want := time.Now().Add(-2 * time.Minute).UTC().Truncate(time.Hour); err != nil || !list[0].Used.Equal(want) {
			t.Errorf("used %v, want %v, %v", list[0].Used, want, err)
		}
	})
}
