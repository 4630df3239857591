package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// run runs a program inside the sandbox, where name has the destination's synthetic address.
func (w *world) run(name string, env []string, argv ...string) (string, error) {
	w.Helper()
	w.names.set(name)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = w.TempDir()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	inSandbox(w, cmd.Start)
	err := cmd.Wait()
	return out.String(), err
}

// pem writes the certificates that clients must trust to a file.
func (w *world) pem() string {
	w.Helper()
	file := filepath.Join(w.TempDir(), "ca.pem")
	b := w.ca.pem()
	if w.cfg.Authority != nil {
		b = w.cfg.Authority.PEM()
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		w.Fatal(err)
	}
	return file
}

// TestRealClients fetches with common clients, spliced and opened.
func TestRealClients(t *testing.T) {
	for kind, r := range map[string]netpolicy.Rule{"spliced": rule("a.example"), "opened": rule("a.example", withHTTP([]string{"GET"}, []string{"/v1/*"}))} {
		w := newWorld(t, []netpolicy.Rule{r})
		w.newHost("a.example", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprintf(rw, "hello over %s", r.Proto) }))
		ca, at := w.pem(), w.names.base.String()
		python := fmt.Sprintf(`
import http.client, socket, ssl, sys
class C(http.client.HTTPSConnection):
    def connect(self):
        self.sock = ssl.create_default_context(cafile=%q).wrap_socket(socket.create_connection((%q, 443)), server_hostname=self.host)
c = C("a.example"); c.request("GET", sys.argv[1]); r = c.getresponse(); print(r.status, r.read().decode())
`, ca, at)
		node := fmt.Sprintf(`
const c = require("https").get({host: %q, servername: "a.example", headers: {host: "a.example"}, path: process.argv[1], ca: require("fs").readFileSync(%q)}, r => {
  let s = ""; r.on("data", d => s += d); r.on("end", () => console.log(r.statusCode, s)) });
c.on("error", e => { console.log(String(e)); process.exit(1) })`, at, ca)
		curl := func(more ...string) []string {
			return append([]string{"curl", "-sS", "--cacert", ca, "--resolve", "a.example:443:" + at, "-w", "%{http_code}"}, more...)
		}
		for name, c := range map[string]struct {
			argv []string
			want string
		}{
			"curl http1.1": {curl("--http1.1", "https://a.example/v1/x"), "hello over HTTP/1.1200"},
			"curl http2":   {curl("--http2", "https://a.example/v1/x"), "hello over HTTP/2.0200"},
			"python3":      {[]string{"python3", "-c", python, "/v1/x"}, "200 hello over HTTP/1.1"},
			"node":         {[]string{"node", "-e", node, "/v1/x"}, "200 hello over HTTP/1.1"},
		} {
			out, err := w.run("a.example", nil, c.argv...)
			if err != nil || strings.TrimSpace(out) != c.want {
				t.Errorf("%s, %s: %v %q", kind, name, err, out)
			}
		}
		if kind == "spliced" {
			continue
		}
		for name, argv := range map[string][]string{
			"curl http1.1": curl("--http1.1", "https://a.example/v2"), "curl http2": curl("--http2", "https://a.example/v2"),
			"python3": {"python3", "-c", python, "/v2"}, "node": {"node", "-e", node, "/v2"},
		} {
			if out, err := w.run("a.example", nil, argv...); err != nil || !strings.Contains(out, `"error":"denied by policy"`) || !strings.Contains(out, "403") {
				t.Errorf("%s, %s: %v %q", kind, name, err, out)
			}
		}
	}
}

// TestCurlClear uses HTTP without TLS, with and without an upgrade to h2c, and with a body.
func TestCurlClear(t *testing.T) {
	w, _ := clearWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "%s %d", r.Method, len(b))
	}))
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"get":          {[]string{"http://a.example/"}, "GET 0"},
		"h2c":          {[]string{"--http2", "http://a.example/"}, "GET 0"},
		"1.0":          {[]string{"--http1.0", "http://a.example/"}, "GET 0"},
		"two":          {[]string{"http://a.example/", "http://a.example/"}, "GET 0GET 0"},
		"post, expect": {[]string{"--data-binary", "@" + big, "http://a.example/"}, "POST 3145728"},
		"chunked":      {[]string{"-H", "Transfer-Encoding: chunked", "--data-binary", "@" + big, "http://a.example/"}, "POST 3145728"},
		"put":          {[]string{"-T", big, "http://a.example/"}, "PUT 3145728"},
	} {
		out, err := w.run("a.example", nil, append([]string{"curl", "-sS", "--resolve", "a.example:80:" + w.names.base.String()}, c.args...)...)
		if err != nil || out != c.want {
			t.Errorf("%s: %v %q", name, err, out)
		}
	}
	if out, err := w.run("a.example", nil, "curl", "-sS", "--http2-prior-knowledge", "--resolve", "a.example:80:"+w.names.base.String(), "http://a.example/"); err == nil {
		t.Errorf("HTTP/2 in the clear: %q", out)
	}
}

// TestGit clones and pushes over HTTP/2 and HTTP/1.1, spliced and opened.
func TestGit(t *testing.T) {
	backend := strings.TrimSpace(must(output("git", "--exec-path"))) + "/git-http-backend"
	root := t.TempDir()
	for _, argv := range [][]string{
		{"git", "init", "-q", "--bare", "-b", "main", root + "/repo.git"},
		{"git", "-C", root + "/repo.git", "config", "http.receivepack", "true"},
	} {
		if out, err := output(argv[0], argv[1:]...); err != nil {
			t.Fatal(out, err)
		}
	}
	backEnd := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}, Stderr: io.Discard}
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body) // net/http/cgi does not support chunked bodies
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
		backEnd.ServeHTTP(rw, r)
	})
	for kind, r := range map[string]netpolicy.Rule{"spliced": rule("a.example"), "opened": rule("a.example", withHTTP([]string{"GET", "POST"}, []string{"/repo.git/*"}))} {
		w := newWorld(t, []netpolicy.Rule{r})
		w.newHost("a.example", 443, serve)
		dir := t.TempDir()
		env := []string{"GIT_CONFIG_NOSYSTEM=1", "HOME=" + dir, "GIT_SSL_CAINFO=" + w.pem(), "GIT_TERMINAL_PROMPT=0"}
		for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
			work := filepath.Join(dir, strings.ReplaceAll(version, "/", ""))
			git := func(args ...string) {
				t.Helper()
				argv := append([]string{"git", "-c", "http.version=" + version, "-c", "http.curloptResolve=a.example:443:" + w.names.base.String(),
					"-c", "user.name=t", "-c", "user.email=t@t", "-c", "http.postBuffer=65536", "-c", "init.defaultBranch=main"}, args...)
				if out, err := w.run("a.example", env, argv...); err != nil {
					t.Fatalf("%s %s %v: %v %s\n%s", kind, version, args, err, out, w.dump())
				}
			}
			git("clone", "-q", "https://a.example/repo.git", work)
			data := make([]byte, 300<<10) // larger than the post buffer, so that it is chunked
			for i := range data {
				data[i] = byte(i * i >> 7 * (i>>3 + 1))
			}
			if err := os.WriteFile(filepath.Join(work, strings.ReplaceAll(kind+version, "/", "")), data, 0o600); err != nil {
				t.Fatal(err)
			}
			git("-C", work, "add", "-A")
			git("-C", work, "commit", "-q", "-m", "m")
			git("-C", work, "push", "-q", "origin", "HEAD:main")
		}
	}
	log, err := output("git", "-C", root+"/repo.git", "log", "--oneline", "main")
	if err != nil || strings.Count(log, "\n") != 4 {
		t.Errorf("%s %v", log, err)
	}
}

func output(name string, args ...string) (string, error) {
	b, err := exec.Command(name, args...).CombinedOutput()
	return string(b), err
}

// TestOpenSSL sends ClientHellos of another implementation: small records, old versions, no name.
func TestOpenSSL(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	w.newHost("a.example", 443, nil)
	for name, c := range map[string]struct {
		args []string
		ok   bool
	}{
		"tls 1.3":    {[]string{"-tls1_3", "-servername", "a.example"}, true},
		"tls 1.2":    {[]string{"-tls1_2", "-servername", "a.example"}, true},
		"small":      {[]string{"-max_send_frag", "512", "-servername", "a.example"}, true},
		"no name":    {[]string{"-noservername"}, false},
		"other name": {[]string{"-servername", "b.example"}, false},
		"final dot":  {[]string{"-servername", "a.example."}, false},
		"alpn":       {[]string{"-alpn", "http/1.1", "-servername", "a.example"}, true},
	} {
		out, _ := w.run("a.example", nil, append([]string{"openssl", "s_client", "-connect", w.names.base.String() + ":443", "-CAfile", w.pem()}, c.args...)...)
		if strings.Contains(out, "BEGIN CERTIFICATE") != c.ok {
			t.Errorf("%s: %s", name, out)
		}
	}
	if w.count(audit.FlowDeny) != 3 {
		t.Errorf("%d denials", w.count(audit.FlowDeny))
	}
}
