package vault

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// audited starts a Vault with an audit log, and a broker that reads it.
func audited(t *testing.T) (*server, *Broker, string) {
	t.Helper()
	s := prepared(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	s.root(t, "PUT", "sys/audit/file", map[string]any{"type": "file", "options": map[string]string{"file_path": path, "hmac_accessor": "false"}})
	c := s.config(t)
	c.Audit = path
	return s, opened(t, c), path
}

// from makes a call from a separate address.
func (s *server) from(t testing.TB, address, token, method, path string) int {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c := &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
	code, _ := callFrom(t, c, s.Address, token, method, path, map[string]any{})
	return code
}

// heard waits for a report that contains the words; without words it checks that there is none after the log was read.
func heard(t testing.TB, g *grant, words string) {
	t.Helper()
	wait := time.Second
	if words == "" {
		wait = 4 * pollEvery
	}
	select {
	case what := <-g.Misuse():
		if words == "" || !strings.Contains(what, words) {
			t.Errorf("reported: %s, not %q", what, words)
		}
	case <-time.After(wait):
		if words != "" {
			t.Errorf("not reported within %s: %s", wait, words)
		}
	}
}

// The broker's and the step's own uses are not misuse.
func TestNoMisuse(t *testing.T) {
	t.Parallel()
	s, b, _ := audited(t)
	g := minted(t, b, request("agent", git, "vault:secret/data/agents/other", "vault:db/creds/app#password"))
	must(t, g.Renew(t.Context()))
	tok := string(g.Values()["b"])
	if code := s.from(t, "127.0.0.1", tok, "GET", "secret/data/agents/other"); code != http.StatusOK {
		t.Errorf("HTTP %d", code)
	}
	s.from(t, "127.0.0.1", tok, "GET", "sys/internal/ui/mounts/secret/agents/other") // as vault kv get does
	heard(t, g, "")
	must(t, g.Revoke(t.Context()))
	if _, open := <-g.Misuse(); open {
		t.Error("a report at the end")
	}
	must(t, g.Revoke(t.Context()))
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	s, b, _ := audited(t)
	for _, c := range []struct {
		name, address, method, path string
		token                       func(*grant) string
		words                       string
	}{
		{"delivered, from elsewhere", "127.0.0.2", "GET", "secret/data/agents/other", delivered, "from 127.0.0.2"},
		{"delivered, another path", "127.0.0.1", "GET", "secret/data/agents/git", delivered, "other than reading"},
		{"delivered, another operation", "127.0.0.1", "LIST", "secret/data/agents/other", delivered, "other than reading"},
		{"delivered, itself", "127.0.0.1", "GET", "auth/token/lookup-self", delivered, "other than reading"},
		{"delivered, renewed", "127.0.0.1", "POST", "auth/token/renew-self", delivered, "other than reading"},
		{"delivered, another engine's kind", "127.0.0.1", "GET", "sys/internal/ui/mounts/kv/plain", delivered, "other than reading"},
		{"delivered, no such path", "127.0.0.1", "GET", "nowhere/x", delivered, "other than reading"},
		{"delivered, a long path", "127.0.0.1", "GET", "secret/data/" + strings.Repeat("x", 5000), delivered, "other than reading"},
		{"the broker's, as it may", "127.0.0.1", "GET", "secret/data/agents/git", own, "never left custody"},
		{"the parent's", "127.0.0.1", "POST", "auth/token/create", parent, "never left custody"},
	} {
		g := minted(t, b, request("agent", git, "vault:secret/data/agents/other"))
		began := time.Now()
		s.from(t, c.address, c.token(g), c.method, c.path)
		heard(t, g, c.words)
		if t.Failed() {
			t.Fatalf("%s, %s", c.name, time.Since(began))
		}
		heard(t, g, "") // once, although the log has it twice
		must(t, g.Revoke(t.Context()))
	}
}

func delivered(g *grant) string { return string(g.Values()["b"]) }
func own(g *grant) string       { return g.tokens[0].secret }
func parent(g *grant) string    { return g.parent.secret }

// Each grant receives only reports on its own tokens.
func TestMisuseOfOne(t *testing.T) {
	t.Parallel()
	s, b, _ := audited(t)
	one := minted(t, b, request("one", git, "vault:secret/data/agents/other"))
	two := minted(t, b, request("two", git, "vault:secret/data/agents/other"))
	s.from(t, "127.0.0.2", delivered(one), "GET", "secret/data/agents/other")
	heard(t, one, "from 127.0.0.2")
	heard(t, two, "")
	for range 3 * maxMisuse { // without a receiver the reports are dropped
		s.from(t, "127.0.0.2", delivered(two), "GET", "secret/data/agents/other")
	}
	heard(t, two, "from 127.0.0.2")
	must(t, two.Revoke(t.Context()))
}

// The log is rotated while a step runs, by renaming and by copying and truncating.
func TestMisuseRotated(t *testing.T) {
	t.Parallel()
	s, b, path := audited(t)
	g := minted(t, b, request("agent", git, "vault:secret/data/agents/other"))
	steal := func() { s.from(t, "127.0.0.2", delivered(g), "GET", "secret/data/agents/other") }
	must(t, os.Rename(path, path+".1"))
	steal() // which Vault logs to the old file
	heard(t, g, "from 127.0.0.2")
	must(t, os.WriteFile(path, nil, 0o600))
	steal()
	heard(t, g, "from 127.0.0.2")
	s.root(t, "DELETE", "sys/audit/file", nil)
	s.root(t, "PUT", "sys/audit/again", map[string]any{"type": "file", "options": map[string]string{"file_path": path, "hmac_accessor": "false"}})
	steal()
	heard(t, g, "from 127.0.0.2")
	must(t, os.Truncate(path, 0))
	time.Sleep(2 * pollEvery)
	steal()
	heard(t, g, "from 127.0.0.2")
}

// A log that does not distinguish tokens, or is not Vault's, is detected at the start.
func TestWrongAudit(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	hidden := filepath.Join(t.TempDir(), "hidden.log")
	s.root(t, "PUT", "sys/audit/file", map[string]any{"type": "file", "options": map[string]string{"file_path": hidden}})
	elsewhere := file(t, "", 0o600)
	for path, words := range map[string]string{
		hidden: "hmac_accessor=false", elsewhere: "is it this Vault's", elsewhere + ".none": "no such file", filepath.Dir(elsewhere): "not a regular file",
	} {
		c := s.config(t)
		c.Audit = path
		if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
}

// A line is checked by its contents.
func TestJudge(t *testing.T) {
	t.Parallel()
	l := &auditLog{place: Here(Config{}), live: map[string]*watch{}, users: 1}
	out := make(chan string, maxMisuse)
	g := &grant{broker: &Broker{log: l}, misuse: out}
	ours := g.watch(token{accessor: "ACC-OWN"}, "")
	g.watch(token{accessor: "ACC-GIVEN"}, "kv/x")
	line := func(accessor, id, op, path, address string) []byte {
		return fmt.Appendf(nil, `{"type":"request","auth":{"accessor":%q},"request":{"id":%q,"operation":%q,"path":%q,"remote_address":%q}}`, accessor, id, op, path, address)
	}
	// The broker's own requests may be in the log before the broker has their ids.
	l.line(line("ACC-OWN", "1", "read", "kv/a", "192.0.2.7"), false)
	ours.made("1")
	ours.settle()
	if len(out) != 0 {
		t.Fatal(<-out)
	}
	for _, c := range []struct {
		line  []byte
		cut   bool
		words string
	}{
		{line("ACC-OWN", "1", "read", "kv/a", "192.0.2.7"), false, ""},
		{line("ACC-OTHER", "2", "read", "kv/a", "192.0.2.9"), false, ""},
		{line("ACC-GIVEN", "3", "read", "kv/x", "192.0.2.7"), false, ""}, // an address of the broker
		{line("ACC-GIVEN", "4", "read", "kv/x", "192.0.2.8"), false, "192.0.2.8"},
		{line("ACC-GIVEN", "4", "read", "kv/x", "192.0.2.8"), false, ""}, // the response to the same request
		{line("ACC-GIVEN", "5", "update", "kv/x", "192.0.2.7"), false, "other than reading"},
		{line("ACC-OWN", "6", "read", "kv/a", "192.0.2.7"), false, "never left"},
		{[]byte(`{"request":{"client_token_accessor":"ACC-GIVEN","id":"7","path":"y"}}`), false, "from"},
		{[]byte(`{"auth":{"accessor":"ACC-GIVEN"},"request":{"path":"xxxxx`), true, "cannot be read"},
		{[]byte(`not of Vault's, about nobody`), false, ""},
		{[]byte(`{"auth":"ACC"`), true, ""},
	} {
		l.line(c.line, c.cut)
		switch {
		case c.words == "" && len(out) != 0:
			t.Errorf("%s: %s", c.line, <-out)
		case c.words != "" && len(out) != 1:
			t.Errorf("%s: %d reports", c.line, len(out))
		case c.words != "":
			if what := <-out; !strings.Contains(what, c.words) {
				t.Errorf("%s: %s", c.line, what)
			}
		}
	}
}

// FuzzLine: no line causes a failure, or a report on a token that is not in it.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"type":"request","auth":{"accessor":"ACC-GIVEN"},"request":{"id":"1","path":"kv/x"}}`), false)
	f.Add([]byte(`{"auth":null,"request":{"client_token_accessor":"ACC-GIVEN"}}`), true)
	f.Add([]byte(`ACC-GIVEN`), true)
	f.Add([]byte("\x00"), false)
	f.Fuzz(func(t *testing.T, text []byte, cut bool) {
		l := &auditLog{place: Here(Config{}), live: map[string]*watch{}, users: 1}
		out := make(chan string, maxMisuse)
		g := &grant{broker: &Broker{log: l}, misuse: out}
		g.watch(token{accessor: "ACC-GIVEN"}, "kv/x")
		l.line(text, cut)
		if len(out) > 0 && !strings.Contains(string(text), "ACC-GIVEN") {
			t.Errorf("%q: %s", text, <-out)
		}
	})
}

// The tail returns appended text line by line, however it was written.
func FuzzTail(f *testing.F) {
	f.Add([]byte("one\ntwo\n\nthree"), uint8(3), true)
	f.Add([]byte("\n\n"), uint8(1), false)
	f.Fuzz(func(t *testing.T, text []byte, step uint8, rotate bool) {
		path := filepath.Join(t.TempDir(), "log")
		must(t, os.WriteFile(path, []byte("before\n"), 0o600))
		tl, err := openTail(func(known fs.FileInfo) (*os.File, error) { return openOther(path, known) })
		must(t, err)
		defer tl.close()
		var got []string
		poll := func() {
			tl.poll(context.Background(), func(line []byte, cut bool) { got = append(got, string(line)) })
		}
		w, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		defer w.Close()
		for rest := text; len(rest) > 0; {
			n := min(int(step)+1, len(rest))
			_, err := w.Write(rest[:n])
			must(t, err)
			rest = rest[n:]
			if rotate && len(rest) < len(text)/2 {
				rotate = false
				must(t, os.Rename(path, path+".old"))
				must(t, os.WriteFile(path, nil, 0o600))
			}
			poll()
		}
		all := strings.Split(string(text), "\n")
		want := all[:len(all)-1]
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// Lines that are too long are truncated, and the next one is complete again.
func TestTailLong(t *testing.T) {
	t.Parallel()
	path := file(t, "", 0o600)
	tl, err := openTail(func(known fs.FileInfo) (*os.File, error) { return openOther(path, known) })
	must(t, err)
	defer tl.close()
	must(t, os.WriteFile(path, []byte(strings.Repeat("a", 3*maxLine)+"\n"+strings.Repeat("b", maxLine)+"\nshort\n"), 0o600))
	var got []string
	tl.poll(t.Context(), func(line []byte, cut bool) { got = append(got, fmt.Sprintf("%.1s %d %t", line, len(line), cut)) })
	want := fmt.Sprintf("[a %d true b %d false s 5 false]", maxLine, maxLine)
	if fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
