package main

import (
	"cmp"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/service/remote"
)

// someone is an ordinary user, whose group is that of the service's socket.
const someone = 65534

// served is a host with a service.
type served struct {
	user  *door // someone, who uses the service
	admin *door // root, without it
	serve *exec.Cmd
	out   *screen // of serve
	// listen is the address of the page; "": any on loopback.
	listen string
}

// newServed starts a service on a host that runs sandboxes with gVisor.
func newServed(t *testing.T) *served {
	t.Helper()
	admin := newGVisorDoor(t)
	admin.asks = true
	return serveFor(t, admin, publicDir(t))
}

// serveFor starts the service of admin, with its socket in a directory.
func serveFor(t *testing.T, admin *door, dir string) *served {
	t.Helper()
	s := unserved(t, admin, dir)
	s.start()
	return s
}

// unserved is a service that has not started.
func unserved(t *testing.T, admin *door, dir string) *served {
	t.Helper()
	user := *admin
	s := &served{admin: admin, user: &user}
	socket := filepath.Join(dir, "custody.sock")
	s.user.dir = filepath.Join(dir, "home")
	if err := os.Mkdir(s.user.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(s.user.dir, someone, someone); err != nil {
		t.Fatal(err)
	}
	s.user.env = []string{remote.SocketEnv + "=" + socket}
	s.user.launch, s.user.program = as(someone, someone), "custody-client"
	return s
}

// publicDir makes a directory that all users can reach.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "custody-service-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// as returns a function that starts programs as a user who is in one group only.
func as(uid, gid uint32) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid, NoSetGroups: false}
		return cmd.Start()
	}
}

// socket returns the path of the service's socket.
func (s *served) socket() string { return strings.TrimPrefix(s.user.env[0], remote.SocketEnv+"=") }

// start starts the service.
func (s *served) start() {
	s.admin.Helper()
	s.out = new(screen)
	s.serve = s.admin.command("serve", "--listen", cmp.Or(s.listen, "127.0.0.1:0"), "--socket", s.socket(), "--group", "nogroup")
	s.serve.Stdout, s.serve.Stderr = s.out, os.Stderr
	s.admin.start(s.serve)
	eventually(s.admin.T, "ready", func() bool { return strings.HasPrefix(s.out.String(), "http") })
	s.admin.Cleanup(s.stop)
}

// page returns the address of the page.
func (s *served) page() string {
	address, _, _ := strings.Cut(s.out.String(), "\n")
	return address
}

// stop ends the service.
func (s *served) stop() {
	s.serve.Process.Signal(syscall.SIGTERM)
	s.serve.Wait()
}

// front is a way to use the program: with the service or without it.
type front struct {
	*door
	admin *door // the records are read there
	root  *door // projects are registered there
}

// TestFronts: `custody run` does the same with the service, for an ordinary user, and without it.
func TestFronts(t *testing.T) {
	s := newServed(t)
	direct := newGVisorDoor(t)
	direct.asks = true
	apart := newSeparated(t)
	for name, f := range map[string]front{"direct": {direct, direct, direct}, "service": {s.user, s.admin, s.admin}, "separated": {apart.user, apart.admin, apart.root}} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				name string
				do   func(*testing.T, front)
			}{
				{"output", frontOutput}, {"input", frontInput}, {"variables", frontVariables}, {"records", frontRecords}, {"signal", frontSignal},
				{"terminal", frontTerminal}, {"cancelled", frontCancelled}, {"workspace", frontWorkspace}, {"egress", frontEgress},
				{"registered", frontRegistered},
			} {
				t.Run(c.name, func(t *testing.T) {
					d, admin, root := *f.door, *f.admin, *f.root
					d.T, admin.T, root.T = t, t, t
					c.do(t, front{&d, &admin, &root})
				})
			}
		})
	}
}

func frontOutput(t *testing.T, f front) {
	said := f.must(3, "run", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
	if said.stdout != "out\n" {
		t.Errorf("standard output is %q", said.stdout)
	}
	f.contains(said.stderr, "err\n", "(gvisor): custody timeline r-")
	if said = f.must(0, "run", "-q", "--", "true"); said.stdout+said.stderr != "" {
		t.Errorf("it prints %q and %q", said.stdout, said.stderr)
	}
	if said = f.must(0, "run", "-q", "--", "printf", "%s", "a\xff\xfeb"); said.stdout != "a\xff\xfeb" {
		t.Errorf("an argument that is not UTF-8 is printed as %q", said.stdout)
	}
	f.admin.verified("last")
}

func frontInput(t *testing.T, f front) {
	cmd := f.command("run", "-q", "--", "sh", "-c", "wc -c")
	cmd.Stdin = strings.NewReader(strings.Repeat("x", 300_000))
	if said := f.exited(0, f.finish(cmd)); strings.TrimSpace(said.stdout) != "300000" {
		t.Errorf("it prints %q", said.stdout)
	}
}

func frontVariables(t *testing.T, f front) {
	f.env = append(f.env, "FROM=environment")
	f.project("version: 1\nproject: mine\nenv: {OF: file}\nsteps: [{name: s, run: echo steps}]\n")
	defer os.Remove(filepath.Join(f.dir, "custody.yaml"))
	said := f.must(0, "run", "--env", "FROM", "--env", "GIVEN=a b", "--", "sh", "-c", `echo "$FROM,$GIVEN,$OF"`)
	if said.stdout != "environment,a b,file\n" {
		t.Errorf("it prints %q", said.stdout)
	}
	f.contains(said.stderr, "project file "+filepath.Join(f.dir, "custody.yaml"))
	if said := f.must(0, "run", "-q"); said.stdout != "steps\n" {
		t.Errorf("the steps print %q", said.stdout)
	}
	f.contains(f.must(125, "run", "--env", "PATH=/x", "--", "true").stderr, "PATH")
}

func frontRecords(t *testing.T, f front) {
	said := f.must(0, "run", "-q", "--json", "--", "echo", "recorded")
	all := decode[audit.Record](f.door, said.stdout)
	if len(all) == 0 || all[0].Lifecycle == nil || said.stderr != "" {
		t.Fatalf("%d records, and %q", len(all), said.stderr)
	}
	if own := f.admin.records(all[0].Run); len(own) != len(all) {
		t.Errorf("it prints %d records; the timeline has %d", len(all), len(own))
	}
}

func frontSignal(t *testing.T, f front) {
	cmd := f.command("run", "--", "sh", "-c", "trap 'echo got it; exit 3' INT; echo ready; while :; do sleep 0.1; done")
	var out, errs screen
	cmd.Stdout, cmd.Stderr = &out, &errs
	f.start(cmd)
	out.await(t, "ready")
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(out.String(), "got it") {
		t.Errorf("exit code %d, %q, %q", code, out.String(), errs.String())
	}
}

func frontCancelled(t *testing.T, f front) {
	cmd := f.command("run", "--", "sh", "-c", "echo ready; sleep 1000")
	var out, errs screen
	cmd.Stdout, cmd.Stderr = &out, &errs
	f.start(cmd)
	out.await(t, "ready")
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
	if run := f.admin.runs()[0]; string(run.Result) != "cancelled" || string(run.Status) != "sealed" {
		t.Errorf("run is %s, %s", run.Status, run.Result)
	}
	f.admin.verified("last")
}

func frontTerminal(t *testing.T, f front) {
	f.env = append(f.env, "TERM=vt100")
	cmd := f.command("run", "--tty", "--", "bash", "-c", `
		test -t 0 && test -t 1 && echo "a terminal: $TERM, $(stty size)"
		trap 'echo "resized: $(stty size)"' WINCH
		read -r line; echo "line: <$line>"
		while :; do sleep 0.1; done`)
	outer, inner, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	if err := pty.Setsize(outer, &pty.Winsize{Rows: 33, Cols: 101}); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inner, inner, inner
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	f.start(cmd)
	inner.Close()
	var shown screen
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(&shown, outer) })
	shown.await(t, "a terminal: vt100, 33 101\r\n")
	io.WriteString(outer, "typed\r")
	shown.await(t, "line: <typed>")
	if err := pty.Setsize(outer, &pty.Winsize{Rows: 50, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	shown.await(t, "resized: 50 132\r\n")
	io.WriteString(outer, "\x03")
	cmd.Wait()
	reading.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d:\n%s", code, shown.String())
	}
}

// frontWorkspace: files are read and written with the rights of the user.
func frontWorkspace(t *testing.T, f front) {
	in, out := filepath.Join(f.dir, "in"), filepath.Join(f.dir, "out")
	for _, dir := range []string{in, out} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, f.uid(t), f.uid(t)); err != nil {
			t.Fatal(err)
		}
	}
	f.write(filepath.Join(in, "left"), "left")
	f.write(filepath.Join(in, ".custodyignore"), "left\n")
	f.write(filepath.Join(in, "given"), strings.Repeat("given\n", 50_000))
	said := f.must(0, "run", "--workdir", in, "--out", out, "--", "sh", "-ec", "test ! -e left; wc -l < given; mkdir made; head -c 200000 given > made/copy; echo new > custody.yaml")
	if strings.TrimSpace(said.stdout) != "50000" {
		t.Errorf("it prints %q", said.stdout)
	}
	info, err := os.Stat(filepath.Join(out, "made", "copy"))
	if err != nil || info.Size() != 200_000 || int(info.Sys().(*syscall.Stat_t).Uid) != f.uid(t) {
		t.Errorf("the copied file: %+v, %v", info, err)
	}
	if _, err := os.Lstat(filepath.Join(out, "custody.yaml")); err == nil {
		t.Error("a project file was written")
	}
	f.contains(f.must(125, "run", "--out", filepath.Join(f.dir, "none"), "--", "true").stderr, "there is no such directory", "hint: make it first")
	f.project("version: 1\nlimits: {disk: 64MiB}\n")
	defer os.Remove(filepath.Join(f.dir, "custody.yaml"))
	large, err := os.Create(filepath.Join(in, "large"))
	if err != nil || large.Truncate(1<<30) != nil || large.Close() != nil {
		t.Fatal(err)
	}
	f.contains(f.must(125, "run", "--workdir", in, "--", "true").stderr, "--workdir "+in, "hint: raise limits.disk")
	if f.launch == nil {
		return
	}
	f.contains(f.must(125, "run", "--out", f.root.dir, "--", "true").stderr, "permission denied") // root's
}

// uid returns that of the user.
func (f front) uid(t *testing.T) int {
	t.Helper()
	if f.launch == nil {
		return os.Getuid()
	}
	return someone
}

// frontEgress: without a policy nothing is reached.
func frontEgress(t *testing.T, f front) {
	f.must(1, "run", "-q", "--", "python3", "-c", "import socket; socket.create_connection(('192.0.2.1', 443), 5)")
	if list := f.admin.records("last", "flow"); len(list) == 0 {
		t.Error("the attempt is not recorded")
	}
}

// frontRegistered: a run is of a registered project, which it can only narrow.
func frontRegistered(t *testing.T, f front) {
	key := filepath.Join(f.admin.dir, "key")
	if err := os.WriteFile(key, []byte("in-the-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(f.admin.home); err != nil || os.Chown(key, int(info.Sys().(*syscall.Stat_t).Uid), -1) != nil {
		t.Fatalf("give the key to the user of the service: %v", err)
	}
	shop := strings.Replace(registeredShop, "%s", key, 1)
	f.root.write(filepath.Join(f.root.dir, "shop.yaml"), shop)
	f.root.must(0, "project", "apply", filepath.Join(f.root.dir, "shop.yaml"))
	if said := f.must(0, "run", "--project", "shop"); said.stdout != "hello\n" {
		t.Errorf("it prints %q", said.stdout)
	}
	if said := f.must(0, "run", "-q", "--project", "shop", "--secret", "key", "--", "sh", "-c", `test "$KEY" = in-the-file && echo has it`); said.stdout != "has it\n" {
		t.Errorf("it prints %q", said.stdout)
	}
	f.write(filepath.Join(f.dir, "wide.yaml"), "version: 1\nproject: shop\negress: [{allow: other.example}]\n")
	f.contains(f.must(125, "run", "--policy", "wide.yaml", "--", "true").stderr, "asks for more than the registered project shop (version 1) allows", "other.example")
	f.contains(f.must(125, "run", "--project", "none", "--", "true").stderr, "none", "custody project ls")
}

// TestServiceRefuses: through the service a run of no registered project gets no more than the defaults, without a question of trust.
func TestServiceRefuses(t *testing.T) {
	s := newServed(t)
	refused := func(want string, args ...string) {
		t.Helper()
		s.user.contains(s.user.must(125, append([]string{"run"}, args...)...).stderr, want)
	}
	s.user.must(0, "run", "--isolation", "gvisor", "--", "true") // the host requires it
	s.user.write(filepath.Join(s.user.dir, "narrow.yaml"), narrowShop)
	s.user.write(filepath.Join(s.user.dir, "secret.yaml"), "version: 1\nproject: mine\nsecrets: {s: {from: 'file:/etc/shadow', deliver: {env: S}}}\nsteps: [{name: s, run: 'true', secrets: [s]}]\n")
	refused("asks for more than a run of no registered project gets through the service", "--policy", "narrow.yaml")
	refused("an administrator can register the project: custody project apply FILE", "--policy", "narrow.yaml")
	refused("secret s: the project has no secret of this name", "--policy", "secret.yaml")
	refused("--template other; the default is base", "--template", "other", "--", "true")
	refused("--isolation qemu-tcg; the default is the strongest tier that works", "--isolation", "qemu-tcg", "--", "true")
	refused("--trust", "--trust", "--", "true")
	refused("--metrics", "--metrics", "127.0.0.1:0", "--", "true")
	refused("there is nothing to run")
	s.admin.write(filepath.Join(s.admin.dir, "shop.yaml"), "version: 1\nproject: shop\negress: [{allow: a.example.com}]\nsteps: [{name: s, run: echo shop}]\n")
	s.admin.must(0, "project", "apply", "shop.yaml")
	s.user.write(filepath.Join(s.user.dir, "shop.yaml"), "version: 1\nproject: shop\nsteps: [{name: s, run: echo narrowed}]\n")
	if said := s.user.must(0, "run", "--policy", "shop.yaml"); said.stdout != "narrowed\n" { // not trusted by anyone
		t.Errorf("it prints %q", said.stdout)
	}

	stranger := *s.user
	stranger.launch = as(someone-1, someone-1)
	stranger.contains(stranger.must(125, "run", "--", "true").stderr, "permission denied", "the members of its socket's group")
	s.stop()
	s.user.contains(s.user.must(125, "run", "--", "true").stderr, "it is not running")
}
