package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/service/remote"
)

// The user that the service runs as in tests, who every Debian has. The group of its clients is someone's.
const (
	servant    = 1
	servantIs  = "daemon"
	clientsAre = "nogroup"
)

// separated is a host whose service has no privileges: custody host does what needs root.
type separated struct {
	*served
	root *door // the administrator
	host *exec.Cmd
	// flags are further ones of custody host.
	flags []string
}

// newSeparated starts custody host, with these flags in addition, and custody serve as another user.
//
//	user (someone) --custody.sock--> custody serve (servant) --host.sock--> custody host (root)
func newSeparated(t *testing.T, flags ...string) *separated {
	t.Helper()
	return separate(newGVisorDoor(t), flags...)
}

// separate does so for the home of root.
func separate(root *door, flags ...string) *separated {
	t := root.T
	t.Helper()
	dir := publicDir(t)
	s := &separated{root: root, flags: flags}
	home := filepath.Join(dir, "host")
	if err := os.Rename(s.root.home, home); err != nil {
		t.Fatal(err)
	}
	s.root.home, s.root.asks = home, true
	socket := filepath.Join(dir, "host.sock")
	s.startHost(socket)
	admin := *s.root
	admin.home, admin.dir = filepath.Join(dir, "service"), filepath.Join(dir, "service")
	front := filepath.Join(dir, "front")
	for _, own := range []string{admin.dir, front} {
		if err := errors.Join(os.Mkdir(own, 0o755), os.Chown(own, servant, servant)); err != nil {
			t.Fatal(err)
		}
	}
	admin.env = []string{hostd.SocketEnv + "=" + socket}
	admin.launch = func(cmd *exec.Cmd) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: servant, Gid: servant, Groups: []uint32{someone}}}
		return cmd.Start()
	}
	s.served = serveFor(t, &admin, front)
	s.root.env = append(s.root.env, remote.SocketEnv+"="+s.socket())
	return s
}

// startHost starts custody host.
func (s *separated) startHost(socket string) {
	s.root.Helper()
	s.host = s.root.command(append([]string{"host", "--socket", socket, "--user", servantIs}, s.flags...)...)
	s.host.Stderr = os.Stderr
	host := s.host
	s.root.start(host)
	s.root.Cleanup(func() {
		host.Process.Signal(syscall.SIGTERM)
		host.Wait()
	})
	eventually(s.root.T, "there: custody host", func() bool {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// TestSeparatedKilled: when a process of the service is killed, nothing of the sandbox is left, and the run is closed as interrupted, after the
// manifest that was signed last.
func TestSeparatedKilled(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(s *separated){
		"serve": func(s *separated) {
			s.serve.Process.Kill()
			s.serve.Wait()
			s.start()
		},
		"host": func(s *separated) {
			s.host.Process.Kill()
			s.host.Wait()
			s.startHost(strings.TrimPrefix(s.admin.env[0], hostd.SocketEnv+"="))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeparated(t)
			cmd := s.user.command("run", "--", "sh", "-c", "echo ready; sleep 1000")
			var out, errs screen
			cmd.Stdout, cmd.Stderr = &out, &errs
			s.user.start(cmd)
			out.await(t, "ready")
			eventually(t, "signed: the first segment", func() bool {
				files, _ := filepath.Glob(filepath.Join(s.root.home, "signed", "sandboxes", "*.manifest"))
				return len(files) == 1
			})
			kill(s)
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != exitFailed {
				t.Errorf("the client exits %d: %s", code, errs.String())
			}
			s.user.must(0, "run", "-q", "--", "true")
			runs := s.admin.runs()
			if len(runs) != 2 || runs[1].Status != "interrupted" || runs[0].Status != "sealed" {
				t.Fatalf("the runs are %+v", runs)
			}
			s.admin.verified(runs[1].ID)
			s.admin.verified(runs[0].ID)
		})
	}
}

// TestWarmKilled: when custody host, which keeps warm sandboxes, is killed at any moment of a run, the client gets an answer, nothing of the
// sandboxes is left, and each record is closed.
func TestWarmKilled(t *testing.T) {
	t.Parallel()
	s := newSeparated(t, "--warm", "2")
	s.user.must(0, "run", "-q", "--", "true") // the pool begins
	left := map[int]child{}
	for moment := range 8 {
		cmd := s.user.command("run", "-q", "--", "sh", "-c", "sleep 0.3")
		s.user.start(cmd)
		time.Sleep(time.Duration(moment) * 150 * time.Millisecond)
		for _, c := range below(s.host.Process.Pid) {
			left[c.pid] = c
		}
		s.host.Process.Kill()
		s.host.Wait()
		cmd.Wait()
		s.startHost(strings.TrimPrefix(s.admin.env[0], hostd.SocketEnv+"="))
	}
	s.user.must(0, "run", "-q", "--", "true") // and closes what is left
	for _, r := range s.admin.runs() {
		if r.Status != "sealed" && r.Status != "interrupted" {
			t.Errorf("the run %s is %s", r.ID, r.Status)
		}
		s.admin.verified(r.ID)
	}
	s.host.Process.Signal(syscall.SIGTERM) // it has warm sandboxes again
	s.host.Wait()
	eventually(t, "detached: the disks", func() bool { // the kernel does it a moment after their last user has ended
		files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		return !slices.ContainsFunc(files, func(name string) bool {
			file, _ := os.ReadFile(name)
			return strings.HasPrefix(string(file), s.root.home+"/")
		})
	})
	s.root.nothingLeft(left)
}

// TestSeparated: no process of the service that runs as root parses what a guest, the network or a client sends, and none of the others has
// a privilege or reaches the key.
func TestSeparated(t *testing.T) {
	t.Parallel()
	s := newSeparated(t)
	out := new(screen)
	cmd := s.user.command("run", "-q", "--", "sh", "-c", "echo ready; sleep 100")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	s.user.start(cmd)
	out.await(t, "ready")
	for _, p := range []struct {
		name string
		pid  int
	}{{"custody serve", s.serve.Process.Pid}, {"the client", cmd.Process.Pid}} {
		status := procStatus(t, p.pid)
		if strings.Contains(status, "Uid:\t0") || !strings.Contains(status, "CapEff:\t0000000000000000") {
			t.Errorf("%s has privileges:\n%s", p.name, status)
		}
	}
	if socket := inetSocket(t, s.host.Process.Pid); socket != "" {
		t.Errorf("custody host has an internet socket: %s", socket)
	}
	key := filepath.Join(s.root.home, "keys", "host.key")
	read := exec.Command("cat", key)
	if err := s.admin.launch(read); err != nil {
		t.Fatal(err)
	}
	if read.Wait() == nil {
		t.Error("the user of the service can read the key")
	}
	s.user.must(0, "run", "-q", "--", "true") // beside the first one
	for _, args := range [][]string{{"runs"}, {"timeline", "last"}, {"verify", "last"}} {
		if said := s.user.must(0, args...); said.stdout == "" || said.stderr != "" {
			t.Errorf("%q prints %q, and %q", args, said.stdout, said.stderr)
		}
	}
	s.root.write(filepath.Join(s.root.dir, "bare.yaml"), "version: 1\nproject: bare\ntemplate: missing\n")
	s.root.must(0, "project", "apply", "bare.yaml")
	s.user.contains(s.user.must(exitFailed, "run", "--project", "bare", "--", "true").stderr, "missing", "hint: `custody template ls` lists the templates")
	bundle := filepath.Join(s.user.dir, "bundle")
	s.user.must(0, "bundle", "last", "-o", bundle)
	s.user.must(0, "verify", bundle)
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
}

func procStatus(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// inetSocket returns the line of /proc/net about a TCP or UDP socket of a process; empty if there is none.
func inetSocket(t *testing.T, pid int) string {
	t.Helper()
	own := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("the process %d has no descriptors: %v", pid, err)
	}
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil && strings.HasPrefix(link, "socket:[") {
			own[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue // without IPv6
		}
		for _, line := range strings.Split(string(b), "\n")[1:] {
			if f := strings.Fields(line); len(f) > 9 && own[f[9]] {
				return table + line
			}
		}
	}
	return ""
}
