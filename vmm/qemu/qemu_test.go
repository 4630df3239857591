package qemu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/vmm/confine"
	"github.com/custody-project/custody/vmm/remote"
	"golang.org/x/sys/unix"
)

// TestStuckProcess: Destroy does not wait forever for a process that survives SIGKILL. The process keeps
// its uid and its group until it has ended.
func TestStuckProcess(t *testing.T) {
	freezer := "/sys/fs/cgroup/freezer"
	if _, err := os.Stat(freezer); err != nil {
		t.Skip("only a freezer of version 1 keeps a killed process from ending")
	}
	group := filepath.Join(freezer, "custody-test-"+strconv.Itoa(os.Getpid()))
	ok(t, os.Mkdir(group, 0o755))
	t.Cleanup(func() {
		for end := time.Now().Add(5 * time.Second); os.Remove(group) != nil; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s cannot be removed", group)
			}
		}
	})
	set := func(name, value string) { ok(t, os.WriteFile(filepath.Join(group, name), []byte(value), 0)) }

	lease, err := confine.LeaseUID()
	ok(t, err)
	stderr, w, err := confine.NewTail("qemu")
	ok(t, err)
	s := &spawned{uid: lease, stderr: stderr, process: startWaiting(t, lease.UID(), w)}
	w.Close()
	channel, _ := pair(t)
	v := &vm{process: s, channel: channel, done: make(chan struct{})}
	go v.watch()
	s.cgroup, err = confine.NewGroup(lease.UID(), 1, 128<<20)
	ok(t, err)
	ok(t, s.cgroup.Add(s.process.handle.Pid))
	set("cgroup.procs", strconv.Itoa(s.process.handle.Pid))
	set("freezer.state", "FROZEN")

	began := time.Now()
	if err := v.Destroy(t.Context()); !errors.Is(err, remote.ErrStuck) || time.Since(began) > 2*killTimeout {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	ok(t, confine.Sweep())
	other, err := confine.LeaseUID()
	ok(t, err)
	if other.UID() == lease.UID() {
		t.Error("the uid of a running process was leased again")
	}
	other.Release()
	set("freezer.state", "THAWED")
	<-v.process.Waited()
	ok(t, confine.Sweep())
	if confine.HasGroup(lease.UID()) {
		t.Error("the group of a process that has ended stays")
	}
}

// TestVirtualizationFault: a machine whose virtual CPU failed is killed, and Err returns the reason.
// A machine that stopped for another reason is not.
func TestVirtualizationFault(t *testing.T) {
	for state, ends := range map[string]bool{"internal-error": true, "paused": false, "io-error": false} {
		t.Run(state, func(t *testing.T) {
			l, err := confine.LeaseUID()
			ok(t, err)
			stderr, w, err := confine.NewTail("qemu")
			ok(t, err)
			channel, _ := pair(t)
			v := &vm{
				process: &spawned{uid: l, stderr: stderr, process: startWaiting(t, l.UID(), w)}, channel: channel,
				stopped: make(chan struct{}, 1), done: make(chan struct{}),
			}
			w.Close()
			go v.watch()
			ours, theirs := pair(t)
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				defer theirs.Close()
				lines := bufio.NewReader(theirs)
				fmt.Fprintln(theirs, `{"QMP": {}}`)
				lines.ReadString('\n')
				fmt.Fprintln(theirs, `{"return": {}}`)
				fmt.Fprintln(theirs, `{"event": "STOP"}`)
				lines.ReadString('\n')
				fmt.Fprintf(theirs, "{\"return\": {\"status\": %q}}\n", state)
				lines.ReadString('\n') // the end
			}()
			v.mon, err = newMonitor(t.Context(), ours, v.event)
			ok(t, err)
			v.supervised.Go(v.supervise)
			select {
			case <-v.Done():
				if !ends || v.Err() == nil || !strings.Contains(v.Err().Error(), "virtual CPU failed") {
					t.Errorf("it ended: %v", v.Err())
				}
			case <-time.After(time.Second):
				if ends {
					t.Error("it still runs")
				}
			}
			v.mon.close()
			<-asked
			ok(t, v.Destroy(t.Context()))
		})
	}
}

// startWaiting starts a process in a jail that waits until the test ends.
func startWaiting(t *testing.T, uid int, stderr *os.File) *process {
	t.Helper()
	r, w, err := os.Pipe()
	ok(t, err)
	t.Cleanup(func() { w.Close() })
	defer r.Close()
	p, err := jail{uid: uid, binary: "/usr/bin/bash", args: []string{"-c", "read <&3"}, files: []*os.File{r}, stderr: stderr}.start()
	ok(t, err)
	return p
}

// jailed runs a shell script in a jail and returns its output. opens are as in type jail.
func jailed(t *testing.T, script string, opens map[string]*os.File, files ...*os.File) string {
	t.Helper()
	l, err := confine.LeaseUID()
	ok(t, err)
	defer l.Release()
	r, w, err := os.Pipe()
	ok(t, err)
	defer r.Close()
	j := jail{uid: l.UID(), binary: "/usr/bin/bash", args: []string{"-c", script}, files: files, stdout: w, stderr: w, opens: opens}
	p, err := j.start()
	w.Close()
	ok(t, err)
	defer p.kill()
	var output strings.Builder
	r.SetReadDeadline(time.Now().Add(20 * time.Second))
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		output.Write(buf[:n])
		if err != nil {
			break
		}
	}
	<-p.waited
	return output.String()
}

// TestJail: a process in a jail cannot access the host's files, network and descriptors.
func TestJail(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	ok(t, os.WriteFile(secret, []byte("secret"), 0o644))
	open, err := unix.Open(secret, unix.O_RDONLY, 0) // not close-on-exec, as a caller's shell may leave one
	ok(t, err)
	defer unix.Close(open)
	output := jailed(t, `
		echo "uid $UID"
		echo "pid $$"
		for f in /etc/passwd /proc/1/maps /root /home /sys /tmp /run `+secret+`; do [ -e $f ] && echo "SEES $f"; done
		for d in / /dev /usr /usr/lib /usr/share/qemu; do (: > $d/x) 2>/dev/null && echo "WRITES $d"; done
		for fd in 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do
			(: <&$fd) 2>/dev/null && echo "HAS $fd"
		done
		output=$( (exec 3<>/dev/tcp/127.0.0.1/1) 2>&1); [[ $output == *unreachable* ]] || echo "HAS A NETWORK: $output"
		echo done`, nil)
	for _, bad := range []string{"SEES", "WRITES", "HAS"} {
		if strings.Contains(output, bad) {
			t.Errorf("the jail leaks:\n%s", output)
		}
	}
	if !strings.Contains(output, "done") || !strings.Contains(output, "pid 1\n") || strings.Contains(output, "uid 0\n") {
		t.Errorf("output:\n%s", output)
	}
	if _, err := os.Stat("/proc/self/ns/mnt"); err != nil {
		t.Errorf("this process lost its own mounts: %v", err)
	}
}

// TestOpenHandler: opening a handled path for writing returns the handler's descriptor, with
// its access mode; the kernel opens other paths.
func TestOpenHandler(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	ok(t, os.WriteFile(path, []byte("template"), 0o600))
	f, err := os.Open(path)
	ok(t, err)
	defer f.Close()
	output := jailed(t, `
		exec 5<>/memory && echo "opened" && read -r -N 8 -u 5 x; echo "read $x"
		echo evil >&5 2>/dev/null && echo WROTE
		exec 6<>/dev/null && echo "null opens"
		(exec 7<>/nowhere) 2>/dev/null && echo MADE
		echo done`, map[string]*os.File{"/memory": f})
	for _, want := range []string{"opened", "read template", "null opens", "done"} {
		if !strings.Contains(output, want) {
			t.Errorf("missing %q in:\n%s", want, output)
		}
	}
	if strings.Contains(output, "WROTE") || strings.Contains(output, "MADE") {
		t.Errorf("output:\n%s", output)
	}
	if got, _ := os.ReadFile(path); string(got) != "template" {
		t.Errorf("the handler's file was changed to %q", got)
	}
}

// TestTapRefused: checkTap refuses files that are not TAPs, and TAPs with other flags.
func TestTapRefused(t *testing.T) {
	r, w, err := os.Pipe()
	ok(t, err)
	defer r.Close()
	defer w.Close()
	if err := checkTap(r); err == nil {
		t.Error("a pipe was taken")
	}
	for _, flags := range []uint16{unix.IFF_TAP | unix.IFF_NO_PI, unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR} {
		failed := make(chan error, 1)
		confine.OffMainThread(func() { failed <- errors.Join(unix.Unshare(unix.CLONE_NEWNET), takeOther(flags)) })
		if err := <-failed; err == nil {
			t.Errorf("flags %#x were taken", flags)
		} else if !strings.Contains(err.Error(), "IFF_VNET_HDR are needed") {
			t.Errorf("flags %#x: %v", flags, err)
		}
	}
	tap, err := newUnconnectedTap()
	ok(t, err)
	defer tap.Close()
	ok(t, checkTap(tap))
}

func takeOther(flags uint16) error {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("not tried: %w", err)
	}
	f := os.NewFile(uintptr(fd), "other")
	defer f.Close()
	req, err := unix.NewIfreq("other")
	if err != nil {
		return fmt.Errorf("not tried: %w", err)
	}
	req.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("not tried: %w", err)
	}
	return checkTap(f)
}

// FuzzMonitor: no answer of a hostile QEMU makes the monitor panic or hang.
func FuzzMonitor(f *testing.F) {
	f.Add([]byte(`{"QMP":{}}` + "\n" + `{"return":{}}` + "\n" + `{"return":{"status":"completed"}}` + "\n"))
	f.Add([]byte(`{"event":"BLOCK_IO_ERROR","data":{"action":"stop","reason":"x"}}` + "\n" + `{"error":{"class":"C","desc":"D"}}` + "\n"))
	f.Add([]byte("{}\n{}\n{}\n{}\n"))
	f.Add([]byte("\n\x00{"))
	f.Fuzz(func(t *testing.T, output []byte) {
		ours, theirs := pair(t)
		go func() {
			theirs.Write(output)
			theirs.Close()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		v := &vm{stalls: make(chan string, 1)}
		m, err := newMonitor(ctx, ours, v.event)
		if err != nil {
			return
		}
		m.query(ctx, "query-migrate", nil, nil)
		m.close()
		if ctx.Err() != nil {
			t.Error("hung")
		}
	})
}

func pair(t *testing.T) (*net.UnixConn, *os.File) {
	t.Helper()
	conn, file, err := socketPair()
	ok(t, err)
	return conn, file
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
