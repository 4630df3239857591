package sensor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/kerneltest"
)

func sumOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// lines renders events shortly, one per line, so that a test can name what it expects.
func lines(events []audit.Event, kind audit.Kind) []string {
	var out []string
	for _, e := range events {
		if e.Kind != kind {
			continue
		}
		switch {
		case e.Exec != nil:
			out = append(out, fmt.Sprintf("%s %q in %s", e.Exec.Exe, e.Exec.Argv, e.Exec.Cwd))
		case e.Exit != nil:
			out = append(out, fmt.Sprintf("code %d signal %d", e.Exit.Code, e.Exit.Signal))
		case e.Flow != nil:
			out = append(out, fmt.Sprintf("%s %s %d errno %d", e.Flow.Proto, e.Flow.DstIP, e.Flow.DstPort, e.Flow.Errno))
		case e.File != nil:
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.File.Op, e.File.Path, e.File.To)))
		}
	}
	return out
}

// expect compares a workload's events of one kind with what they should be.
// The cell's own beginning (its first exec, before it entered its root) is left out.
func expect(t *testing.T, events []audit.Event, kind audit.Kind, want ...string) {
	t.Helper()
	got := lines(events, kind)
	if kind == audit.KindExec && len(got) > 0 && strings.HasPrefix(got[0], "/init ") {
		got = got[1:]
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s events:\ngot\n\t%s\nwant\n\t%s", kind, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func noGaps(t *testing.T, events []audit.Event) {
	t.Helper()
	for _, e := range events {
		if e.Gap != nil {
			t.Errorf("lost: %+v", *e.Gap)
		}
	}
}

// TestSensor runs workloads in a cell and compares what the sensor says with
// what they are known to do.
func TestSensor(t *testing.T) {
	if !kerneltest.InVM() {
		kerneltest.Run(t, kerneltest.OfTemplate(t), "-test.v", "-test.run=TestSensor", "-sensor.race="+raceTime.String())
		return
	}
	t.Run("refused", testEmitFails)
	c := newCell(t, Settings{Boot: "boot", Run: "run", ReadOver: 4096})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cell)
	}{
		{"exec", testExec}, {"exit", testExit}, {"argv", testArgv}, {"pids", testPIDs}, {"unexeced", testForkOnly},
		{"unlinked", testUnlinked}, {"rewrite", testRewrite}, {"mapped", testMapped}, {"otherways", testOtherWays},
		{"read", testRead}, {"flow", testFlow}, {"flow's source", testFlowSource}, {"large", testLarge}, {"flood", testFlood}, {"untracked", testUntracked},
		{"attest", testAttest}, {"chroot", testChroot}, {"emptied", testEmptied}, {"sparse", testSparse}, {"race", testRace},
		{"copy up", testCopyUp}, {"aliases", testAliases},
		{"files", testFiles}, // the last: it deletes what others read
	} {
		t.Run(test.name, func(t *testing.T) {
			outer := c.t
			c.t = t
			defer func() { c.t = outer }()
			test.run(t, c)
		})
	}
}

func testExec(t *testing.T, c *cell) {
	events := c.run("spawn", "true", "", "\xff b", "c\n")
	expect(t, events, audit.KindExec,
		`/workload ["/workload" "workload" "spawn" "true" "" "\xff b" "c\n"] in /workspace`,
		`/workload ["/workload" "workload" "true" "" "\xff b" "c\n"] in /workspace`)
	noGaps(t, events)
	var execs []*audit.Exec
	for _, e := range events {
		if e.Step != "step" || e.Observer != audit.Guest || time.Since(e.Guest.Time).Abs() > time.Minute {
			t.Errorf("event's envelope: %+v", e)
		}
		if e.Exec != nil {
			execs = append(execs, e.Exec)
		}
	}
	parent, child := execs[1], execs[2]
	if child.Parent != parent.Proc || child.PPID != parent.PID || child.Proc == parent.Proc || child.PID == parent.PID {
		t.Errorf("child %+v of parent %+v", child, parent)
	}
	if execs[0].Proc != parent.Proc {
		t.Errorf("a second exec changed the process's identity: %+v, %+v", execs[0], parent)
	}
	events = c.run("script")
	expect(t, events, audit.KindExec,
		`/workload ["/workload" "workload" "script"] in /workspace`,
		`/workload ["/workload" "workload" "./run.sh" "given"] in /workspace`)
	events = c.run("memfd")
	expect(t, events, audit.KindExec,
		`/workload ["/workload" "workload" "memfd"] in /workspace`,
		`/memfd:ghost (deleted) ["ghost" "workload" "true"] in /workspace`)
	for _, l := range lines(events, audit.KindFile) {
		if strings.Contains(l, "ghost") {
			t.Errorf("memory without a name as a file: %s", l)
		}
	}
}

func testExit(t *testing.T, c *cell) {
	expect(t, c.run("spawn", "exit", "7"), audit.KindExit, "code 7 signal 0", "code 0 signal 0")
	expect(t, c.run("spawn", "die"), audit.KindExit, "code 137 signal 9", "code 0 signal 0")
	events := c.run("spawn", "thread")
	expect(t, events, audit.KindExit, "code 3 signal 0", "code 0 signal 0")
	ordered(t, events)
}

// ordered checks that a process's events lie between its exec and its exit,
// that each exec has an exit, and that time does not run backwards.
func ordered(t *testing.T, events []audit.Event) {
	t.Helper()
	began, ended := map[string]time.Time{}, map[string]bool{}
	for _, e := range events {
		var proc string
		switch {
		case e.Exec != nil:
			proc = e.Exec.Proc
			if _, again := began[proc]; !again {
				began[proc] = e.Guest.Time
			}
		case e.Exit != nil:
			proc = e.Exit.Proc
			got, want := time.Duration(e.Exit.DurationNS), e.Guest.Time.Sub(began[proc])
			if (got - want).Abs() > time.Millisecond {
				t.Errorf("duration %v, but %v between exec and exit", got, want)
			}
		case e.File != nil:
			proc = e.File.Proc
		default:
			continue
		}
		if _, ok := began[proc]; !ok || ended[proc] {
			t.Errorf("event outside its process's life: %+v", e)
		}
		ended[proc] = e.Exit != nil
	}
	for proc := range began {
		if !ended[proc] {
			t.Errorf("process %s has no exit", proc)
		}
	}
}

func testArgv(t *testing.T, c *cell) {
	args := []string{"spawn", "wait"}
	for i := range 100 {
		args = append(args, strings.Repeat(string(rune('a'+i%26)), 1000))
	}
	cmd := c.command(args...)
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	var child *audit.Exec
	for child == nil {
		for _, e := range c.flush() {
			if e.Exec != nil && len(e.Exec.Argv) > 2 && e.Exec.Argv[2] == "wait" {
				child = e.Exec
			}
		}
	}
	in.Write([]byte("\n"))
	must(t, cmd.Wait())
	c.flush()
	want := "/workload\x00workload\x00" + strings.Join(args[1:], "\x00") + "\x00"
	var kept bytes.Buffer
	for _, a := range child.Argv {
		kept.WriteString(string(a) + "\x00")
	}
	if !strings.HasPrefix(want, strings.TrimSuffix(kept.String(), "\x00")) || kept.Len()-1 != argvKept {
		t.Errorf("kept %d bytes: %.60q", kept.Len(), kept.String())
	}
	if !child.Truncated || child.ArgvBytes != len(want) || child.ArgvSHA256 != sumOf(want) {
		t.Errorf("truncated %v, %d bytes, digest %s; want true, %d, %s",
			child.Truncated, child.ArgvBytes, child.ArgvSHA256, len(want), sumOf(want))
	}
}

// testPIDs gives two processes the same pid, and one a pid namespace of its own.
func testPIDs(t *testing.T, c *cell) {
	procs := map[string]bool{}
	for range 2 {
		must(t, os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte("20000"), 0))
		for _, e := range c.run("true") {
			if e.Exec == nil {
				continue
			}
			procs[e.Exec.Proc] = true
			if e.Exec.PID < 20000 {
				t.Errorf("pid %d is not one of the initial namespace", e.Exec.PID)
			}
		}
	}
	if len(procs) != 2 {
		t.Errorf("two processes of one pid have %d identities", len(procs))
	}
	events := c.run("nested")
	if n := len(lines(events, audit.KindExec)); n != 3 {
		t.Errorf("%d execs across pid namespaces, want 3", n)
	}
	ordered(t, events)
}

func testForkOnly(t *testing.T, c *cell) {
	events := c.run("fork")
	expect(t, events, audit.KindFile, "create /workspace/forked", "write /workspace/forked")
	var parent string
	for _, e := range events {
		if e.Exec != nil {
			parent = e.Exec.Proc
		}
		if e.File != nil && (e.File.Proc == parent || e.File.Parent != parent) {
			t.Errorf("file %+v; its process was forked by %s", e.File, parent)
		}
	}
	expect(t, events, audit.KindExit, "code 0 signal 0") // the parent's alone
}

func testFiles(t *testing.T, c *cell) {
	events := c.run("files")
	expect(t, events, audit.KindFile,
		"create /workspace/d",
		"create /workspace/d/a", "write /workspace/d/a", "rename /workspace/d/a /workspace/d/b",
		"create /workspace/c", "write /workspace/c", "delete /workspace/d/b", "rename /workspace/c /workspace/d/b",
		"create /workspace/l", "create /workspace/s",
		"create /workspace/x", "write /workspace/x",
		"rename /workspace/x /workspace/l", "rename /workspace/l /workspace/x",
		"delete /workspace/s", "create /workspace/p",
		"delete /workspace/d/b", "delete /workspace/d", "delete /workspace/given",
		"create /tmp/t", "write /tmp/t")
	hashes(t, events, map[string]string{
		"/workspace/d/a": "one", "/workspace/c": "two", "/workspace/x": "three",
		"/tmp/t": "", // not marked, and its mount is gone with the cell
	})
	ordered(t, events)
}

// hashes compares writes with the contents that were closed; an empty content
// stands for a file that may go without a hash, but not with a wrong one.
func hashes(t *testing.T, events []audit.Event, contents map[string]string) {
	t.Helper()
	for _, e := range events {
		if e.File == nil || e.File.Op != audit.FileWrite {
			continue
		}
		want, known := contents[string(e.File.Path)]
		if !known {
			t.Errorf("unexpected write: %+v", *e.File)
		}
		if want == "" && (e.File.Unhashed == "") == (e.File.SHA256 == "") {
			t.Errorf("neither digest nor reason, or both: %+v", *e.File)
		}
		if want != "" && (e.File.SHA256 != sumOf(want) || e.File.Size != int64(len(want))) {
			t.Errorf("%+v: want size %d, digest %s", *e.File, len(want), sumOf(want))
		}
	}
}

func testUnlinked(t *testing.T, c *cell) {
	contents := map[string]string{}
	for i := range 20 {
		contents[fmt.Sprintf("/workspace/u%d", i)] = fmt.Sprintf("u%d content", i)
	}
	events := c.run("unlinked")
	hashes(t, events, contents)
	if n := len(lines(events, audit.KindFile)); n != 60 {
		t.Errorf("%d file events, want 60", n)
	}
}

// testRewrite: whatever the speed, a digest is never that of another close's content.
func testRewrite(t *testing.T, c *cell) {
	var n int
	var last *audit.File
	for _, e := range c.run("rewrite") {
		if e.File == nil || e.File.Op != audit.FileWrite {
			continue
		}
		last = e.File
		if want := sumOf(fmt.Sprintf("%06d", n)); e.File.SHA256 != want && e.File.Unhashed == "" {
			t.Errorf("write %d has digest %s, want %s or a reason", n, e.File.SHA256, want)
		}
		n++
	}
	if n != 200 || last.SHA256 != sumOf("000199") {
		t.Errorf("%d writes, the last %+v", n, last)
	}
}

func testMapped(t *testing.T, c *cell) {
	events := c.run("mapped")
	expect(t, events, audit.KindFile,
		"create /workspace/mfalse", "write /workspace/mfalse",
		"create /workspace/mtrue", "write /workspace/mtrue", "write /workspace/mtrue")
	var last *audit.File
	for _, e := range events {
		if e.File != nil {
			last = e.File
		}
	}
	want := "mapped mtrue" + strings.Repeat("\x00", 4096-12)
	if last.SHA256 != sumOf(want) {
		t.Errorf("after the mapping ended: %+v, want digest %s", *last, sumOf(want))
	}
}

func testOtherWays(t *testing.T, c *cell) {
	events := c.run("otherways")
	var tmpfile bool
	var cut []int64
	for _, e := range events {
		if e.File == nil || e.File.Op != audit.FileWrite {
			continue
		}
		switch path := string(e.File.Path); {
		case path == "/workspace/cut":
			cut = append(cut, e.File.Size)
		case path == "/workspace/copied" || path == "/workspace/sent":
			if e.File.SHA256 != sumOf("0123456789") {
				t.Errorf("%+v", *e.File)
			}
		case path == "/workspace/allocated":
			if e.File.SHA256 != sumOf("\x00\x00\x00\x00\x00") {
				t.Errorf("%+v", *e.File)
			}
		case strings.HasPrefix(path, "/tmp/#") && strings.HasSuffix(path, " (deleted)"):
			tmpfile = e.File.Size == 8
		}
	}
	if !slices.Equal(cut, []int64{10, 4}) {
		t.Errorf("sizes around truncate: %v", cut)
	}
	if !tmpfile {
		t.Errorf("no write of a nameless file among %q", lines(events, audit.KindFile))
	}
}

func testRead(t *testing.T, c *cell) {
	for range 2 { // the second digest is out of the cache
		var reads int
		for _, e := range c.run("read") {
			if e.File == nil || e.File.Path != "/workspace/given" {
				continue
			}
			reads++
			if e.File.Op != audit.FileRead || e.File.Size != 5000 || e.File.SHA256 != sumOf(strings.Repeat("given", 1000)) {
				t.Errorf("%+v", *e.File)
			}
		}
		if reads != 1 {
			t.Errorf("%d reads", reads)
		}
	}
}

func testFlow(t *testing.T, c *cell) {
	expect(t, c.run("connect"), audit.KindFlow,
		"tcp 127.0.0.1 9 errno 115", "tcp ::1 9 errno 115", "udp ::1 53 errno 0")
}

// testFlowSource: the port and address that an attempt is said to come from are those that its peer saw.
func testFlowSource(t *testing.T, c *cell) {
	listener, err := net.Listen("tcp", ":0")
	must(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	packets, err := net.ListenPacket("udp", fmt.Sprint(":", port))
	must(t, err)
	defer packets.Close()
	events := c.run("reach", fmt.Sprint(port))
	var flows []*audit.Flow
	for _, e := range events {
		if e.Flow != nil {
			flows = append(flows, e.Flow)
		}
	}
	if len(flows) != 12 {
		t.Fatalf("%d flows, want 12: %q", len(flows), lines(events, audit.KindFlow))
	}
	refused := flows[11]
	if refused.SrcPort < 1024 || refused.Errno != int(unix.ECONNREFUSED) {
		t.Errorf("refused: %+v", *refused)
	}
	for i, f := range flows[:11] {
		var peer netip.AddrPort
		if f.Proto == "tcp" {
			conn, err := listener.Accept()
			must(t, err)
			peer = conn.RemoteAddr().(*net.TCPAddr).AddrPort()
			conn.Close()
		} else {
			packets.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, from, err := packets.ReadFrom(make([]byte, 16))
			must(t, err)
			peer = from.(*net.UDPAddr).AddrPort()
		}
		ip := peer.Addr().Unmap().String()
		if f.SrcPort != int(peer.Port()) || f.SrcIP != ip && f.SrcIP != "" || f.Proto == "tcp" && f.SrcIP == "" || f.DstIP != ip {
			t.Errorf("try %d: %+v; the peer saw %v", i, *f, peer)
		}
	}
}

func testLarge(t *testing.T, c *cell) {
	events := c.run("large", "3")
	hashes(t, events, map[string]string{
		"/workspace/large": strings.Repeat("0123456789abcdef", 3<<16), "/workspace/small": "after",
	})
}

// testFlood: what the ring cannot hold is counted exactly, and execs do not suffer.
func testFlood(t *testing.T, c *cell) {
	const n = 12000
	c.mu.Lock() // the channel to the host is stuck
	c.sensor.collector.line.limit = 64 << 10
	err := c.command("flood", fmt.Sprint(n)).Run()
	c.mu.Unlock()
	must(t, err)
	events := c.flush()
	var flows, lost uint64
	for _, e := range events {
		switch {
		case e.Flow != nil:
			flows++
		case e.Gap != nil:
			if e.Gap.What != "flow" || e.Gap.Stage != "kernel_ring" {
				t.Errorf("lost: %+v", *e.Gap)
			}
			lost += e.Gap.Count
		}
	}
	if flows+lost != n || lost == 0 {
		t.Errorf("%d flows and %d lost, want %d together and some lost", flows, lost, n)
	}
	if got := len(lines(events, audit.KindExec)); got != 3 {
		t.Errorf("%d execs during the flood, want 3", got)
	}
	c.sensor.collector.line.limit = lineBytes
}

func testUntracked(t *testing.T, c *cell) {
	must(t, os.WriteFile("/tmp/outside", []byte("x"), 0o600))
	cmd := c.command("files")
	cmd.SysProcAttr.UseCgroupFD = false
	must(t, cmd.Run())
	if events := c.flush(); len(events) > 0 {
		t.Errorf("events of what is not tracked: %+v", events)
	}
	c.remake("given")
}

// testAttest: nothing that a workload controls makes a digest that is not of the content at close.
func testAttest(t *testing.T, c *cell) {
	contents := map[string][]string{}
	for i := range 3 {
		good := strings.Repeat("good ", 1000)
		contents[fmt.Sprint("/workspace/v", i)] = []string{good, "", "", "evil " + good[5:]}
		contents[fmt.Sprint("/workspace/w", i)] = []string{"good", "", "evil"}
	}
	for _, e := range c.run("attest") {
		if e.File == nil || e.File.Op != audit.FileWrite {
			continue
		}
		path := string(e.File.Path)
		if len(contents[path]) == 0 {
			t.Fatalf("unexpected write: %+v", *e.File)
		}
		want := contents[path][0]
		contents[path] = contents[path][1:]
		switch {
		case e.File.Unhashed == "" && e.File.SHA256 != sumOf(want):
			t.Errorf("%+v: want the digest of %.10q, or a reason", *e.File, want)
		case want != "" && len(contents[path]) == 0 && e.File.SHA256 == "":
			t.Errorf("the last content has no digest: %+v", *e.File)
		}
	}
	for path, left := range contents {
		if len(left) > 0 {
			t.Errorf("%d writes of %s are missing", len(left), path)
		}
	}
}

// testChroot: paths are those of the sandbox, whatever root directory the process has.
func testChroot(t *testing.T, c *cell) {
	expect(t, c.run("chroot"), audit.KindFile,
		"create /workspace/jail", "create /workspace/jail/etc", "chroot /workspace/jail",
		"create /workspace/jail/etc/passwd", "write /workspace/jail/etc/passwd", "chroot /workspace/jail/etc",
		"create /workspace/jail/etc/shadow", "write /workspace/jail/etc/shadow")
}

// testEmptied: to open a file for reading can take its content away.
func testEmptied(t *testing.T, c *cell) {
	events := c.run("emptied")
	expect(t, events, audit.KindFile, "create /workspace/e", "write /workspace/e", "write /workspace/e")
	if last := lastFile(events); last.Size != 0 || last.SHA256 != sumOf("") {
		t.Errorf("%+v", *last)
	}
}

func lastFile(events []audit.Event) *audit.File {
	var last *audit.File
	for _, e := range events {
		if e.File != nil {
			last = e.File
		}
	}
	return last
}

// testCopyUp: an overlay's own work in its layers is not the process's.
func testCopyUp(t *testing.T, c *cell) {
	events := c.run("copyup")
	expect(t, events, audit.KindFile, "write /workspace/given")
	if last := lastFile(events); last.SHA256 != sumOf(strings.Repeat("given", 1000)+"more") {
		t.Errorf("%+v", *last)
	}
	must(t, os.Remove(c.root+"/workspace/given"))
	c.remake("given")
}

// testAliases: a file is the same under each of its names.
func testAliases(t *testing.T, c *cell) {
	events := c.run("aliases")
	expect(t, events, audit.KindFile, "create /workspace/alias", "write /workspace/alias", "delete /workspace/alias")
	var st unix.Stat_t
	must(t, unix.Stat(c.root+"/workspace/given", &st))
	for _, e := range events {
		if f := e.File; f != nil && (f.Inode != fmt.Sprint(st.Ino) || f.Device != fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))) {
			t.Errorf("%+v; stat says device %#x, inode %d", *f, st.Dev, st.Ino)
		}
		if f := e.File; f != nil && f.Op == audit.FileCreate && f.Source != "/workspace/given" {
			t.Errorf("%+v does not name what it is a link to", *f)
		}
	}
}

// testSparse: contents that cannot be hashed in time have an event with the reason, and hold up no other.
func testSparse(t *testing.T, c *cell) {
	c.sensor.hashTime = 3 * time.Second
	defer func() { c.sensor.hashTime = hashTime }()
	began := time.Now()
	events := c.run("sparse")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	last := map[string]*audit.File{}
	for _, e := range events {
		if e.File != nil && e.File.Op == audit.FileWrite {
			last[string(e.File.Path)] = e.File
		}
	}
	for path, want := range map[string]string{
		"/workspace/sparse0": unhashedLarge, "/workspace/sparse1": unhashedLate, "/workspace/sparse2": unhashedLate,
		"/workspace/sparse3": sumOf(string(make([]byte, 3<<20))), "/workspace/small": sumOf("small"),
	} {
		if f := last[path]; f == nil || f.SHA256+f.Unhashed != want {
			t.Errorf("%s: %+v, want %s", path, f, want)
		}
	}
	c.sensor.collector.hasher.settle(context.Background())
}

// remake restores a file of the workspace from outside.
func (c *cell) remake(name string) {
	for _, left := range []string{"x", "l", "p"} {
		os.Remove(c.root + "/workspace/" + left)
	}
	must(c.t, os.WriteFile(c.root+"/workspace/"+name, bytes.Repeat([]byte("given"), 1000), 0o644))
}

// testEmitFails: an error of emit ends the reporting and is what Flush returns.
func testEmitFails(t *testing.T) {
	s, err := Load()
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	c := &cell{t: t, sensor: s}
	c.prepare()
	must(t, s.Start(context.Background(), testSettings, func(context.Context, *audit.Event) error { return os.ErrClosed }))
	c.track()
	must(t, c.command("true").Run())
	for range 2 {
		if err := s.Flush(context.Background()); err != os.ErrClosed {
			t.Errorf("Flush: %v, want emit's error", err)
		}
	}
	if err := s.Start(context.Background(), testSettings, c.take); err == nil {
		t.Error("started twice")
	}
}
