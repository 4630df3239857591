// Package clickhousetest starts real ClickHouse servers for tests.
package clickhousetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Server is the current engine behind its HTTP interface (hack/chdb), with a
// directory that outlives its process.
type Server struct {
	t       testing.TB
	dir     string
	address string
	cmd     *exec.Cmd
	stdin   io.Closer
	names   atomic.Int64
}

// Start starts a server that is stopped at the end of the test. The program is $CUSTODY_TEST_CHDB,
// which hack/build-chdb prints; without it the test fails.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), address: "127.0.0.1:0"}
	s.Restart()
	t.Cleanup(s.Stop)
	return s
}

// Program returns the path of the server's program.
func Program(t testing.TB) string {
	t.Helper()
	program := os.Getenv("CUSTODY_TEST_CHDB")
	if program == "" {
		t.Fatal("CUSTODY_TEST_CHDB is not set: it is what hack/build-chdb prints")
	}
	return program
}

// Restart starts the server with its directory, at the same address as before.
func (s *Server) Restart() {
	s.t.Helper()
	cmd := exec.Command(Program(s.t), "-listen", s.address, "-path", filepath.Join(s.dir, "data"))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // closing it, as the end of the test process does, ends the server
	if err != nil {
		s.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.cmd, s.stdin = cmd, stdin
	line := make(chan string, 1)
	go func() { // ends with the server's output
		text, _ := bufio.NewReader(stdout).ReadString('\n')
		line <- text
	}()
	var ready struct{ Address string }
	select {
	case text := <-line:
		if err := json.Unmarshal([]byte(text), &ready); err != nil {
			s.t.Fatalf("the ClickHouse server did not start: it said %q", text)
		}
	case <-time.After(2 * time.Minute):
		s.t.Fatal("the ClickHouse server did not start in two minutes")
	}
	s.address = ready.Address
}

// Kill kills the server with SIGKILL.
func (s *Server) Kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait() //nolint:errcheck // it was killed
		s.cmd = nil
	}
}

// Stop stops the server normally.
func (s *Server) Stop() {
	if s.cmd != nil {
		s.stdin.Close()
		s.cmd.Wait() //nolint:errcheck // its data are discarded
		s.cmd = nil
	}
}

// Dir returns the server's data directory.
func (s *Server) Dir() string { return filepath.Join(s.dir, "data") }

// DSN returns the DSN of a database of the server.
func (s *Server) DSN(database string) string { return "http://" + s.address + "/" + database }

// Fresh returns the DSN of a database that does not exist.
func (s *Server) Fresh() string { return s.DSN(fmt.Sprintf("fresh%d", s.names.Add(1))) }
