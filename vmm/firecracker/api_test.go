package firecracker

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serve answers each connection to a unix socket with the bytes of answer, after it has read the request. It returns the
// socket's path.
func serve(t *testing.T, answer func(io.Writer)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	ok(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			conn.Read(make([]byte, 4096))
			answer(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return path
}

// dialPath connects to the socket at a path, whose listener must have this uid.
func dialPath(path string, uid int) dialer {
	return func(ctx context.Context) (net.Conn, error) {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return dialOwned(ctx, fd, path, uid)
	}
}

// TestGarbage: an answer that is none results in an error soon, whatever it is.
func TestGarbage(t *testing.T) {
	answer := func(s string) func(io.Writer) { return func(w io.Writer) { io.WriteString(w, s) } }
	for name, c := range map[string]struct {
		answer func(io.Writer)
		want   string
	}{
		"nothing":              {answer(""), "EOF"},
		"no HTTP":              {answer("\x00\xff garbage\r\n\r\n"), "malformed HTTP"},
		"endless header":       {func(w io.Writer) { writeEndless(w, "HTTP/1.1 200 OK\r\nA: ", "a") }, "header"},
		"endless body":         {func(w io.Writer) { writeEndless(w, "HTTP/1.1 200 OK\r\n\r\n", "b") }, "more than 65536 bytes"},
		"no JSON":              {answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<ok>"), "unreadable answer"},
		"cut off":              {answer("HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n{"), "unexpected EOF"},
		"another success":      {answer("HTTP/1.1 204 No Content\r\n\r\n"), "unexpected answer: status 204"},
		"redirected":           {answer("HTTP/1.1 302 Found\r\nLocation: http://localhost/other\r\nContent-Length: 0\r\n\r\n"), "unexpected answer: status 302"},
		"failure":              {answer("HTTP/1.1 400 Bad Request\r\nContent-Length: 26\r\n\r\n{\"fault_message\":\"no\\nway\"}"), "unexpected answer: status 400"},
		"failure with message": {answer("HTTP/1.1 400 Bad Request\r\nContent-Length: 27\r\n\r\n{\"fault_message\":\"no\\nway\"}"), `status 400: "no\nway"`},
		"hangs":                {func(io.Writer) { time.Sleep(2 * time.Second) }, "no answer within 500ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(dialPath(serve(t, c.answer), os.Getuid()))
			a.limit = 500 * time.Millisecond
			if name == "endless body" || name == "endless header" {
				a.limit = 20 * time.Second
			}
			defer a.close()
			var got struct{}
			began := time.Now()
			err := a.get(t.Context(), "/version", &got)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "firecracker's API: GET /version") {
				t.Errorf("%v, want %q", err, c.want)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("after %v", took)
			}
		})
	}
}

// writeEndless writes first and then a repeated piece until the other end closes.
func writeEndless(w io.Writer, first, piece string) {
	block := []byte(strings.Repeat(piece, 32<<10))
	_, err := io.WriteString(w, first)
	for err == nil {
		_, err = w.Write(block)
	}
}

// TestForeignSocket: a socket that a process of another user listens on is not used, for the API as for the channel.
func TestForeignSocket(t *testing.T) {
	path := serve(t, func(w io.Writer) { io.WriteString(w, "OK 1\n") })
	a := newAPI(dialPath(path, os.Getuid()+1))
	defer a.close()
	if err := a.put(t.Context(), "/vm", nil); err == nil || !strings.Contains(err.Error(), "belongs to a process of uid") {
		t.Errorf("API: %v", err)
	}
	s := newStream(dialPath(path, os.Getuid()+1), nil)
	time.AfterFunc(100*time.Millisecond, func() { s.Close() })
	if _, err := s.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "belongs to a process of uid") {
		t.Errorf("channel: %v", err)
	}
	s.Close()
}

// TestStream: the stream connects when the guest listens, and its bytes are those after the confirmation.
func TestStream(t *testing.T) {
	tries := 0
	path := serve(t, func(w io.Writer) {
		if tries++; tries < 4 {
			return // the guest does not listen yet
		}
		io.WriteString(w, "OK 1073741824\nREADY\n")
	})
	s := newStream(dialPath(path, os.Getuid()), nil)
	defer s.Close()
	if b, err := io.ReadAll(s); string(b) != "READY\n" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
}

// TestStreamEnds: neither Close nor the end of the machine leaves a Read waiting.
func TestStreamEnds(t *testing.T) {
	for name, end := range map[string]func(s *stream, gone chan struct{}){
		"closed":           func(s *stream, _ chan struct{}) { s.Close() },
		"the machine ends": func(_ *stream, gone chan struct{}) { close(gone) },
	} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			s := newStream(dialPath(filepath.Join(t.TempDir(), "none"), os.Getuid()), gone)
			time.AfterFunc(50*time.Millisecond, func() { end(s, gone) })
			if _, err := s.Read(make([]byte, 1)); err == nil {
				t.Error("no error")
			}
			s.Close()
			if _, err := s.Write([]byte("x")); err == nil {
				t.Error("no error after Close")
			}
		})
	}
}

func FuzzReadOK(f *testing.F) {
	for _, s := range []string{"OK 1024\n", "OK \n", "OK 99999999999\n", "", "\n", strings.Repeat("O", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := strings.NewReader(s + "rest")
		if err := readOK(r); err != nil {
			return
		}
		line, _, _ := strings.Cut(s, "\n")
		if !strings.HasPrefix(line, "OK ") || len(line) > maxOK || r.Len() != len(s)+len("rest")-len(line)-1 {
			t.Errorf("accepted %q, %d bytes are left", s, r.Len())
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add(200, []byte(`{"firecracker_version":"1.17.0"}`))
	f.Add(400, []byte(`{"fault_message":"no"}`))
	f.Add(204, []byte(nil))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		var answer struct {
			Version string `json:"firecracker_version"`
		}
		if err := decodeAnswer(status, body, &answer); err == nil && status != 200 {
			t.Errorf("status %d is no error", status)
		}
		if err := decodeAnswer(status, body, nil); err == nil && status != 204 {
			t.Errorf("status %d is no error", status)
		}
	})
}

func FuzzParseVersion(f *testing.F) {
	f.Add("Firecracker v1.17.0-dev")
	f.Add("Jailer v1.7.0")
	f.Fuzz(func(t *testing.T, line string) {
		if v, err := parseVersion(line, "Firecracker"); err == nil && line != "Firecracker v"+v.text {
			t.Errorf("%q is version %q", line, v.text)
		}
	})
}

// program writes a shell script and returns its path.
func program(t *testing.T, name, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	ok(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
	return path
}

// TestVersions: programs that are missing, broken, too old or of different releases are refused with the reason.
func TestVersions(t *testing.T) {
	says := func(name, s string) string { return program(t, name, "echo '"+s+"'\n") }
	good := says("jailer", "Jailer v1.16.1")
	for name, c := range map[string]struct{ firecracker, jailer, want string }{
		"not set":          {"", good, "isolation.firecracker is not set in host.yaml"},
		"no jailer":        {says("firecracker", "Firecracker v1.16.1"), "", "isolation.jailer is not set in host.yaml"},
		"missing":          {"/nowhere/firecracker", good, "isolation.firecracker: stat /nowhere/firecracker"},
		"a directory":      {t.TempDir(), good, "is not a program"},
		"fails":            {program(t, "firecracker", "exit 3"), good, "exit status 3"},
		"another program":  {says("firecracker", "runsc version 1"), good, "this is not firecracker"},
		"garbage":          {program(t, "firecracker", "head -c 100000 /dev/urandom"), good, "this is not firecracker"},
		"exchanged":        {good, says("firecracker", "Firecracker v1.16.1"), "this is not firecracker"},
		"too old":          {says("firecracker", "Firecracker v1.7.0"), says("jailer", "Jailer v1.7.0"), "Custody supports versions from 1.8"},
		"too new":          {says("firecracker", "Firecracker v2.0.0"), says("jailer", "Jailer v2.0.0"), "to below 2.0"},
		"different":        {says("firecracker", "Firecracker v1.17.0"), good, "take both from one release"},
		"killed by itself": {program(t, "firecracker", "kill -9 $$"), good, "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(t.Context(), Paths{c.firecracker, c.jailer}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestVersionHangs: a program that does not end is ended with the context.
func TestVersionHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := New(ctx, Paths{program(t, "firecracker", "sleep 600"), "/bin/true"})
	if err == nil || time.Since(began) > time.Minute {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
