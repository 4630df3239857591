package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
)

// elsewhere is a service on one machine, and an ordinary user on another one, which has only the program:
//
//	agents 10.77.0.1: user --- TLS ---> ops 10.77.0.2: relay :8444 ---> custody serve :8443
type elsewhere struct {
	*served
	relay *relay
	here  *peer // the machine of the user
	there *peer
	token string
	short string // a token that expires after a minute
}

// newElsewhere starts the service.
func newElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	agents, ops := twoPeers(t)
	admin, dir := newGVisorDoor(t), publicDir(t)
	admin.asks, admin.launch = true, ops.start
	writeAuthority(t, dir, ops.address)
	settings, err := os.ReadFile(filepath.Join(admin.home, "host.yaml"))
	check(t, err)
	admin.write(filepath.Join(admin.home, "host.yaml"), fmt.Sprintf("%sserve: {names: [%s], cert: %s/tls.crt, key: %[3]s/tls.key}\n", settings, ops.address, dir))
	e := &elsewhere{served: unserved(t, admin, dir), here: agents, there: ops}
	e.listen = ops.address + ":8443"
	e.start()
	e.relay = newRelay(t, ops, ops.address+":8444", ops.address+":8443")
	e.token = admin.newToken("someone", string(access.Operator))
	e.short = strings.TrimSpace(admin.must(0, "token", "new", "short", "--role", "operator", "--expires", "1m").stdout)
	e.user.env = []string{"CUSTODY_URL=https://" + e.relay.address, "CUSTODY_CA_FILE=" + filepath.Join(dir, "ca.crt"), "CUSTODY_TOKEN=" + e.token, "TERM=vt100", "GREETING=hello"}
	e.user.home = filepath.Join(dir, "none")
	e.user.launch = func(cmd *exec.Cmd) error {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: someone, Gid: someone}
		return agents.start(cmd)
	}
	return e
}

// writeAuthority writes the certificate of an authority, and that of a server with its key.
func writeAuthority(t *testing.T, dir, address string, names ...string) {
	t.Helper()
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	authority, server := template("test authority"), template("test server")
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	server.IPAddresses, server.DNSNames = []net.IP{net.ParseIP(address)}, names
	root, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	check(t, err)
	leaf, err := x509.CreateCertificate(rand.Reader, server, authority, &key.PublicKey, key)
	check(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	for name, block := range map[string]*pem.Block{
		"ca.crt": {Type: "CERTIFICATE", Bytes: root}, "tls.crt": {Type: "CERTIFICATE", Bytes: leaf}, "tls.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		mode := os.FileMode(0o644)
		if name == "tls.key" {
			mode = 0o600
		}
		check(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), mode))
	}
}

// relay passes connections on, and can break them.
type relay struct {
	address string
	from    net.Listener
	work    sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

// newRelay starts a relay on a machine.
func newRelay(t *testing.T, on *peer, address, to string) *relay {
	t.Helper()
	r := &relay{address: address}
	on.do(func() (err error) { r.from, err = net.Listen("tcp", address); return err }, true)
	r.work.Go(func() {
		for {
			in, err := r.from.Accept()
			if err != nil {
				return
			}
			var out net.Conn
			on.do(func() error { out, err = net.Dial("tcp", to); return nil }, true)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				r.work.Go(func() {
					io.Copy(way[0], way[1])
					way[0].Close()
					way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		r.from.Close()
		r.sever()
		r.work.Wait()
	})
	return r
}

// sever breaks all connections.
func (r *relay) sever() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// TestElsewhere: an unprivileged user on another machine uses sandboxes with the commands of the program, over TLS.
func TestElsewhere(t *testing.T) {
	e := newElsewhere(t)
	for _, c := range []struct {
		name string
		do   func(*testing.T, *elsewhere)
	}{
		{"run", elsewhereRun}, {"session", elsewhereSession}, {"detached", elsewhereDetached}, {"terminal", elsewhereTerminal},
		{"logs", elsewhereLogs}, {"kill", elsewhereKill}, {"signals", elsewhereSignals}, {"example", elsewhereExample}, {"refused", elsewhereRefused},
		{"cp", elsewhereCp}, {"port", elsewherePort}, {"killed", elsewhereKilled},
	} {
		t.Run(c.name, func(t *testing.T) {
			user, admin := *e.user, *e.admin
			user.T, admin.T = t, t
			again, here, there := *e.served, *e.here, *e.there
			again.user, again.admin, here.t, there.t = &user, &admin, t, t
			c.do(t, &elsewhere{&again, e.relay, &here, &there, e.token, e.short})
		})
	}
}

// sandboxes are those that have not ended.
func (e *elsewhere) sandboxes() (live []client.Sandbox) {
	e.user.Helper()
	for _, s := range decode[client.Sandbox](e.user, e.user.must(0, "ps", "--json").stdout) {
		if s.State != "ended" {
			live = append(live, s)
		}
	}
	return live
}

func elsewhereRun(t *testing.T, e *elsewhere) {
	every := make([]byte, 0, 256<<10)
	for i := range cap(every) {
		every = append(every, byte(i))
	}
	cmd := e.user.command("run", "-e", "A=b c", "-e", "GREETING", "--", "sh", "-c", `cat; echo "$A $GREETING" >&2; exit 7`)
	cmd.Stdin = bytes.NewReader(every)
	said := e.user.exited(7, e.user.finish(cmd), cmd.Args...)
	if said.stdout != string(every) {
		t.Errorf("of %d bytes of input %d came back", len(every), len(said.stdout))
	}
	e.user.contains(said.stderr, "b c hello\n", "custody: run r-")
	if live := e.sandboxes(); len(live) > 0 {
		t.Errorf("after the command there are %+v", live)
	}
	e.admin.verified(regexp.MustCompile(`r-[0-9a-z]+`).FindString(said.stderr))
	for code, args := range map[int][]string{
		127: {"nothing-like-this"}, 126: {"/etc/passwd"}, 137: {"sh", "-c", "kill -9 $$"}, 125: nil,
	} {
		e.user.must(code, append([]string{"run", "-q", "--"}, args...)...)
	}
	e.user.contains(e.user.must(125, "run", "--cold", "--", "true").stderr, "--cold", "are not for runs on the service")
	e.user.contains(e.user.must(125, "run", "--", "echo", "a\xffb").stderr, "not UTF-8")
	e.user.contains(e.user.must(125, "run", "--project", "unknown", "--", "true").stderr, "unknown")
	broken := e.user.command("run", "-q", "--", "sh", "-c", "echo first; exec yes")
	read, write, err := os.Pipe()
	check(t, err)
	broken.Stdout = write
	e.user.start(broken)
	write.Close()
	first := make([]byte, 6)
	_, err = io.ReadFull(read, first)
	check(t, err)
	read.Close()
	broken.Wait()
	if code := broken.ProcessState.ExitCode(); code != 128+int(syscall.SIGPIPE) {
		t.Errorf("without a reader of its output a command exits %d", code)
	}
}

func elsewhereSession(t *testing.T, e *elsewhere) {
	e.user.must(0, "run", "-q", "--session", "one", "--", "sh", "-c", "echo kept >/tmp/file")
	if said := e.user.must(0, "run", "-q", "--session", "one", "--", "cat", "/tmp/file"); said.stdout != "kept\n" {
		t.Errorf("the second command of the session prints %q", said.stdout)
	}
	live := e.sandboxes()
	if len(live) != 1 || live[0].Session != "one" {
		t.Fatalf("of the session there are %+v", live)
	}
	e.user.contains(e.user.must(0, "ps").stdout, "SANDBOX", live[0].ID, "one", "someone")
	e.user.must(0, "destroy", live[0].ID)
	e.user.must(0, "destroy", live[0].ID)
	e.user.contains(e.user.must(125, "exec", live[0].ID, "--", "true").stderr, "has ended", "hint: ")
}

// detached starts a command in a sandbox that stays for the test.
func (e *elsewhere) detached(script string) (sandbox string) {
	e.user.Helper()
	sandbox = strings.TrimSpace(e.user.must(0, "run", "-q", "-d", "--", "sh", "-c", script).stdout)
	e.user.Cleanup(func() { e.user.must(0, "destroy", sandbox) })
	return sandbox
}

func elsewhereDetached(t *testing.T, e *elsewhere) {
	box := e.detached("echo out; echo err >&2; exit 3")
	said := e.user.must(0, "logs", "-f", box)
	if said.stdout != "out\n" || said.stderr != "err\n" {
		t.Errorf("its output is %q and %q", said.stdout, said.stderr)
	}
	for want, args := range map[string][]string{
		"t\n": {"--offset", "2", box, "p1"}, "err\n": {"--stream", "stderr", box}, "": {"--offset", "4", box},
	} {
		if said := e.user.must(0, append([]string{"logs"}, args...)...); said.stdout != want {
			t.Errorf("logs %q prints %q", args, said.stdout)
		}
	}
	e.user.contains(e.user.must(0, "ps", box).stdout, "PROCESS", "p1", "exit 3", "root", "sh -c echo out;")
	in := e.user.command("exec", "-i", "-w", "/tmp", "-u", "nobody", "-e", "X=1", box, "--", "sh", "-c", "cat; pwd; id -un; echo $X; exit 4")
	in.Stdin = strings.NewReader("a\x00\xffb\n")
	if said := e.user.exited(4, e.user.finish(in), in.Args...); said.stdout != "a\x00\xffb\n/tmp\nnobody\n1\n" {
		t.Errorf("exec prints %q", said.stdout)
	}
	if said := e.user.must(0, "exec", box, "cat"); said.stdout != "" { // it has no input
		t.Errorf("exec without -i prints %q", said.stdout)
	}
	name := strings.TrimSpace(e.user.must(0, "exec", "-d", box, "--", "echo", "later").stdout)
	if said := e.user.must(0, "logs", "-f", box); name != "p4" || said.stdout != "later\n" {
		t.Errorf("the process %s prints %q", name, said.stdout)
	}
}

func elsewhereTerminal(t *testing.T, e *elsewhere) {
	box := e.detached("sleep 1000")
	cmd := e.user.command("exec", "-it", box, "--", "bash", "-c", `
		test -t 0 && test -t 1 && test -t 2 && echo "a terminal: $TERM"
		echo "size: $(stty size)"
		trap 'echo "resized: $(stty size)"' WINCH
		trap 'echo interrupted; exit 9' INT
		read -r line; echo "line: <$line>"
		echo ready; while :; do sleep 0.1; done`)
	ours, theirs, err := pty.Open()
	check(t, err)
	defer ours.Close()
	check(t, pty.Setsize(ours, &pty.Winsize{Rows: 33, Cols: 101}))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	e.user.start(cmd)
	theirs.Close()
	var shown screen
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(&shown, ours) })
	shown.await(t, "a terminal: vt100\r\n")
	shown.await(t, "size: 33 101\r\n")
	io.WriteString(ours, "typed\r")
	shown.await(t, "line: <typed>")
	shown.await(t, "ready")
	check(t, pty.Setsize(ours, &pty.Winsize{Rows: 50, Cols: 132}))
	shown.await(t, "resized: 50 132\r\n")
	io.WriteString(ours, "\x03")
	shown.await(t, "interrupted\r\n")
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit code %d: %s", code, shown.String())
	}
	ours.Close()
	reading.Wait()
}

func elsewhereLogs(t *testing.T, e *elsewhere) {
	box := e.detached("mkfifo /tmp/go; seq 1000; read -r line </tmp/go; seq 1001 2000")
	cmd := e.user.command("logs", "-f", box)
	var out screen
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	e.user.start(cmd)
	out.await(t, "\n1000\n")
	e.relay.sever()
	e.user.must(0, "exec", box, "--", "sh", "-c", "echo on >/tmp/go")
	cmd.Wait()
	var want strings.Builder
	for i := range 2000 {
		fmt.Fprintln(&want, i+1)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 || out.String() != want.String() {
		t.Errorf("exit code %d, %d of %d bytes", code, len(out.String()), want.Len())
	}
}

func elsewhereKill(t *testing.T, e *elsewhere) {
	box := e.detached("trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.1; done")
	logs := e.user.command("logs", "-f", box, "p1")
	var out screen
	logs.Stdout, logs.Stderr = &out, os.Stderr
	e.user.start(logs)
	out.await(t, "ready")
	e.user.must(0, "kill", "-s", "USR1", box, "p1")
	logs.Wait()
	e.user.contains(out.String(), "got it")
	for range 2 {
		e.user.must(0, "exec", "-d", box, "--", "sleep", "1000")
	}
	e.user.must(0, "kill", "-s", "9", box)
	for _, name := range []string{"p2", "p3"} {
		e.user.must(0, "logs", "-f", box, name)
	}
	if list := e.user.must(0, "ps", box).stdout; strings.Count(list, "SIGKILL") != 2 || strings.Contains(list, "running") {
		t.Errorf("after kill: %s", list)
	}
	e.user.contains(e.user.must(125, "kill", box, "p2").stderr, "has ended")
	e.user.contains(e.user.must(125, "kill", "-s", "NONE", box).stderr, "no such signal")
}

func elsewhereSignals(t *testing.T, e *elsewhere) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 3, syscall.SIGTERM: 125} {
		cmd := e.user.command("run", "--", "sh", "-c", "trap 'echo got it; exit 3' INT TERM; echo ready; while :; do sleep 0.1; done")
		var out, errs screen
		cmd.Stdout, cmd.Stderr = &out, &errs
		e.user.start(cmd)
		out.await(t, "ready")
		cmd.Process.Signal(sig)
		cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(out.String(), "got it") {
			t.Errorf("%v: exit code %d, want %d: %s%s", sig, got, code, out.String(), errs.String())
		}
	}
	if live := e.sandboxes(); len(live) > 0 {
		t.Errorf("after the signals there are %+v", live)
	}
}

// elsewhereExample runs the example of package client.
func elsewhereExample(t *testing.T, e *elsewhere) {
	program := filepath.Join(filepath.Dir(e.user.dir), "example")
	if out, err := exec.Command("go", "test", "-c", "-o", program, "../../client").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := e.user.command()
	cmd.Path, cmd.Args = program, []string{program, "-test.run", "^TestExample$"}
	said := e.user.exited(0, e.user.finish(cmd), cmd.Args...)
	for _, text := range []string{"hello\n", "/dev/pts/", "\n2 processes, the second ended with 7\nthe first got SIGTERM\n"} {
		e.user.contains(said.stdout, text)
	}
}

func elsewhereRefused(t *testing.T, e *elsewhere) {
	viewer := e.admin.newToken("viewer", string(access.Viewer))
	box := e.detached("true")
	eventually(t, "expired", func() bool { return e.with("CUSTODY_TOKEN="+e.short, "ps").code == exitFailed })
	for _, c := range []struct {
		env  string
		args []string
		says string
	}{
		{"CUSTODY_TOKEN=" + e.short, []string{"ps"}, "hint: "},
		{"CUSTODY_TOKEN=cst_wrong", []string{"ps"}, "hint: "},
		{"CUSTODY_TOKEN=" + viewer, []string{"run", "--", "true"}, "hint: "},
		{"CUSTODY_TOKEN=", []string{"ps"}, "there is no token"},
		{"CUSTODY_TOKEN_FILE=/nothing/here", []string{"ps"}, "/nothing/here"},
		{"CUSTODY_URL=", []string{"ps"}, "there is no address of a service"},
		{"CUSTODY_URL=http://10.77.0.2:8443", []string{"ps"}, "write https://"},
		{"CUSTODY_URL=https://10.77.0.2:1", []string{"ps"}, "hint: check the address"},
		{"CUSTODY_URL=https://" + e.relay.address + "/else/where", []string{"ps"}, "is this the address of custody serve?"},
		{"CUSTODY_CA_FILE=", []string{"ps"}, "--ca-file"},
		{"A=", []string{"ps", "r-unknown"}, "hint: custody ps lists the sandboxes"},
		{"A=", []string{"exec", "r-unknown", "--", "true"}, "hint: custody ps lists the sandboxes"},
		{"A=", []string{"logs", box, "p9"}, "hint: custody ps SANDBOX lists"},
		{"A=", []string{"kill", "../tokens"}, "no sandbox"},
		{"A=", []string{"logs", "--offset", "-1", box}, "offset"},
	} {
		said := e.with(c.env, c.args...)
		if said.code != exitFailed || said.stdout != "" || !strings.Contains(said.stderr, c.says) || !strings.HasPrefix(said.stderr, "custody: ") {
			t.Errorf("%s custody %q: exit code %d: %s%s", c.env, c.args, said.code, said.stdout, said.stderr)
		}
	}
}

// elsewhereKilled: when the service is killed, and starts again, output continues from the record.
func elsewhereKilled(t *testing.T, e *elsewhere) {
	box := strings.TrimSpace(e.user.must(0, "run", "-q", "-d", "--", "sh", "-c", "seq 1000; sleep 1000").stdout)
	cmd := e.user.command("logs", "-f", box)
	var out screen
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	e.user.start(cmd)
	out.await(t, "\n1000\n")
	eventually(t, "recorded", func() bool {
		return strings.Contains(e.admin.custody("timeline", box, "--kind", "output").stdout, "| 1000\n")
	})
	check(t, e.serve.Process.Kill())
	e.serve.Wait()
	e.start()
	cmd.Wait()
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintln(&want, i+1)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 || out.String() != want.String() {
		t.Errorf("exit code %d, %d of %d bytes", code, len(out.String()), want.Len())
	}
	if said := e.user.must(0, "logs", box, "p1"); said.stdout != want.String() {
		t.Errorf("afterwards logs prints %d of %d bytes", len(said.stdout), want.Len())
	}
	if said := e.user.must(0, "logs", "--offset", "3885", box, "p1"); said.stdout != want.String()[3885:] {
		t.Errorf("from an offset logs prints %q", said.stdout)
	}
	e.user.contains(e.user.must(125, "logs", box, "p2").stderr, "no process")
	e.admin.verified(box)
}

// with calls the program with another value of a variable.
func (e *elsewhere) with(env string, args ...string) said {
	e.user.Helper()
	cmd := e.user.command(args...)
	cmd.Env = append(cmd.Env, env)
	return e.user.finish(cmd)
}
