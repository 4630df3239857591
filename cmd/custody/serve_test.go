package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// server is a custody serve process, and a client of it.
type server struct {
	*door
	cmd  *exec.Cmd
	kept string // path of the file with the link
	link string
	base string // ends in a slash
	// token is sent with each request, if there is one.
	token string
	// cookies go along, too, after signIn.
	cookies []*http.Cookie
}

// serving starts custody serve.
func (d *door) serving(args ...string) *server {
	d.Helper()
	cmd := d.command(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = os.Stderr
	if d.stdin != nil {
		cmd.Stdin = d.stdin
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		d.Fatal(err)
	}
	d.start(cmd)
	s := &server{door: d, cmd: cmd}
	d.Cleanup(s.stop)
	lines := bufio.NewReader(out)
	address, err := lines.ReadString('\n')
	if err != nil {
		d.Fatalf("custody serve printed %q: %v", address, err)
	}
	s.base = strings.TrimSpace(address)
	file, err := lines.ReadString('\n')
	if err != nil {
		d.Fatalf("custody serve printed %q: %v", file, err)
	}
	s.kept = strings.TrimSpace(file)
	link, err := os.ReadFile(s.kept)
	if err != nil {
		d.Fatal(err)
	}
	s.link = strings.TrimSpace(string(link))
	return s
}

// stop stops the server and waits for it. It may be called again.
func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.cmd.Wait()
}

// ask makes a request below the API and returns the response's status and body.
func (s *server) ask(method, path string, body any) (int, []byte) {
	s.Helper()
	var send io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			s.Fatal(err)
		}
		send = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(s.Context(), method, s.base+"api/v1/"+path, send)
	if err != nil {
		s.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	for _, c := range s.cookies {
		req.AddCookie(c)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	return res.StatusCode, got
}

// got makes a GET request that must succeed, and decodes the response.
func got[T any](s *server, path string) T {
	s.Helper()
	status, body := s.ask("GET", path, nil)
	var v T
	if err := json.Unmarshal(body, &v); status != http.StatusOK || err != nil {
		s.Fatalf("GET %s: %d, %v\n%.2000s", path, status, err, body)
	}
	return v
}

// newToken makes a token as a user does.
func (d *door) newToken(name, role string) string {
	d.Helper()
	return strings.TrimSpace(d.must(0, "token", "new", name, "--role", role).stdout)
}

// looks are the access events of all of the home's access logs.
func (d *door) looks() (all []audit.Access) {
	d.Helper()
	for _, run := range decode[store.Run](d, d.must(0, "runs", "--access", "--json").stdout) {
		for _, r := range d.records(run.ID, "access") {
			all = append(all, *r.Access)
		}
	}
	return all
}

// TestServe: no one looks without a login, and each look and each refusal is in an access log that
// verifies, also after the server was killed; no run is called last that is an access log.
func TestServe(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.script(0, "echo hello; exit 0")
	run := d.runs()[0].ID
	s := d.serving("--run", "last")
	if !strings.Contains(s.link, "#once=cso_") || !strings.HasSuffix(s.link, "/runs/"+run) {
		t.Errorf("the printed link is %s, want a one-time token and the way to the run", s.link)
	}
	if status, _ := s.ask("GET", "runs/"+run, nil); status != http.StatusUnauthorized {
		t.Errorf("without a login: %d, want 401", status)
	}
	s.token = d.newToken("siem", "viewer")
	if r := got[store.Run](s, "runs/"+run); r.ID != run || r.Status != store.Sealed {
		t.Errorf("the run is answered as %+v", r)
	}
	if status, _ := s.ask("GET", "runs/"+run+"/bundle", nil); status != http.StatusForbidden {
		t.Errorf("a viewer asks for a bundle: %d, want 403", status)
	}
	d.must(0, "token", "rm", "siem")
	if status, _ := s.ask("GET", "runs/"+run, nil); status != http.StatusUnauthorized {
		t.Errorf("with a token that was removed: %d, want 401", status)
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	if last := d.must(0, "timeline", "last", "--json").stdout; !strings.Contains(last, run) {
		t.Errorf("last is not the sandbox's run: %.300s", last)
	}
	var allowed, refused []string
	for _, look := range d.looks() {
		if look.Verdict == audit.Allow {
			allowed = append(allowed, look.Who+" "+look.Route+" "+string(look.About))
		} else {
			refused = append(refused, look.Who+" "+look.Route)
		}
	}
	if want := "siem GET /api/v1/runs/{run} " + run; len(allowed) != 1 || allowed[0] != want {
		t.Errorf("looks: %q, want %q", allowed, want)
	}
	d.contains(strings.Join(refused, "\n"), " GET /api/v1/runs/{run}", "siem GET /api/v1/runs/{run}/bundle")
	logs := decode[store.Run](d, d.must(0, "runs", "--access", "--json").stdout)
	if len(logs) != 1 || logs[0].Status != store.Interrupted {
		t.Fatalf("access logs: %+v, want one that was interrupted", logs)
	}
	d.verified(logs[0].ID)
	d.must(0, "fsck")
}

// TestServeRefuses: what would show the record to others is no way to start, and describes what to do.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.clearError(d.custody("serve", "--listen", "0.0.0.0:0"), "there is no TLS")
	d.clearError(d.custody("serve", "--listen", "nonsense"), "nonsense")
	d.clearError(d.custody("serve", "--run", "r-none"), "no such run")
	first := d.serving()
	_, port, _ := strings.Cut(strings.TrimSuffix(first.base, "/"), "//")
	d.clearError(d.custody("serve", "--listen", port), "address already in use")
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\nserve: {listen: \"127.0.0.1:0\", roles: all}\n")
	d.clearError(d.custody("serve"), "roles")
}

// TestServeEnds: stopped by a signal, or idle, a server ends by itself with its access log closed.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.script(0, "true")
	s := d.serving("--idle", "1s")
	s.token = d.newToken("one", "viewer")
	got[map[string]any](s, "runs")
	http.DefaultClient.CloseIdleConnections()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("a server that nobody asks: %v", err)
	}
	s = d.serving()
	s.token = d.newToken("two", "viewer")
	got[map[string]any](s, "runs")
	s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("a server that is told to stop: %v", err)
	}
	for _, log := range decode[store.Run](d, d.must(0, "runs", "--access", "--json").stdout) {
		if log.Status != store.Sealed {
			t.Errorf("access log %s is %s", log.ID, log.Status)
		}
		d.verified(log.ID)
	}
}

// liar claims a connection that never leaves the guest, and makes an honest one.
const liar = `
import socket, time
s = socket.socket()
s.setblocking(False)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
s.connect_ex(("93.184.66.66", 443))
honest = socket.socket()
honest.settimeout(1)
honest.connect_ex(("93.184.66.67", 443))
time.sleep(0.2)`

// TestDisagreement: a connection that a process of the guest claims and the host never saw is a
// finding, on the command line and through the API; honest connections are none.
func TestDisagreement(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.must(0, "run", "--", "python3", "-c", liar)
	found := d.findings("last")
	if len(found) != 1 || found[0].Rule != "connect-unseen" || !strings.Contains(found[0].Detail, "93.184.66.66") {
		t.Errorf("findings: %+v, want one of the connection that went nowhere", found)
	}
	d.contains(d.must(0, "timeline", "last").stdout, "FINDING", "connect-unseen")
	run := d.runs()[0]
	s := d.serving()
	s.token = d.newToken("reviewer", "viewer")
	answer := got[struct{ Items []replay.Finding }](s, "runs/"+run.ID+"/findings")
	if len(answer.Items) != 1 || answer.Items[0].Rule != "connect-unseen" {
		t.Errorf("the API answers %+v", answer)
	}
}

// TestServeLink: the link with the one-time token is printed to a terminal only. Elsewhere it stands in a file that no one
// else can read, until it is not good any more or the server has ended, however that came about.
func TestServeLink(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	links := func() []string {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(d.home, "serve", "link-*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	var stdout, stderr bytes.Buffer
	cmd := d.command("serve", "--listen", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr // as the journal, or a file
	d.start(cmd)
	for deadline := time.Now().Add(time.Minute); len(links()) == 0; {
		if time.Sleep(10 * time.Millisecond); time.Now().After(deadline) {
			t.Fatal("there is no link")
		}
	}
	kept := links()[0]
	if info, err := os.Stat(kept); err != nil || info.Mode() != 0o600 {
		t.Errorf("the link's file: %v, %v", info, err)
	}
	other := d.serving()
	if all := links(); len(all) != 2 || other.kept == kept {
		t.Errorf("two servers have the files %q", all)
	}
	if _, err := http.Get(other.link); err != nil || !strings.Contains(other.link, "#once=cso_") {
		t.Errorf("link %s: %v", other.link, err)
	}
	other.cmd.Process.Kill()
	other.cmd.Wait()
	third := d.serving()
	if all := links(); len(all) != 2 || slices.Contains(all, other.kept) && other.kept != third.kept {
		t.Errorf("after one was killed there are the files %q, of which %s is not good", all, other.kept)
	}
	third.stop()
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if all := links(); len(all) > 0 {
		t.Errorf("after the end there are the files %q", all)
	}
	if printed := stdout.String() + stderr.String(); strings.Contains(printed, "cso_") || !strings.Contains(stdout.String(), kept) || !strings.Contains(stderr.String(), kept) {
		t.Errorf("printed:\n%s", printed)
	}

	short := d.serving("--link-for", "3s")
	for deadline := time.Now().Add(time.Minute); len(links()) > 0; {
		if time.Sleep(10 * time.Millisecond); time.Now().After(deadline) {
			t.Fatal("a link that is not good any more is there")
		}
	}
	short.stop()

	cmd = d.command("serve", "--listen", "127.0.0.1:0")
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	line, err := bufio.NewReader(terminal).ReadString('\n')
	if err != nil || !strings.Contains(line, "/#once=cso_") || len(links()) > 0 {
		t.Errorf("on a terminal it prints %q, %v, with the files %q", line, err, links())
	}
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
}
