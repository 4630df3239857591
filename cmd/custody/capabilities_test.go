package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redteam/simnet"
	"github.com/custody-project/custody/store"
)

// capabilities are the rows of the table in docs/drivers.md.
var capabilities = []capability{
	{"start", "a run starts and ends, its record names the tier and verifies", (*door).canStart},
	{"steps", "steps share `/workspace`; each has its directory and variables; a step that fails ends the run with its exit code", (*door).canStep},
	{"terminal", "`--tty`: size, resize, interrupt", (*door).canTTY},
	{"signals", "SIGINT reaches the command; SIGTERM ends the run", (*door).canSignal},
	{"copy in and out", "`--workdir`, `--out`: content, modes, links, names", (*door).canCopy},
	{"secrets", "a variable and a file in memory for one step; masked, revoked, gone afterwards", (*door).canSecret},
	{"egress", "allowed requests pass; everything else is denied and recorded", (*door).canEgress},
	{"record", "exec, exit, files, connections, DNS queries, secrets and output are recorded; a gap declares what is not", (*door).canRecord},
	{"freeze on a full disk", "no step runs while the record cannot be written; nothing is lost", (*door).canFreeze},
	{"pause", "`custody pause` and `custody resume`", (*door).canPause},
	{"memory image", "`custody snapshot`", (*door).canDump},
	{"limit of processes", "`limits.pids`", (*door).canLimitPIDs},
	{"limit of memory", "`limits.memory`: a step that needs more is ended, the host is not affected", (*door).canLimitMemory},
	{"limit of disk", "`limits.disk`", (*door).canLimitDisk},
	{"limit of disk rate", "`limits.disk_rate`", (*door).canLimitDiskRate},
	{"limit of network rate", "`limits.network_rate`", (*door).canLimitNetworkRate},
	{"limit of time", "`limits.time`", (*door).canLimitTime},
	{"kill -9 of the sandbox", "any process of the sandbox: the run ends as interrupted, its record verifies", (*door).canLoseSandbox},
	{"kill -9 of custody", "the sandbox ends; the next command closes the record", (*door).canLoseCustody},
}

func (d *door) canStart() string {
	s := d.must(3, "run", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
	if s.stdout != "out\n" || !strings.Contains(s.stderr, "err\n") {
		d.Errorf("stdout %q, stderr %q", s.stdout, s.stderr)
	}
	d.hasTier(d.tier)
	d.verified("last")
	d.tidy()
	return ""
}

func (d *door) canStep() string {
	d.project(`version: 1
env: {GREETING: hello}
steps:
  - {name: one, run: "mkdir -p sub; echo $GREETING >sub/file; umask"}
  - {name: two, workdir: /workspace/sub, env: {GREETING: bye}, run: "pwd; cat file; echo $GREETING; id -u"}
  - {name: three, run: "echo $GREETING; exit 7"}
  - {name: four, run: "echo never"}
`)
	s := d.must(7, "run", "-q")
	if want := "0022\n/workspace/sub\nhello\nbye\n0\nhello\n"; s.stdout != want {
		d.Errorf("the steps printed %q, want %q", s.stdout, want)
	}
	var steps []string
	for _, r := range d.records("last", "step") {
		if r.Lifecycle.Phase == audit.PhaseEnd {
			steps = append(steps, fmt.Sprint(r.Step, " ", *r.Lifecycle.ExitCode))
		}
	}
	if want := []string{"one 0", "two 0", "three 7"}; !slices.Equal(steps, want) {
		d.Errorf("steps in the record: %q, want %q", steps, want)
	}
	return ""
}

func (d *door) canTTY() string {
	d.env = []string{"TERM=vt100"}
	cmd := d.command("run", "--tty", "--", "bash", "-c", `
		test -t 0 && test -t 1 && test -t 2 && echo "a terminal: $TERM, $(stty size)"
		trap 'echo "resized: $(stty size)"' WINCH
		trap 'echo interrupted; exit 9' INT
		read -r line; echo "line: <$line>"
		echo ready; while :; do sleep 0.1; done`)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 101})
	if err != nil {
		d.Fatal(err)
	}
	defer terminal.Close()
	d.Cleanup(func() { cmd.Process.Kill() })
	var shown screen
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(&shown, terminal) })
	shown.await(d.T, "a terminal: vt100, 33 101\r\n")
	io.WriteString(terminal, "typed\r")
	shown.await(d.T, "line: <typed>")
	shown.await(d.T, "ready")
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 50, Cols: 132}); err != nil {
		d.Fatal(err)
	}
	shown.await(d.T, "resized: 50 132\r\n")
	io.WriteString(terminal, "\x03")
	shown.await(d.T, "interrupted\r\n")
	cmd.Wait()
	reading.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 9 {
		d.Errorf("exit code %d, want 9:\n%s", code, shown.String())
	}
	return ""
}

func (d *door) canSignal() string {
	for _, c := range []struct {
		signal syscall.Signal
		code   int
		result string
	}{
		{syscall.SIGINT, 3, "done"},
		{syscall.SIGTERM, exitFailed, "cancelled"},
	} {
		cmd := d.command("run", "-q", "--", "sh", "-c", "trap 'echo got it; exit 3' INT TERM; echo ready; while :; do sleep 0.1; done")
		var out screen
		cmd.Stdout = &out
		d.start(cmd)
		out.await(d.T, "ready")
		cmd.Process.Signal(c.signal)
		cmd.Wait()
		r := d.runs()[0]
		if code := cmd.ProcessState.ExitCode(); code != c.code || string(r.Result) != c.result || !strings.Contains(out.String(), "got it") {
			d.Errorf("%v: exit code %d, the run is %s, output %q", c.signal, code, r.Result, out.String())
		}
		d.verified("last")
	}
	return ""
}

func (d *door) canCopy() string {
	in, out := filepath.Join(d.dir, "in"), filepath.Join(d.dir, "out")
	big := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // more than a message of the channel
	for _, err := range []error{
		os.MkdirAll(filepath.Join(in, "sub"), 0o755), os.Mkdir(out, 0o755),
		os.WriteFile(filepath.Join(in, "big"), big, 0o644),
		os.WriteFile(filepath.Join(in, "sub", "tool"), []byte("#!/bin/sh\necho tool\n"), 0o755),
		os.WriteFile(filepath.Join(in, "not \xff utf-8"), []byte("x"), 0o600),
		os.Symlink("sub/tool", filepath.Join(in, "link")),
	} {
		if err != nil {
			d.Fatal(err)
		}
	}
	s := d.must(0, "run", "-q", "--workdir", in, "--out", out, "--", "sh", "-ec", `
		sha256sum <big; ./link; stat -c %a not*; cat big big >bigger; ln -s ../../../etc/passwd outside; chmod 600 big; echo new >'a
b'`)
	if want := fmt.Sprintf("%x  -\ntool\n600\n", sha256.Sum256(big)); s.stdout != want {
		d.Errorf("in the sandbox: %q, want %q", s.stdout, want)
	}
	if b, err := os.ReadFile(filepath.Join(out, "bigger")); err != nil || !bytes.Equal(b, slices.Concat(big, big)) {
		d.Errorf("bigger: %d bytes, %v", len(b), err)
	}
	if b, err := os.ReadFile(filepath.Join(out, "a\nb")); err != nil || string(b) != "new\n" {
		d.Errorf("a name of two lines: %q, %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(out, "outside")); err == nil {
		d.Errorf("a link leads out of the directory: %.40q", b)
	}
	d.verified("last")
	return ""
}

func (d *door) canSecret() string {
	const value = "a-secret-of-the-driver-test"
	d.env = []string{"TOKEN=" + value}
	d.project(`version: 1
secrets:
  token: {from: "env:TOKEN", deliver: {env: TOKEN, file: token}}
steps:
  - name: has
    secrets: [token]
    run: |
      test "$(cat /run/secrets/token)" = "$TOKEN" && test ${#TOKEN} = 27
      stat -f -c %T /run/secrets
      echo "$TOKEN"
  - name: has-not
    run: ls -A /run/secrets 2>/dev/null | wc -l; echo "<$TOKEN>"; grep -c TOKEN /proc/*/environ 2>/dev/null | grep -v :0 || true
`)
	s := d.must(0, "run", "-q")
	lines := strings.Split(s.stdout, "\n")
	if len(lines) != 5 || lines[0] != "tmpfs" || !strings.HasPrefix(lines[1], "[REDACTED:token:") || lines[2] != "0" || lines[3] != "<>" {
		d.Errorf("the steps printed %q", lines)
	}
	if ops := strings.Join(d.ops("last", "has"), " "); !strings.Contains(ops, "mint") || !strings.Contains(ops, "deliver") || !strings.Contains(ops, "revoke") {
		d.Errorf("operations on the secret in the record: %s", ops)
	}
	d.verified("last")
	return ""
}

func (d *door) canEgress() string {
	d.onSite()
	d.project(rules("  - allow: " + simnet.Allowed))
	s := d.must(0, "run", "-q", "--workdir", d.dir, "--", "sh", "-c", `
		curl -sS --cacert ca.pem https://`+simnet.Allowed+`/page
		curl -sS --max-time 20 https://evil.example/ 2>/dev/null || echo denied
		curl -sS --max-time 20 http://93.184.66.66/ 2>/dev/null || echo denied
		curl -sS --max-time 20 http://[2001:db8::66]/ 2>/dev/null || echo denied
		echo x >/dev/udp/93.184.66.66/53 2>/dev/null; curl -sS --max-time 5 http://10.0.0.1/ 2>/dev/null || echo denied
		curl -sS --max-time 5 http://169.254.169.254/ 2>/dev/null || echo denied`)
	if strings.Count(s.stdout, "denied\n") != 5 || !strings.Contains(s.stdout, simnet.Hello) {
		d.Errorf("the requests printed %q", s.stdout)
	}
	if open := d.flows("last", audit.FlowOpen); len(open) != 1 || open[0].Name != simnet.Allowed {
		d.Errorf("open flows: %+v", open)
	}
	for _, ip := range []string{"93.184.66.66", "10.0.0.1", "169.254.169.254"} {
		if !slices.ContainsFunc(d.flows("last", audit.FlowDeny), func(f audit.Flow) bool { return f.DstIP == ip }) {
			d.Errorf("no denied flow to %s is recorded", ip)
		}
	}
	d.verified("last")
	return ""
}

func (d *door) canFreeze() string {
	small := smallDisk(d.T, "tmpfs", "96m")
	small.inTier(d.tier)
	small.script(0, "true")
	cmd := small.command("run", "-q", "--", "sh", "-c", // it ends when it has read a line
		"exec 3<&0; cat <&3 >stop & i=0; until [ -s stop ]; do echo line $i; i=$((i+1)); done; echo end; exit 8")
	var out, errs screen
	cmd.Stdout, cmd.Stderr = &out, &errs
	stop, err := cmd.StdinPipe()
	if err != nil {
		d.Fatal(err)
	}
	small.start(cmd)
	out.await(d.T, "line 20")
	eventually(d.T, "frozen: the sandbox", func() bool {
		small.fill()
		return strings.Contains(errs.String(), frozen)
	})
	fmt.Fprintln(stop, "stop")
	stop.Close()
	if strings.Contains(out.String(), "end") {
		d.Error("the command continued to its end")
	}
	small.free()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 8 || !strings.HasSuffix(out.String(), "end\n") {
		d.Fatalf("exit code %d, output %.300q: %s", code, out.String(), errs.String())
	}
	var recorded strings.Builder
	for _, r := range small.records("last", "output") {
		recorded.WriteString(string(r.Output.Text))
	}
	if recorded.String() != out.String() {
		d.Errorf("%d bytes of output are recorded, %d were printed", recorded.Len(), len(out.String()))
	}
	small.halted("last")
	small.verified("last")
	small.tidy()
	return ""
}

func (d *door) canPause() string {
	var out screen
	cmd := d.command("run", "-q", "--", "sh", "-c", "for i in $(seq 60); do echo $i; sleep 0.1; done; echo end")
	cmd.Stdout = &out
	d.start(cmd)
	out.await(d.T, "3\n")
	d.must(0, "pause", "last")
	time.Sleep(500 * time.Millisecond) // what the sandbox wrote before may still arrive
	shown := out.String()
	time.Sleep(time.Second)
	if now := out.String(); now != shown || strings.Contains(now, "end") {
		d.Errorf("the paused sandbox went on: %q", strings.TrimPrefix(now, shown))
	}
	d.must(0, "resume", "last")
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 0 || !strings.HasSuffix(out.String(), "60\nend\n") {
		d.Errorf("exit code %d, output %q", code, out.String())
	}
	d.halted("last")
	d.verified("last")
	return ""
}

func (d *door) canDump() string {
	cmd, out := d.begun("run", "-q", "--", "sh", "-c", "mark=in-the-memory-of-the-sandbox; echo begun; sleep 100; echo $mark")
	go io.Copy(io.Discard, out)
	image := filepath.Join(d.dir, "memory")
	s := d.custody("snapshot", "last", "-o", image, "--end-step")
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	b, err := os.ReadFile(image)
	if s.code != 0 {
		if err == nil {
			d.Error("a part of an image was left")
		}
		_, reason, found := strings.Cut(lastLine(s.stderr), "no memory image: ")
		if !found {
			d.Fatalf("exit code %d: %s", s.code, s.stderr)
		}
		return reason
	}
	if err != nil || !bytes.HasPrefix(b, []byte("\x7fELF")) || !bytes.Contains(b, []byte("custody-guest")) {
		d.Errorf("%d bytes that are no image of the guest's memory: %v", len(b), err)
	}
	d.verified("last")
	return ""
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func (d *door) canLimitPIDs() string {
	d.project("version: 1\nlimits: {pids: 40}\n")
	s := d.must(0, "run", "-q", "--", "python3", "-c", `
import os, signal
children = []
try:
    while len(children) < 200: 
        pid = os.fork()
        if pid == 0: signal.pause()
        children.append(pid)
except BlockingIOError: pass
for pid in children: os.kill(pid, 9)
print(len(children))`)
	var n int
	if fmt.Sscan(s.stdout, &n); n < 20 || n > 40 {
		d.Errorf("with 40 processes allowed, a step could start %d", n)
	}
	return ""
}

func (d *door) canLimitMemory() string {
	s := d.custody("run", "--", "python3", "-c", "b = bytearray(1 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint('never')")
	if s.code == 0 || strings.Contains(s.stdout, "never") {
		d.Errorf("exit code %d: a step got 1 GiB of 512 MiB: %s", s.code, s.stderr)
	}
	d.verified("last")
	d.tidy()
	if text := lastLine(s.stderr); s.code == exitFailed {
		if !strings.Contains(text, "used more memory than its limit") {
			d.Errorf("the run ended for another reason: %s", s.stderr)
		}
		return "the whole sandbox ends, and the run with it"
	}
	return ""
}

func (d *door) canLimitDisk() string {
	s := d.must(1, "run", "-q", "--", "sh", "-c", `
		exec 3>big; rm big # its content is not hashed then
		full='No space left on device'
		case $(fallocate -l 3G /proc/self/fd/3 2>&1) in *$full*) echo "$full" >&2; exit 1; esac
		dd if=/dev/zero bs=16M >&3`)
	d.contains(s.stderr, "No space left on device")
	d.verified("last")
	return ""
}

func (d *door) canLimitTime() string {
	d.project("version: 1\nlimits: {time: 2s}\n")
	d.must(124, "run", "-q", "--", "sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done")
	if r := d.runs()[0]; r.Status != store.Sealed {
		d.Errorf("the run is %s", r.Status)
	}
	d.verified("last")
	d.tidy()
	return ""
}

// processes returns the processes of the sandbox that custody runs, with its worker: those with namespaces that custody does not share,
// without those of a gVisor workload, which have no arguments.
func processes(custody int) []machine {
	var all []machine
	for _, c := range below(custody) {
		m := machine{pid: c.pid, started: startOf(c.pid), name: c.args}
		for _, kind := range []string{"mnt", "net"} {
			space, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", c.pid, kind))
			if ours, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", custody, kind)); space != ours && space != "" {
				m.spaces = append(m.spaces, space)
			}
		}
		if len(m.spaces) > 0 && m.started != "" && m.name != "" {
			all = append(all, m)
		}
	}
	return all
}

// living starts a run and returns the processes of its sandbox when its command has started.
func (d *door) living() (kill, wait func(), all []machine, id string) {
	d.Helper()
	cmd := d.command("run", "-q", "--", "sh", "-c", "echo ready; for i in $(seq 400); do /bin/true; sleep 0.05; done")
	var out, errs screen
	cmd.Stdout, cmd.Stderr = &out, &errs
	d.start(cmd)
	out.await(d.T, "ready")
	if all = processes(cmd.Process.Pid); len(all) == 0 {
		d.Fatal("the sandbox has no process")
	}
	names := d.logNames()
	wait = func() {
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code == 0 {
			d.Errorf("the run exits 0: %s", errs.String())
		}
	}
	return func() { cmd.Process.Kill() }, wait, all, slices.Max(names)
}

func (d *door) canLoseSandbox() string {
	for i, n := 0, 1; i < n; i++ {
		_, wait, all, id := d.living()
		n = len(all)
		if i >= n {
			break
		}
		if err := unix.Kill(all[i].pid, unix.SIGKILL); err != nil {
			d.Fatal(err)
		}
		wait()
		d.interrupted(id, all, all[i].name)
	}
	return ""
}

func (d *door) canLoseCustody() string {
	kill, wait, all, id := d.living()
	written := d.logged(id)
	kill()
	wait()
	d.interrupted(id, all, "custody")
	if left := d.logged(id); len(left) < len(written) || !slices.EqualFunc(written, left[:len(written)], bytes.Equal) {
		d.Errorf("%d records were written, %d are left", len(written), len(left))
	}
	return ""
}

// interrupted fails the test unless the run is closed as interrupted, its record verifies, and nothing of its sandbox is left.
func (d *door) interrupted(id string, all []machine, killed string) {
	d.Helper()
	for _, m := range all {
		d.gone(m)
	}
	for _, r := range d.runs() {
		if r.ID == id && r.Status != store.Interrupted {
			d.Errorf("after the kill of %s the run is %s", killed, r.Status)
		}
	}
	d.verified(id)
	d.must(0, "run", "-q", "--", "true") // and cleans up
	d.tidy()
	for _, dir := range []string{"/run/custody/gvisor", "/run/custody/firecracker"} {
		if left, _ := filepath.Glob(filepath.Join(dir, "*"+id+"*")); len(left) > 0 {
			d.Errorf("left: %q", left)
		}
	}
}

// declares reports whether the record declares with a gap that the driver does not observe something.
func declares(records []audit.Record) bool {
	return slices.ContainsFunc(records, func(r audit.Record) bool { return r.Gap != nil && r.Gap.Stage == audit.StageDriver })
}

// doesABit runs a step that does a bit of everything, and returns its record.
func (d *door) doesABit() []audit.Record {
	d.Helper()
	d.onSite()
	d.env = append(d.env, "TOKEN=a-secret-of-the-test")
	d.project(rules("  - allow: "+simnet.Allowed) + `secrets:
  token: {from: "env:TOKEN", deliver: {env: TOKEN, file: token}}
steps:
  - name: works
    secrets: [token]
    run: |
      test "$(cat /run/secrets/token)" = "$TOKEN"
      echo content >file
      curl -sS --cacert ca.pem https://` + simnet.Allowed + `/page
      curl -sS --max-time 20 https://evil.example/ || true
      curl -sS --max-time 20 https://93.184.66.66/ || true
`)
	d.must(0, "run", "--workdir", d.dir)
	d.verified("last")
	return d.records("last")
}

func (d *door) canRecord() string {
	records := d.doesABit()
	kinds := map[string]bool{}
	for _, r := range records {
		kinds[kindOf(r)] = true
	}
	var missing []string
	for _, kind := range kindsOfARun {
		if restored := kind == "vm restore" && kinds["vm boot"]; !kinds[kind] && !restored {
			missing = append(missing, kind)
		}
	}
	for _, kind := range []string{"exec", "exit", "output", "dns allow", "dns deny", "flow attempt", "flow open", "flow deny"} {
		if slices.Contains(missing, kind) {
			d.Errorf("%s is not recorded", kind)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	if !declares(records) {
		d.Errorf("%q are not recorded, and no gap declares it", missing)
	}
	return "not recorded, and declared as a gap: " + strings.Join(missing, ", ") + " ([events.md](events.md))"
}
