package hostd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/privsep"
)

// own has a sandbox, in a process of its own, until that is killed.
func own() error {
	_, _, err := hostd.NewClient(os.Getenv(hostd.SocketEnv)).Open(context.Background(), spec(), hostd.Events{})
	if err != nil {
		return err
	}
	fmt.Println("open")
	select {}
}

// TestStopped: the sandbox of a process that does not answer, such as one that was stopped (SIGSTOP), is ended when its lease has expired.
// That of a process that answers stays.
func TestStopped(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, rigOptions{users: []int{os.Getuid()}, max: 8, lease: 20 * time.Second})
	mine, _, err := hostd.NewClient(r.socket).Open(t.Context(), spec(), hostd.Events{})
	check(t, err)
	<-r.workers
	self, err := os.Executable()
	check(t, err)
	owner := exec.Command(self)
	owner.Env = append(os.Environ(), "CUSTODY_TEST_WORKER=owner", hostd.SocketEnv+"="+r.socket)
	owner.Stderr, owner.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := owner.StdoutPipe()
	check(t, err)
	runtime.LockOSThread() // Pdeathsig counts from the thread, which another goroutine could end
	defer runtime.UnlockOSThread()
	check(t, owner.Start())
	defer owner.Wait()
	defer owner.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("%q, %v", line, err)
	}
	p := <-r.workers
	check(t, unix.Kill(owner.Process.Pid, unix.SIGSTOP))
	r.noticed(t, "has not answered")
	<-p.Done()
	if err := mine.SetPolicy(t.Context(), nil); err != nil {
		t.Errorf("the sandbox of another process has ended: %v", err)
	}
	check(t, mine.Close())
}

// TestStoppedWarm: a warm sandbox whose worker is stopped is reported, and replaced by another one.
func TestStoppedWarm(t *testing.T) {
	t.Parallel()
	r := newPooledRig(t, 1, os.Getuid())
	register(t, r.home, shop)
	check(t, r.useOnce(t))
	r.awaitIdle(t, 1)
	var idle *privsep.Process
	for range len(r.workers) {
		p := <-r.workers
		select {
		case <-p.Done(): // that of the run
		default:
			idle = p
		}
	}
	out, err := exec.Command("pgrep", "-U", strconv.Itoa(idle.UID())).Output()
	check(t, err)
	for _, pid := range strings.Fields(string(out)) {
		n, err := strconv.Atoi(pid)
		check(t, err)
		check(t, unix.Kill(n, unix.SIGSTOP))
	}
	r.noticed(t, "the worker of the sandbox gave no sign of life: none in 30s")
	<-idle.Done()
	replaced := <-r.workers
	r.awaitIdle(t, 1)
	select {
	case <-replaced.Done():
		t.Error("the sandbox in its place has ended")
	default:
	}
	check(t, r.useOnce(t))
}

// TestFlood: a process that makes calls, and reads no answers, loses its connections; others are served meanwhile.
func TestFlood(t *testing.T) {
	t.Parallel()
	const flooders = 16
	r := newRigWith(t, rigOptions{users: []int{os.Getuid()}, max: flooders + 2, lease: 20 * time.Second})
	register(t, r.home, shop)
	ended := make(chan error, flooders)
	for range flooders {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: r.socket, Net: "unixpacket"})
		check(t, err)
		defer c.Close()
		go func() { ended <- flood(c) }()
	}
	check(t, r.useOnce(t))
	for range flooders {
		if err := <-ended; !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the flood ended with %v", err)
		}
	}
	check(t, r.useOnce(t))
}

// flood makes calls until the connection ends.
func flood(c *net.UnixConn) error {
	for id := 1; ; id++ {
		call := map[string]any{"id": id, "call": []string{"close", "end", "signed", "reopen", "open"}[id%5], "body": map[string]any{}}
		switch call["call"] {
		case "reopen":
			call["body"] = "r-none"
		case "open":
			call["body"] = hostd.Spec{Project: "shop", Template: "none"}
		}
		b, err := json.Marshal(call)
		if err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}
