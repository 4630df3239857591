package main

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// peer is a network namespace in the role of another machine.
type peer struct {
	t       *testing.T
	ns      netns.NsHandle
	address string
}

// twoPeers makes two, with one wire between them and none to anywhere else:
//
//	agents 10.77.0.1/24 ---- veth ---- 10.77.0.2/24 ops
func twoPeers(t *testing.T) (agents, ops *peer) {
	t.Helper()
	agents, ops = &peer{t: t, address: "10.77.0.1"}, &peer{t: t, address: "10.77.0.2"}
	for _, m := range []*peer{agents, ops} {
		m.do(func() (err error) { // a thread of its own, which ends with it
			m.ns, err = netns.New()
			return err
		}, false)
		t.Cleanup(func() { m.ns.Close() })
	}
	agents.do(func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wire"}, PeerName: "wire", PeerNamespace: netlink.NsFd(ops.ns)})
	}, true)
	for _, m := range []*peer{agents, ops} {
		m.do(func() error {
			for _, name := range []string{"lo", "wire"} {
				link, err := netlink.LinkByName(name)
				if err != nil {
					return err
				}
				if name == "wire" {
					address, err := netlink.ParseAddr(m.address + "/24")
					if err != nil {
						return err
					}
					if err := netlink.AddrAdd(link, address); err != nil {
						return err
					}
				}
				if err := netlink.LinkSetUp(link); err != nil {
					return err
				}
			}
			return nil
		}, true)
	}
	return agents, ops
}

// do calls f on a thread that is not used again. With enter it is in the machine's namespace.
func (m *peer) do(f func() error, enter bool) {
	m.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var err error
		if enter {
			err = netns.Set(m.ns)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		m.t.Fatal(err)
	}
}

// start begins a program on the machine.
func (m *peer) start(cmd *exec.Cmd) (err error) {
	m.do(func() error {
		err = cmd.Start()
		return nil
	}, true)
	return err
}

// serve starts a server on the machine and ends it with the test, politely.
func (m *peer) serve(cmd *exec.Cmd) {
	m.t.Helper()
	log, err := os.CreateTemp(m.t.TempDir(), "server-*.log")
	if err != nil {
		m.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := m.start(cmd); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		timer.Stop()
		if text, err := os.ReadFile(log.Name()); err == nil && m.t.Failed() {
			m.t.Logf("%s said:\n%.4000s", filepath.Base(cmd.Path), text)
		}
		log.Close()
	})
}

// reach waits until something listens at an address on the machine.
func (m *peer) reach(address string) {
	m.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		var err error
		m.do(func() error {
			var c net.Conn
			if c, err = net.DialTimeout("tcp", address, time.Second); err == nil {
				c.Close()
			}
			return nil
		}, true)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("nothing listens at %s: %v", address, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// program returns a test server's path, which hack/test builds.
func program(t *testing.T, env string) string {
	t.Helper()
	path := os.Getenv(env)
	if path == "" {
		t.Fatalf("%s is not set: run `make test`, which builds that server", env)
	}
	return path
}

// lines returns the lines of a text.
func lines(text string) (all []string) {
	s := bufio.NewScanner(strings.NewReader(text))
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		all = append(all, s.Text())
	}
	return all
}
