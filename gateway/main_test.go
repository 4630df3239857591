package gateway

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// The tests run in separate network namespaces, which are removed with the process: the test binary runs itself again in
// a new one, the host's.
//
//	+- host ----------------------------------+   +- sandbox ------------------+
//	| lo: 127.0.0.1, ::1                      |   | lo: 198.18.0.0/16 (AnyIP)  |
//	|     93.184.0.0/16 (AnyIP), 2606:2800::x |   |                            |
//	|                                         |   |  clients: Go, curl, git,   |
//	|  DNS server, web servers                |   |  python3, node, openssl    |
//	|        ^                                |   |        |                   |
//	|        +---- gateway dials       gateway's listeners <-+                 |
//	+-----------------------------------------+   +----------------------------+
//
// Only the gateway connects the two. It is one process in the host's namespace, with sockets that were made in the
// sandbox.
const inHost = "CUSTODY_GATEWAY_TEST_SITE"

var sandbox netns.NsHandle // set once, before the tests

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" || isFuzzWorker() {
		os.Exit(m.Run()) // fuzz targets need no network, and their workers must be children of the original process
	}
	if os.Getenv(inHost) == "" {
		os.Exit(again())
	}
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, "make the namespaces:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func isFuzzWorker() bool {
	f := flag.Lookup("test.fuzzworker")
	return f != nil && f.Value.String() == "true"
}

// again runs the tests in a new network namespace.
func again() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inHost+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the child is killed when this thread ends
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "these tests need root, for a network namespace:", err)
		return 1
	}
	return 0
}

func build() error {
	if err := loopback("93.184.0.0/16"); err != nil {
		return err
	}
	for i := 1; i < 32; i++ {
		if err := address(fmt.Sprintf("2606:2800::%x/128", i)); err != nil {
			return err
		}
	}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		var err error
		if sandbox, err = netns.New(); err == nil {
			err = loopback("198.18.0.0/16")
		}
		made <- err
	}()
	return <-made
}

// loopback brings lo up and makes a range local.
func loopback(cidr string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: syscall.RTN_LOCAL, Table: 255, Scope: netlink.SCOPE_HOST})
}

func address(cidr string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	a.Flags = syscall.IFA_F_NODAD
	return netlink.AddrAdd(lo, a)
}

// inSandbox runs f on a thread inside the sandbox. Sockets and processes that f makes are in the sandbox; f must not
// start goroutines that make others.
func inSandbox(tb testing.TB, f func() error) {
	tb.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // as in build
		err := netns.Set(sandbox)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
}
