package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
)

// newClient returns a client of a service that carries out runs.
func newClient(t *testing.T) (*client.Client, *served) {
	t.Helper()
	s := newServed(t)
	c, err := client.New(s.page(), s.admin.newToken("client", string(access.Operator)))
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// TestClient: the example of package client, and the errors of a service.
func TestClient(t *testing.T) {
	c, s := newClient(t)
	box, err := c.Create(t.Context(), client.SandboxRequest{Metadata: map[string]string{"task": "1"}})
	check(t, err)
	p, err := box.Start(t.Context(), client.ProcessRequest{Shell: "read -r a; echo got $a; echo bad >&2; exit 4", Stdin: true})
	check(t, err)
	check(t, p.Write(t.Context(), []byte("it\n")))
	var out, errs bytes.Buffer
	_, err = io.Copy(&out, p.Output(t.Context(), client.Stdout))
	check(t, err)
	_, err = io.Copy(&errs, p.Output(t.Context(), client.Stderr))
	check(t, err)
	exit, err := p.Wait(t.Context())
	check(t, err)
	if out.String() != "got it\n" || errs.String() != "bad\n" || exit.ExitCode == nil || *exit.ExitCode != 4 {
		t.Errorf("%q, %q, %+v", out.String(), errs.String(), exit)
	}
	list, err := c.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != box.ID || list[0].Metadata["task"] != "1" {
		t.Errorf("%+v, %v", list, err)
	}
	_, err = c.Sandbox("r-unknown").Info(t.Context())
	if !client.IsStatus(err, http.StatusNotFound) || !strings.Contains(err.Error(), "there is no sandbox") {
		t.Errorf("an unknown sandbox: %v", err)
	}
	if _, err := c.Sandbox("..").Info(t.Context()); err == nil {
		t.Error(".. is the ID of a sandbox")
	}
	check(t, box.Destroy(t.Context()))
	check(t, box.Destroy(t.Context()))
	if _, err := box.Start(t.Context(), client.ProcessRequest{Shell: "true"}); !client.IsStatus(err, http.StatusGone) {
		t.Errorf("a process in a sandbox that has ended: %v", err)
	}
	s.admin.verified(box.ID)
	for address, token := range map[string]string{"https://": "t", "ftp://host": "t", "http://192.0.2.1:80": "t", "http://127.evil.example": "t", "https://host": " "} {
		if _, err := client.New(address, token); err == nil {
			t.Errorf("%s with the token %q is accepted", address, token)
		}
	}
	wrong, err := client.New(s.page(), "cst_wrong")
	check(t, err)
	if _, err := wrong.List(t.Context()); !client.IsStatus(err, http.StatusUnauthorized) {
		t.Errorf("a wrong token: %v", err)
	}
}

// TestOutputResumes: an output that is read over connections that break is read as a whole.
func TestOutputResumes(t *testing.T) {
	c, _ := newClient(t)
	dial := new(net.Dialer)
	c.HTTP = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial.DialContext(ctx, network, address)
		return &breaking{Conn: conn, left: 40_000}, err
	}}}
	box, err := c.Create(t.Context(), client.SandboxRequest{})
	check(t, err)
	p, err := box.Start(t.Context(), client.ProcessRequest{Shell: "seq 60000"})
	check(t, err)
	var want strings.Builder
	for i := range 60000 {
		fmt.Fprintln(&want, i+1)
	}
	got, err := io.ReadAll(p.Output(t.Context(), client.Stdout))
	if err != nil || string(got) != want.String() {
		t.Errorf("%d of %d bytes, %v", len(got), want.Len(), err)
	}
}

// TestOutputFromRecord: what is not in the memory of the service any more is read from the record.
func TestOutputFromRecord(t *testing.T) {
	c, _ := newClient(t)
	box, err := c.Create(t.Context(), client.SandboxRequest{})
	check(t, err)
	p, err := box.Start(t.Context(), client.ProcessRequest{Shell: "seq 500000"})
	check(t, err)
	_, err = p.Wait(t.Context())
	check(t, err)
	var want strings.Builder
	for i := range 500000 {
		fmt.Fprintln(&want, i+1)
	}
	for _, offset := range []int64{0, 1000} {
		got, err := io.ReadAll(p.OutputFrom(t.Context(), client.Stdout, offset))
		if err != nil || string(got) != want.String()[offset:] {
			t.Errorf("from %d: %d of %d bytes, %v", offset, len(got), want.Len(), err)
		}
	}
}

// TestSlowReader: a process waits for the client that follows its output, which so receives all of it, also what the record does not have any more;
// other processes of the sandbox continue. A client that comes too late gets an error.
func TestSlowReader(t *testing.T) {
	c, s := newClient(t)
	file := filepath.Join(s.admin.dir, "chatty.yaml")
	s.admin.write(file, "version: 1\nproject: chatty\nrecord: {output: 1MiB}\n")
	s.admin.must(0, "project", "apply", file)
	box, err := c.Create(t.Context(), client.SandboxRequest{Project: "chatty"})
	check(t, err)
	const size = 32 << 20 // more than the sockets between them hold
	p, err := box.Start(t.Context(), client.ProcessRequest{Shell: fmt.Sprintf("printf y; read -r a; head -c %d /dev/zero | tr '\\0' y", size), Stdin: true})
	check(t, err)
	out := p.Output(t.Context(), client.Stdout)
	_, err = io.ReadFull(out, make([]byte, 1)) // it follows before the process prints more
	check(t, err)
	check(t, p.Write(t.Context(), []byte("go\n")))
	other, err := box.Start(t.Context(), client.ProcessRequest{Shell: "sleep 1; echo continues"})
	check(t, err)
	if said, err := io.ReadAll(other.Output(t.Context(), client.Stdout)); err != nil || string(said) != "continues\n" {
		t.Errorf("another process: %q, %v", said, err)
	}
	if info, err := p.Info(t.Context()); err != nil || info.Ended != nil {
		t.Errorf("the process did not wait: %+v, %v", info, err)
	}
	rest, err := io.ReadAll(out)
	if err != nil || len(rest) != size || len(bytes.Trim(rest, "y")) > 0 {
		t.Errorf("%d of %d bytes, %v", len(rest), size, err)
	}
	eventually(t, "gone: output that is not recorded", func() bool {
		_, err := io.Copy(io.Discard, p.OutputFrom(t.Context(), client.Stdout, 2<<20))
		return client.IsStatus(err, http.StatusGone) && strings.Contains(err.Error(), "record.output")
	})
}

// TestAlteredOutput: after a restart of the service a client gets what was recorded of its sandbox, but not what was altered in the store.
func TestAlteredOutput(t *testing.T) {
	c, s := newClient(t)
	var boxes [2]*client.Box
	for i := range boxes {
		box, err := c.Create(t.Context(), client.SandboxRequest{})
		check(t, err)
		p, err := box.Start(t.Context(), client.ProcessRequest{Shell: "echo genuine"})
		check(t, err)
		_, err = p.Wait(t.Context())
		check(t, err)
		check(t, box.Destroy(t.Context()))
		boxes[i] = box
	}
	s.stop()
	s.admin.sqlite("UPDATE records SET body = replace(body, 'genuine', 'altered') WHERE run = '" + boxes[1].ID + "'")
	s.start()
	again, err := client.New(s.page(), s.admin.newToken("again", string(access.Operator)))
	check(t, err)
	if out, err := io.ReadAll(again.Sandbox(boxes[0].ID).Process("p1").Output(t.Context(), client.Stdout)); err != nil || string(out) != "genuine\n" {
		t.Errorf("%q, %v", out, err)
	}
	p := again.Sandbox(boxes[1].ID).Process("p1")
	if out, err := io.ReadAll(p.Output(t.Context(), client.Stdout)); !client.IsStatus(err, http.StatusConflict) || len(out) > 0 {
		t.Errorf("altered: %q, %v", out, err)
	}
	if info, err := p.Info(t.Context()); !client.IsStatus(err, http.StatusConflict) {
		t.Errorf("altered: %+v, %v", info, err)
	}
}

// breaking is a connection that breaks after some bytes were read.
type breaking struct {
	net.Conn
	mu   sync.Mutex // guards left
	left int
}

func (b *breaking) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left <= 0 {
		b.Conn.Close()
		return 0, errors.New("the test breaks the connection")
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// TestSandboxKilled: a killed service leaves nothing of its sandboxes, and their records are closed as interrupted.
func TestSandboxKilled(t *testing.T) {
	c, s := newClient(t)
	box, err := c.Create(t.Context(), client.SandboxRequest{})
	check(t, err)
	_, err = box.Start(t.Context(), client.ProcessRequest{Shell: "sleep 1000"})
	check(t, err)
	left := map[int]child{}
	for _, c := range below(s.serve.Process.Pid) {
		left[c.pid] = c
	}
	check(t, s.serve.Process.Kill())
	s.serve.Wait()
	s.start()                                 // in place of the socket's file
	s.user.must(0, "run", "-q", "--", "true") // closes the record
	s.admin.nothingLeft(left)
	if run := s.admin.must(0, "timeline", box.ID).stdout; !strings.Contains(run, "interrupted") {
		t.Errorf("the run of the sandbox: %s", run)
	}
	s.admin.verified(box.ID)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
