package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/outside"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/hashicorp/vault/api"
)

// What docs/threat-model.md states of the processes: the sockets that root's may have, by the name of the process.
var rootMayHave = map[string]*regexp.Regexp{
	"custody host": privsepOnly, // also without the service, where custody run is this process
	"custody run":  privsepOnly,
	"runsc":        regexp.MustCompile(`^(unix|netlink|packet, which receives$)`), // in the sandbox's namespace; to the sentry and the gofer; it passes on the rest
	"sh":           regexp.MustCompile(`^unix `),                                  // becomes runsc
	"git":          regexp.MustCompile(`^$`),
}

// privsepOnly are sockets of package privsep, the channel and the trace sink on the way to the worker, the kernel's, and on the way to the
// worker those with which it listens, receives and resets connections. No packet gets into these; a connection that is accepted has another.
var privsepOnly = regexp.MustCompile(`^(unix (seqpacket|stream)|netlink|inet (stream|datagram) of no address|.*, which (only sends|listens|drops all))$`)

// seen are the processes that watch has seen, as lines of a table.
type seen map[string]bool

// watch reads /proc during do. It fails the test for each process of root that is not in rootMayHave or has another socket.
func watch(t *testing.T, do func(), roots ...int) seen {
	t.Helper()
	all := seen{}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, root := range roots {
				for _, p := range append(below(root), child{pid: root, args: argsOf(root)}) {
					all.look(t, p)
				}
			}
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	do()
	close(done)
	<-ended
	return all
}

// look adds a process.
func (all seen) look(t *testing.T, p child) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	uid := regexp.MustCompile(`\nUid:\t\d+\t(\d+)`).FindSubmatch(status)
	if err != nil || uid == nil || p.args == "" { // it has ended
		return
	}
	name := nameOf(p.args)
	sockets := socketsOf(p.pid)
	all[fmt.Sprintf("%-14s euid %-10s %s", name, uid[1], strings.Join(sockets, ", "))] = true
	if string(uid[1]) != "0" {
		return
	}
	may := rootMayHave[name]
	if may == nil {
		t.Errorf("%s is root's: %s", name, p.args)
		return
	}
	for _, s := range sockets {
		if !may.MatchString(s) {
			t.Errorf("%s, which is root's, has the socket %s", name, s)
		}
	}
}

func argsOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(b), "\x00", " ")
}

// nameOf names a process by its arguments.
func nameOf(args string) string {
	words := strings.Fields(args)
	if len(words) == 0 {
		return ""
	}
	name := filepath.Base(words[0])
	switch {
	case name == "custody" && len(words) > 1:
		return name + " " + words[1]
	case strings.HasPrefix(name, "runsc") && strings.Contains(words[0], "/"): // its other processes have no path
		return "runsc"
	}
	return name
}

// socketsOf describes the kinds of sockets that a process has.
func socketsOf(pid int) []string {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(process)
	kinds := map[string]bool{}
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		n, _ := strconv.Atoi(filepath.Base(link))
		if to, _ := os.Readlink(link); !strings.HasPrefix(to, "socket:") {
			continue
		}
		if fd, err := unix.PidfdGetfd(process, n, 0); err == nil {
			kinds[socketKind(fd)] = true
			unix.Close(fd)
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// socketKind describes a socket.
func socketKind(fd int) string {
	domain, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	kinds := map[int]string{unix.SOCK_STREAM: "stream", unix.SOCK_DGRAM: "datagram", unix.SOCK_SEQPACKET: "seqpacket", unix.SOCK_RAW: "raw"}
	switch domain {
	case unix.AF_UNIX:
		return "unix " + kinds[kind]
	case unix.AF_NETLINK:
		return "netlink"
	case unix.AF_PACKET:
		own, _ := unix.Getsockname(fd)
		if link, ok := own.(*unix.SockaddrLinklayer); ok && link.Protocol == 0 { // the kernel gives it no packet
			return "packet, which only sends"
		}
		return "packet, which receives"
	case unix.AF_INET, unix.AF_INET6:
		if protocol, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); kind == unix.SOCK_RAW && protocol == unix.IPPROTO_RAW {
			return "inet raw, which only sends"
		}
		own, _ := unix.Getsockname(fd)
		if port, any := portOf(own); port == 0 && any {
			return "inet " + kinds[kind] + " of no address"
		}
		if listens, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); listens == 1 {
			return "inet stream, which listens"
		}
		if dropsAll(fd) {
			return "inet datagram, which drops all"
		}
		return "inet " + kinds[kind]
	}
	return fmt.Sprintf("of the family %d", domain)
}

// dropsAll reports whether a socket has a filter that drops all packets.
func dropsAll(fd int) bool {
	var filter [1]unix.SockFilter
	n := uint32(len(filter)) // of instructions
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_GET_FILTER,
		uintptr(unsafe.Pointer(&filter)), uintptr(unsafe.Pointer(&n)), 0)
	return errno == 0 && n == 1 && filter[0] == unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
}

// portOf returns the port of an address, and whether its address is that of every device.
func portOf(a unix.Sockaddr) (port int, any bool) {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return a.Port, a.Addr == [4]byte{}
	case *unix.SockaddrInet6:
		return a.Port, a.Addr == [16]byte{}
	}
	return 0, false
}

// has fails the test unless processes of these names were seen, which are not root's.
func (all seen) has(t *testing.T, names ...string) {
	t.Helper()
	list := slices.Sorted(maps.Keys(all))
	for _, name := range names {
		if !slices.ContainsFunc(list, func(line string) bool {
			return strings.HasPrefix(line, name+" ") && !strings.Contains(line, " euid 0 ")
		}) {
			t.Errorf("no process %s without privileges was seen", name)
		}
	}
	if t.Failed() {
		t.Logf("processes:\n%s", strings.Join(list, "\n"))
	}
}

// TestNoRootParses: while the examples run, no process of root has a socket through which bytes of a guest, of the network or of a client come.
func TestNoRootParses(t *testing.T) {
	t.Parallel()
	const examples = "../../examples/"
	t.Run("service", func(t *testing.T) {
		s := newSeparated(t)
		key := filepath.Join(s.admin.dir, "key")
		if err := errors.Join(os.WriteFile(key, []byte("in-the-file"), 0o600), os.Chown(key, servant, servant)); err != nil {
			t.Fatal(err)
		}
		s.root.write(filepath.Join(s.root.dir, "shop.yaml"), strings.Replace(registeredShop, "%s", key, 1))
		s.root.must(0, "project", "apply", filepath.Join(s.root.dir, "shop.yaml"))
		hello := filepath.Join(s.user.dir, "hello")
		if err := os.CopyFS(hello, os.DirFS(examples+"hello")); err != nil {
			t.Fatal(err)
		}
		all := watch(t, func() {
			s.user.must(0, "run", "-q", "--policy", filepath.Join(hello, "custody.yaml"), "--workdir", filepath.Join(hello, "work"))
			s.user.must(0, "run", "-q", "--project", "shop", "--secret", "key", "--", "sh", "-c", "getent hosts example.com; sleep 1")
			s.user.must(0, "bundle", "last", "-o", filepath.Join(s.user.dir, "bundle"))
		}, s.host.Process.Pid, s.serve.Process.Pid)
		all.has(t, "custody serve", "custody custody-worker", "runsc-sandbox", "runsc-gofer")
	})
	for example, workspace := range map[string]string{"hello": "work", "secret": ".", "egress": ".", "agent": "work"} {
		t.Run(example, func(t *testing.T) {
			d := newGVisorDoor(t)
			d.env = []string{"DEMO_TOKEN=a token of the demo"}
			d.dir = filepath.Join(t.TempDir(), example)
			if err := os.CopyFS(d.dir, os.DirFS(examples+example)); err != nil {
				t.Fatal(err)
			}
			cmd := d.command("world", "--", filepath.Join(d.bin, "custody"), "run", "-q", "--trust", "--workdir", workspace)
			var errs screen
			cmd.Stderr = &errs
			d.start(cmd)
			var custody int
			eventually(t, "started: custody run", func() bool {
				for _, c := range below(cmd.Process.Pid) {
					if nameOf(c.args) == "custody run" {
						custody = c.pid
					}
				}
				return custody != 0
			})
			watch(t, func() { cmd.Wait() }, custody).has(t, "custody custody-worker", "runsc-sandbox", "runsc-gofer")
			if code := cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("it exits %d: %s", code, errs.String())
			}
		})
	}
	t.Run("vault", func(t *testing.T) {
		d := newGVisorDoor(t)
		v := newVault(t)
		v.put(t, "agents/git", "token", "git-value-0123456789")
		d.useVault(v)
		d.project(stepWithVault)
		cmd := d.command("run", "-q")
		var out, errs screen
		cmd.Stdout, cmd.Stderr = &out, &errs
		d.start(cmd)
		all := seen{}
		watch(t, func() {
			out.await(t, "ready")
			for _, c := range below(cmd.Process.Pid) {
				all.look(t, c)
			}
			cmd.Process.Signal(os.Interrupt)
			cmd.Wait()
		}, cmd.Process.Pid)
		all.has(t, "custody "+outside.Arg, "custody custody-worker")
		if left := v.custodyTokens(t); len(left) > 0 {
			t.Errorf("tokens that are alive after the run: %v, %s", left, errs.String())
		}
	})
}

// TestNoRootParsesServers is TestNoRootParses for a run whose host has a ClickHouse store, a webhook and its signing key in Vault.
func TestNoRootParsesServers(t *testing.T) {
	t.Parallel()
	d := newGVisorDoor(t)
	v := newVault(t)
	if err := v.Sys().Mount("transit", &api.MountInput{Type: "transit"}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Logical().Write("transit/keys/host-1", map[string]any{"type": "ed25519"}); err != nil {
		t.Fatal(err)
	}
	v.put(t, "agents/git", "token", "git-value-0123456789")
	d.useVault(v)
	to := receive(t, "git-value-0123456789")
	d.env = append(d.env, to.env())
	d.write(filepath.Join(d.home, "host.yaml"), to.host(filepath.Join(d.dir, "ended"), "end")+
		"key: vault-transit:transit/host-1\nstore: "+clickhousetest.Start(t).Fresh()+"\n")
	d.project(strings.Replace(stepWithVault, "sleep 1000", `echo "$GIT_TOKEN"; sleep 1000`, 1))
	cmd := d.command("run", "-q")
	var out, errs screen
	cmd.Stdout, cmd.Stderr = &out, &errs
	d.start(cmd)
	watch(t, func() {
		out.await(t, "ready")
		eventually(t, "a webhook gets the finding", func() bool { return len(to.take()) > 0 })
		if all := programsBelow(cmd.Process.Pid, outside.Arg); len(all) != 4 {
			t.Errorf("the processes that speak to servers are %v", all)
		}
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	}, cmd.Process.Pid).has(t, "custody "+outside.Arg, "custody custody-worker")
	runs := d.runs() // from the store
	if len(runs) != 1 || runs[0].Findings == 0 {
		t.Fatalf("the store has the runs %+v; %s", runs, errs.String())
	}
	d.verified(runs[0].ID)
}

// stepWithVault is a project whose step has a secret of Vault until it is ended. It prints more than the redactor holds back.
const stepWithVault = `version: 1
secrets: {git: {from: "vault:secret/data/agents/git#token", deliver: {env: GIT_TOKEN}}}
steps: [{name: long, run: 'test "$GIT_TOKEN" = git-value-012345""6789 && echo "ready !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!!" && sleep 1000', secrets: [git]}]
`
