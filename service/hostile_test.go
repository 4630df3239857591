package service

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/service/remote"
)

// errNoRuns is why no run begins on these tests' servers.
var errNoRuns = errors.New("no runs here")

// startServer starts a server without a host, and returns its socket and a function that ends it.
func startServer(t *testing.T, s *Server) (path string, stop func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "socket")
	l, err := Listen(t.Context(), noEnv, path, "root")
	if err != nil {
		t.Fatal(err)
	}
	s.Open = func() (*host.Host, error) { return nil, errNoRuns }
	s.Notice, s.Problem = func(string) {}, func(error) {}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return path, stop
}

func noEnv(string) string { return "" }

// answers fails the test unless the server serves a client.
func answers(t *testing.T, path string) {
	t.Helper()
	u := remote.User{Problem: func(err error) { t.Error(err) }}
	if _, err := remote.Run(t.Context(), path, remote.Request{Command: []string{"true"}}, u); err == nil || err.Error() != errNoRuns.Error() {
		t.Fatalf("the server answers %v", err)
	}
}

// dial returns a socket for messages of any kind.
func dial(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestGarbage: a client that violates the protocol loses its connection, and nothing else happens.
func TestGarbage(t *testing.T) {
	path, _ := startServer(t, &Server{})
	many := make([]int, privsep.MaxFiles+1)
	for i := range many {
		many[i] = int(os.Stderr.Fd())
	}
	for name, send := range map[string]struct {
		text string
		fds  []int
	}{
		"empty":                 {"", nil},
		"garbage":               {"\x00\xff garbage", nil},
		"no object":             {"7", nil},
		"an unknown field":      {`{"id":1,"call":"cancel","body":{},"more":1}`, nil},
		"an unknown call":       {`{"id":1,"call":"copy-out-open","body":{}}`, nil},
		"no id":                 {`{"call":"cancel","body":{}}`, nil},
		"a result of no call":   {`{"id":1,"body":{}}`, nil},
		"too large":             {`{"id":1,"call":"cancel","body":"` + strings.Repeat("x", privsep.MaxMessage) + `"}`, nil},
		"too many descriptors":  {`{"id":1,"call":"run","body":{}}`, many},
		"deeply nested":         {strings.Repeat("[", 60_000), nil},
		"a call and a failure":  {`{"id":1,"call":"cancel","error":"x","body":{}}`, nil},
		"two values":            {`{"id":1,"call":"cancel","body":{}}{}`, nil},
		"a message with no end": {`{"id":1,"call":"cancel"`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, path)
			var rights []byte
			if send.fds != nil {
				rights = unix.UnixRights(send.fds...)
			}
			if _, _, err := c.WriteMsgUnix([]byte(send.text), rights, nil); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(make([]byte, 1)); err == nil && n > 0 {
				t.Error("the server answers")
			}
			answers(t, path)
		})
	}
}

// TestWrongRequests: a request that no client sends is refused.
func TestWrongRequests(t *testing.T) {
	path, _ := startServer(t, &Server{})
	memory := func(v any) *os.File {
		f, err := privsep.Memory("request", v)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	device, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	defer read.Close()
	name := "../../etc"
	for _, c := range []struct {
		what, want string
		files      []*os.File
	}{
		{"no request", "0 descriptors", nil},
		{"two requests", "2 descriptors", []*os.File{device, device}},
		{"a device", "no file in memory", []*os.File{device}},
		{"a pipe", "no file in memory", []*os.File{read}},
		{"an unknown field", "unknown field", []*os.File{memory(map[string]int{"More": 1})}},
		{"a large request", "is not accepted", []*os.File{memory(strings.Repeat("x", remote.MaxRequest))}},
		{"a path as a project", "cannot be the name", []*os.File{memory(remote.Request{Source: run.Source{Project: &name}})}},
		{"a relative path", "no absolute path", []*os.File{memory(remote.Request{Source: run.Source{File: "../x", Text: []byte{}}})}},
		{"a NUL", "has a NUL", []*os.File{memory(remote.Request{Command: []string{"a\x00b"}})}},
		{"a long path", "is no path", []*os.File{memory(remote.Request{Out: strings.Repeat("/x", maxPath)})}},
	} {
		client, err := remote.Dial(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Call(t.Context(), remote.CallRun, remote.None{}, nil, c.files...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	answers(t, path)
}

// TestFlood: calls without end, whose answers are not read, and connections without end do not keep others from being served.
func TestFlood(t *testing.T) {
	path, stop := startServer(t, &Server{Clients: Limit{All: 8, OfUser: 4}})
	flood := dial(t, path)
	raw, err := flood.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	full := 0
	for full < 1000 { // until the server, whose answers are not read, reads no more
		raw.Write(func(fd uintptr) bool {
			err = unix.Sendmsg(int(fd), []byte(`{"id":1,"call":"signal","body":{"Signal":9}}`), nil, nil, unix.MSG_DONTWAIT)
			return true
		})
		if errors.Is(err, unix.EAGAIN) {
			full++
		}
	}
	answers(t, path)
	var admitted []*remote.Client
	for len(admitted) < 3 { // of four; earlier clients may not have left yet
		if c, err := reach(t, path); err == nil {
			admitted = append(admitted, c)
		}
	}
	for range 10 {
		if _, err := reach(t, path); !errors.Is(err, privsep.ErrClosed) {
			t.Fatalf("a client above the limit: %v", err)
		}
	}
	u := remote.User{Problem: func(err error) { t.Error(err) }}
	if _, err := remote.Run(t.Context(), path, remote.Request{}, u); err == nil || !strings.Contains(err.Error(), "too many clients") {
		t.Errorf("a client above the limit: %v", err)
	}
	flood.Close()
	for _, c := range admitted {
		c.Close()
	}
	for { // the test's own time limit ends this
		if _, err := remote.Run(t.Context(), path, remote.Request{}, u); err != nil && err.Error() == errNoRuns.Error() {
			break
		}
	}
	stop()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's file is left: %v", err)
	}
}

// reach returns a client whose call the server has answered.
func reach(t *testing.T, path string) (*remote.Client, error) {
	t.Helper()
	c, err := remote.Dial(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), remote.CallCancel, remote.CancelCall{}, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// TestOneRun: a connection is for one run.
func TestOneRun(t *testing.T) {
	path, _ := startServer(t, &Server{})
	c, err := remote.Dial(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, want := range []string{errNoRuns.Error(), "a connection is for one run"} {
		request, err := privsep.Memory("request", remote.Request{})
		if err != nil {
			t.Fatal(err)
		}
		var o remote.Outcome
		if _, err := c.Call(t.Context(), remote.CallRun, remote.None{}, &o, request); err != nil || o.Unbegun == nil || o.Unbegun.Text != want {
			t.Errorf("%+v, %v, want %q", o, err, want)
		}
		request.Close()
	}
}

// TestFirstCall: a client that makes no call in time loses its connection; one that has made a call keeps it.
func TestFirstCall(t *testing.T) {
	expired := make(chan func(), 2) // one for each connection
	path, _ := startServer(t, &Server{after: func(d time.Duration, expire func()) func() bool {
		if d != 30*time.Second {
			t.Errorf("the limit is %v", d)
		}
		expired <- expire
		return func() bool { return true }
	}})
	silent := dial(t, path)
	(<-expired)()
	if n, err := silent.Read(make([]byte, 1)); n > 0 { // it returns when the connection has ended
		t.Errorf("a silent client got %d bytes: %v", n, err)
	}
	c, err := remote.Dial(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	expire := <-expired
	for range 2 {
		if _, err := c.Call(t.Context(), remote.CallCancel, remote.CancelCall{}, nil); err != nil {
			t.Fatal(err)
		}
		expire()
	}
}

// TestListen: a socket belongs to one server, and only what a server has left is replaced.
func TestListen(t *testing.T) {
	path, stop := startServer(t, &Server{})
	if _, err := Listen(t.Context(), noEnv, path, "root"); err == nil || !strings.Contains(err.Error(), "another server listens there") {
		t.Errorf("a live server: %v", err)
	}
	answers(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	stop()
	left, err := privsep.Listen(t.Context(), path, privsep.Access{UID: -1, GID: 0, Mode: 0o660}) // a server that was killed
	if err != nil {
		t.Fatal(err)
	}
	if err := left.UnixListener.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), noEnv, path, "root")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), noEnv, path, "root"); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("a file: %v", err)
	}
	if _, err := Listen(t.Context(), noEnv, path, "no-such-group"); err == nil || !strings.Contains(err.Error(), "no-such-group") {
		t.Errorf("a group that does not exist: %v", err)
	}
}

// FuzzRequest: what is accepted of a request fits the rules, whatever its bytes are.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"Source":{"Project":"shop","File":"/x/custody.yaml","Text":"dmVyc2lvbjogMQ=="},"Command":["true"],"Env":[{"Name":"A","Value":"b"}]}`))
	f.Add([]byte(`{"Source":{"Project":"../x"}}`))
	f.Add([]byte(`{"Out":"\u0000"}`))
	f.Add([]byte(`{"Command":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		fd, err := unix.MemfdCreate("request", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(fd), "request")
		if _, err := file.Write(text); err != nil {
			t.Fatal(err)
		}
		r, err := readRequest([]*os.File{file})
		if err != nil {
			return
		}
		if p := r.Source.Project; p != nil && (strings.ContainsAny(*p, "/.\x00") || *p == "") {
			t.Errorf("the project %q", *p)
		}
		if r.Source.Text != nil && !filepath.IsAbs(r.Source.File) {
			t.Errorf("the file %q", r.Source.File)
		}
		for _, arg := range r.Command {
			if strings.ContainsRune(arg, 0) {
				t.Errorf("the argument %q", arg)
			}
		}
		_, _ = variables(r)
		_ = (&run.Options{}).WithinDefaults(r.Source)
	})
}
