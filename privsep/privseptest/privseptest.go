// Package privseptest starts the programs of tests as workers.
package privseptest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/vmm/confine"
)

// modeEnv names what the program of a test does as a worker.
const modeEnv = "CUSTODY_TEST_WORKER"

// Mode returns what this process is to do if it is a worker, else "".
func Mode() string { return os.Getenv(modeEnv) }

// Main runs the tests of a package and ends the program. In a worker it calls work instead.
func Main(m *testing.M, work func() error) {
	if Mode() == "" {
		os.Exit(m.Run())
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Worker describes this test's program as a worker, which finds mode with Mode. Unlike the released program it may
// need the host's libraries.
func Worker(mode string) privsep.Worker {
	w := privsep.Worker{Env: []string{modeEnv + "=" + mode}, Stderr: os.Stderr, Memory: 256 << 20}
	for name, path := range map[string]string{"/lib64": "/usr/lib64", "/lib/x86_64-linux-gnu": "/usr/lib/x86_64-linux-gnu"} {
		w.Binds = append(w.Binds, confine.Bind{Path: path, Name: name, Flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV, Optional: true})
	}
	return w
}

// Start starts a worker, which is ended with the test.
func Start(t testing.TB, w privsep.Worker, handlers map[string]privsep.Handler) *privsep.Process {
	t.Helper()
	p, err := w.Start(t.Context(), handlers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("the worker: %v", err)
		}
	})
	return p
}

// Connect returns one end of a connection whose other end, in this process too, carries out the calls of handlers.
func Connect(t testing.TB, handlers map[string]privsep.Handler) *privsep.Conn {
	t.Helper()
	return ConnectKinds(t, handlers, nil)
}

// ConnectKinds is Connect with errors that keep their identity.
func ConnectKinds(t testing.TB, handlers map[string]privsep.Handler, kinds privsep.Kinds) *privsep.Conn {
	t.Helper()
	here, there, err := privsep.Pair()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := privsep.Socket(there)
	if err != nil {
		t.Fatal(err)
	}
	client, server := privsep.New(here, nil), privsep.New(socket, handlers)
	client.Kinds, server.Kinds = kinds, kinds
	ended := make(chan error, 2)
	for _, c := range []*privsep.Conn{client, server} {
		go func() { ended <- c.Run(context.Background()) }()
	}
	t.Cleanup(func() {
		client.Close()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Errorf("the connection: %v", err)
		}
	})
	return client
}
