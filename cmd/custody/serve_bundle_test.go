package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/internal/sampleruns"
)

// TestServeBundle: the API and the page show a bundle on a machine that has no state of Custody and leave none there, and
// their verification of its record agrees with verify.
func TestServeBundle(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run := sampleruns.Record(t, d.home, sampleruns.Review())
	d.must(0, "bundle", run, "-o", filepath.Join(d.dir, "run.tar"))
	d.write(filepath.Join(d.dir, "host.pub"), d.must(0, "key", "show").stdout)
	records := d.must(0, "timeline", run, "--json").stdout
	whole, err := os.ReadFile(filepath.Join(d.dir, "run.tar"))
	if err != nil {
		t.Fatal(err)
	}
	d.home = filepath.Join(t.TempDir(), "none")
	d.env = append(d.env, "TMPDIR="+t.TempDir())
	temp := strings.TrimPrefix(d.env[len(d.env)-1], "TMPDIR=")
	for _, c := range []struct {
		args  []string
		state string
	}{
		{[]string{"--key", "host.pub"}, "holds"},
		{nil, "cannot"},
	} {
		s := d.serving(append([]string{"run.tar"}, c.args...)...)
		// The file may change now: what was verified is shown and given.
		d.write(filepath.Join(d.dir, "run.tar"), "something else")
		link, once, _ := strings.Cut(s.link, "#once=")
		once, place, _ := strings.Cut(once, "/")
		if place != "runs/"+run {
			t.Errorf("the link leads to %q", place)
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Jar: jar}
		ask := func(method, path, body string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, link+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Sec-Fetch-Site", "same-origin")
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			return res.StatusCode, string(text)
		}
		if code, _ := ask("GET", "api/v1/runs", ""); code != http.StatusUnauthorized {
			t.Errorf("without a login: %d", code)
		}
		if code, text := ask("POST", "api/v1/session", `{"token":"`+once+`"}`); code != http.StatusCreated {
			t.Fatalf("login: %d %s", code, text)
		}
		if code, text := ask("GET", "", ""); code != http.StatusOK || !strings.Contains(text, "<html") {
			t.Errorf("the page: %d %.200s", code, text)
		}
		for _, path := range []string{"api/v1/runs", "api/v1/runs/" + run, "api/v1/runs/" + run + "/state?at=%2B1s", "api/v1/search?q=curl", "api/v1/runs/" + run + "/records/3/proof"} {
			if code, text := ask("GET", path, ""); code != http.StatusOK {
				t.Errorf("%s: %d %.300s", path, code, text)
			}
		}
		if code, text := ask("GET", "api/v1/runs/"+run+"/bundle", ""); code != http.StatusOK || text != string(whole) {
			t.Errorf("the bundle: %d, %d bytes", code, len(text))
		}
		_, text := ask("GET", "api/v1/runs/"+run+"/verify", "")
		var v struct{ State string }
		if err := json.Unmarshal([]byte(text), &v); err != nil || v.State != c.state {
			t.Errorf("verification: %s, want %s", text, c.state)
		}
		for _, path := range []string{"api/v1/tokens", "api/v1/runs/" + run + "/notes"} {
			if code, text := ask("POST", path, `{"text":"x"}`); code < 400 {
				t.Errorf("POST %s: %d %.200s", path, code, text)
			}
		}
		s.stop()
		d.write(filepath.Join(d.dir, "run.tar"), string(whole))
	}
	if _, err := os.Stat(d.home); err == nil {
		t.Error("serving a bundle made a home")
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if s := d.must(0, "timeline", "run.tar", "--key", "host.pub", "--json"); s.stdout != records {
		t.Error("the bundle's records are not those of the run")
	}
}
