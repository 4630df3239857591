package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/service"
	"github.com/custody-project/custody/service/remote"
)

// served is a service on a host with one run.
type served struct {
	*testing.T
	*Server
	socket string
	run    string

	mu       sync.Mutex // guards accesses and refuse
	accesses []audit.Access
	refuse   error
}

// Record implements Recorder.
func (s *served) Record(_ context.Context, a audit.Access) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accesses = append(s.accesses, a)
	return s.refuse
}

func newServed(t *testing.T) *served {
	t.Helper()
	dir := t.TempDir()
	s := &served{T: t, socket: filepath.Join(dir, "s")}
	s.run = sampleruns.Record(t, filepath.Join(dir, "home"), sampleruns.Review())
	s.Server = &Server{Dir: filepath.Join(dir, "home"), Access: s, Log: slog.New(slog.DiscardHandler)}
	l, err := service.Listen(t.Context(), func(string) string { return "" }, s.socket, "root")
	if err != nil {
		t.Fatal(err)
	}
	server := &service.Server{Notice: func(string) {}, Problem: func(err error) { t.Error(err) }, Calls: s.Handlers}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// client returns a client, and its outputs.
func (s *served) client() (cl Client, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	env := &Env{Messages: NewMessages(stderr, func() string { return "custody" }), Stdout: stdout, Replace: regular.Replace}
	return Client{s.socket, env}, stdout, stderr
}

// works fails the test unless the service executes a command.
func (s *served) works() {
	s.Helper()
	cl, stdout, stderr := s.client()
	if err := cl.Execute(s.Context(), Timeline{Name: s.run}); err != nil || !strings.Contains(stdout.String(), s.run) || stderr.Len() > 0 {
		s.Fatalf("%v: %s%s", err, stdout, stderr)
	}
}

// dial connects with handlers for the output.
func (s *served) dial(output privsep.Handler) *remote.Client {
	s.Helper()
	c, err := remote.Dial(s.socket, func(*privsep.Conn) map[string]privsep.Handler {
		return map[string]privsep.Handler{outputCall: output}
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

func discard(_ context.Context, _ []byte, _ []*os.File) (any, []*os.File, error) {
	return written{}, nil, nil
}

// memory returns a file in memory with this text.
func (s *served) memory(text string) *os.File {
	s.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		s.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	s.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		s.Fatal(err)
	}
	return f
}

// TestRefused: the service executes only its own commands, and opens no file that a client names.
func TestRefused(t *testing.T) {
	s := newServed(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of root"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(secret)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, c := range []struct {
		name, path, text string
		file             *os.File // in place of text
		want             string   // in the error; "": the command runs, and fails
	}{
		{"another command", "template build", "{}", nil, "does not execute"},
		{"no command", "", "{}", nil, "does not execute"},
		{"a flag", "runs --store=x", "{}", nil, "does not execute"},
		{"garbage", "runs", "\x00\xff", nil, "invalid character"},
		{"an unknown field", "runs", `{"Store":"sqlite:/etc/shadow"}`, nil, "unknown field"},
		{"two values", "runs", `{}{}`, nil, "more than one value"},
		{"nothing", "runs", "", nil, "EOF"},
		{"too much", "runs", `{"Project":"` + strings.Repeat("x", maxCommand) + `"}`, nil, "not accepted"},
		{"a file that is not in memory", "runs", "", other, "no file in memory"},
		{"a path as a run", "timeline", `{"Name":"` + secret + `"}`, nil, ""},
		{"a path upwards", "verify", `{"Run":"../../../../../../` + secret + `","Trusted":{"Within":1}}`, nil, ""},
		{"a descriptor", "timeline", `{"Name":"/proc/self/fd/3"}`, nil, ""},
		{"a link", "timeline", `{"Name":"` + link + `"}`, nil, ""},
		{"a file as a key", "verify", `{"Run":"last","Trusted":{"Keys":["` + secret + `"],"Within":1}}`, nil, ""},
		{"a file as a witness", "verify", `{"Run":"last","Trusted":{"Witnesses":["` + secret + `"],"Within":1}}`, nil, ""},
		{"a file as a policy", "policy set", `{"Name":"last","File":"` + secret + `"}`, nil, ""},
		{"a control character", "policy set", `{"Name":"last","File":"\u001b]0;x","Text":"eA=="}`, nil, ""},
		{"a negative limit", "runs", `{"Limit":-5}`, nil, "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said strings.Builder
			conn := s.dial(func(_ context.Context, body []byte, _ []*os.File) (any, []*os.File, error) {
				var o output
				err := json.Unmarshal(body, &o)
				said.Write(o.Data)
				return written{}, nil, err
			})
			f := c.file
			if f == nil {
				f = s.memory(c.text)
			}
			var r result
			_, err := conn.Call(t.Context(), commandCall, request{Path: c.path, Width: -7}, &r, f)
			switch {
			case c.want == "-":
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("the error is %v", err)
			case c.want == "" && (err != nil || r.Code == 0):
				t.Errorf("it exits %d: %v", r.Code, err)
			}
			if strings.Contains(said.String(), "of root") || strings.Contains(said.String(), "\x1b") {
				t.Errorf("it prints %q", said.String())
			}
		})
	}
	s.works()
}

// TestRecorded: a command is recorded before it is executed, and not executed if it cannot be recorded.
func TestRecorded(t *testing.T) {
	s := newServed(t)
	cl, stdout, _ := s.client()
	if err := cl.Execute(t.Context(), Verify{Run: s.run}); err == nil {
		t.Error("verification without a time limit succeeds")
	}
	a := s.accesses[0]
	if !strings.HasSuffix(a.Who, "(uid 0)") || a.Action != "verify" || a.Route != "custody verify" || string(a.About) != s.run || a.Verdict != audit.Allow {
		t.Errorf("recorded is %+v", a)
	}
	stdout.Reset()
	s.mu.Lock()
	s.refuse = errors.New("the disk is full")
	s.mu.Unlock()
	if err := cl.Execute(t.Context(), Runs{}); err == nil || !strings.Contains(err.Error(), "not executed") || stdout.Len() > 0 {
		t.Errorf("%v: %s", err, stdout)
	}
}

// TestUnread: clients that do not read their output use up only their own number of commands, and block no one.
func TestUnread(t *testing.T) {
	s := newServed(t)
	begun := make(chan struct{}, maxOfUser)
	hold := func(ctx context.Context, _ []byte, _ []*os.File) (any, []*os.File, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	var conns []*remote.Client
	for range maxOfUser {
		c := s.dial(hold)
		conns = append(conns, c)
		go c.Call(t.Context(), commandCall, request{Path: "timeline"}, nil, s.memory(`{"Name":"last"}`))
		<-begun
	}
	cl, _, _ := s.client()
	if err := cl.Execute(t.Context(), Runs{}); err == nil || !strings.Contains(err.Error(), "wait until one of them ends") {
		t.Errorf("one more command: %v", err)
	}
	leave, err := s.enter(1234)
	if err != nil {
		t.Errorf("a command of another user: %v", err)
	} else {
		leave()
	}
	for _, c := range conns {
		c.Conn.Close()
	}
	for end := time.Now().Add(time.Minute); s.running() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d commands are left after their clients", s.running())
		}
	}
	s.works()
}

func (s *served) running() int {
	s.Server.mu.Lock()
	defer s.Server.mu.Unlock()
	return s.total
}

// TestOneCommand: a connection executes one command.
func TestOneCommand(t *testing.T) {
	s := newServed(t)
	c := s.dial(discard)
	var r result
	if _, err := c.Call(t.Context(), commandCall, request{Path: "runs"}, &r, s.memory("{}")); err != nil || r.Code != 0 {
		t.Fatal(r, err)
	}
	if _, err := c.Call(t.Context(), commandCall, request{Path: "runs"}, &r, s.memory("{}")); err == nil {
		t.Error("it executes two")
	}
	if _, err := c.Call(t.Context(), commandCall, request{Path: "runs"}, &r); err == nil {
		t.Error("it executes one without a file")
	}
}

// TestFloodOfGarbage: what is no message ends only its own connection.
func TestFloodOfGarbage(t *testing.T) {
	s := newServed(t)
	for _, text := range []string{"x", "{}", `{"id":1,"call":"none","body":{}}`, `{"id":1,"call":"command","body":7}`, strings.Repeat("x", 100_000)} {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.socket, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if _, err := io.WriteString(c, text); err != nil {
				break // the service has closed it
			}
		}
		c.Close()
	}
	s.works()
}

// panics is a command with a mistake.
type panics struct{ Runs }

// Execute implements Command.
func (panics) Execute(context.Context, *Env) error { panic("a mistake") }

// TestPanic: a panic in a command ends the command only.
func TestPanic(t *testing.T) {
	s := newServed(t)
	p := &peer{server: s.Server, conn: func() *privsep.Conn { return nil }}
	if _, err := p.run(t.Context(), t.Context(), panics{}, request{}); err == nil || !strings.Contains(err.Error(), "mistake in custody's own code") {
		t.Errorf("the error is %v", err)
	}
}

// TestClientFile: a compromised service cannot have the client write another file than the one that the user named, nor one that is
// not complete.
func TestClientFile(t *testing.T) {
	dir := t.TempDir()
	env := &Env{Stdout: io.Discard, Replace: regular.Replace}
	s := &screen{env: env}
	if _, _, err := s.replace(t.Context(), struct{}{}); err == nil {
		t.Error("a command without a file writes one")
	}
	if _, _, err := s.output(t.Context(), output{toFile, []byte("x")}); err == nil {
		t.Error("output goes to a file that was not begun")
	}
	s.path = filepath.Join(dir, "out")
	if _, _, err := s.replace(t.Context(), struct{}{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.replace(t.Context(), struct{}{}); err == nil {
		t.Error("two files are written")
	}
	if _, _, err := s.output(t.Context(), output{toFile, []byte("a part")}); err != nil {
		t.Fatal(err)
	}
	s.abandon()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
