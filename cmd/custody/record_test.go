package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

// work is a command with many kinds of actions; the test below describes its record.
const work = `
import os, socket, subprocess
run = lambda *argv, **kw: subprocess.run(argv, **kw)

run("/bin/echo", "it's", 'a "quote"', "new\nline", "esc\x1b[2J", "", "\u00fcn\u00ef", *binary)
run("/bin/true", *["x"] * 20000)
run("/bin/true", *["a" * 100000] * 10)
run("/bin/sh", "-c", "exit 41")
run("/bin/sh", "-c", "kill -15 $$")
os.mkdir("sub")
run("/bin/pwd", cwd="sub")
run("/usr/bin/id", user=1234)
run("/bin/sh", "-c", "exec /bin/sh -c 'exec /bin/sleep 0.2'")

open("small", "w").write("small\n")
open("big", "wb").write(os.urandom(300000))
open("gone", "w").write("x")
os.rename("gone", "sub/renamed")
os.remove("sub/renamed")
open("empty", "w").close()
run("/bin/cat", "big", stdout=subprocess.DEVNULL)
with open("log", "w") as f:
    for i in range(3):
        f.write("line\n"); f.flush()

for address in [("192.0.2.1", 80), ("127.0.0.1", 4), ("2001:db8::1", 443)]:
    s = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try: s.connect(address)
    except OSError as e: print(address[0], e.errno)

for i in range(30):
    run("/bin/true")
run("/bin/sh", "-c", 'setsid sleep 1000 >/dev/null 2>&1 & until read name </proc/$!/comm && [ "$name" = sleep ]; do :; done')
`

func TestRecord(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.project("version: 1\nrecord: {files: {read_over: 64KiB}}\n")
	in, out := filepath.Join(d.dir, "in"), filepath.Join(d.dir, "out")
	for _, dir := range []string{in, out} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.write(filepath.Join(in, "work.py"), `binary = [b"\xff\xfe"]`+work)
	d.must(0, "run", "--workdir", in, "--out", out, "--", "python3", "work.py")
	d.verified("last")
	r := record{d, d.records("last")}
	t.Run("commands", func(t *testing.T) { r.commands(t, "\xff\xfe") })
	t.Run("ends", r.ends)
	t.Run("files", func(t *testing.T) { r.files(t, out) })
	t.Run("connections", func(t *testing.T) { r.connections(t, unix.EACCES) })
	t.Run("order", r.order)
}

type record struct {
	*door
	all []audit.Record
}

// exec returns the command with these arguments, or those that begin with them.
func (r record) exec(t *testing.T, begin ...string) audit.Exec {
	t.Helper()
	for _, rec := range r.all {
		if rec.Exec == nil || len(rec.Exec.Argv) < len(begin) {
			continue
		}
		argv := make([]string, len(begin))
		for i := range begin {
			argv[i] = string(rec.Exec.Argv[i])
		}
		if slices.Equal(argv, begin) {
			return *rec.Exec
		}
	}
	t.Fatalf("no exec %q", begin)
	return audit.Exec{}
}

func (r record) exit(t *testing.T, e audit.Exec) audit.Exit {
	t.Helper()
	for _, rec := range r.all {
		if rec.Exit != nil && rec.Exit.Proc == e.Proc {
			return *rec.Exit
		}
	}
	t.Fatalf("no exit of %q", e.Argv)
	return audit.Exit{}
}

// commands checks the commands; binary are arguments that are not UTF-8.
func (r record) commands(t *testing.T, binary ...string) {
	main := r.exec(t, "python3", "work.py")
	e := r.exec(t, "/bin/echo")
	want := append([]string{"/bin/echo", "it's", `a "quote"`, "new\nline", "esc\x1b[2J", "", "ünï"}, binary...)
	for i, a := range want {
		if len(e.Argv) != len(want) || string(e.Argv[i]) != a {
			t.Fatalf("argv %q, want %q", e.Argv, want)
		}
	}
	if e.Cwd != "/workspace" || e.UID != 0 || e.Exe != "/usr/bin/echo" || e.Parent != main.Proc || e.PPID != main.PID {
		t.Errorf("echo: %+v, child of %+v", e, main)
	}
	if e := r.exec(t, "/bin/pwd"); e.Cwd != "/workspace/sub" {
		t.Errorf("pwd: %+v", e)
	}
	if e := r.exec(t, "/usr/bin/id"); e.UID != 1234 {
		t.Errorf("id: %+v", e)
	}
	wholeOrFlagged(t, r.exec(t, "/bin/true", "x"), append([]string{"/bin/true"}, slices.Repeat([]string{"x"}, 20000)...))
	long := strings.Repeat("a", 100000)
	for _, rec := range r.all {
		if rec.Exec != nil && len(rec.Exec.Argv) > 1 && strings.HasPrefix(string(rec.Exec.Argv[1]), "aaaa") {
			wholeOrFlagged(t, *rec.Exec, append([]string{"/bin/true"}, slices.Repeat([]string{long}, 10)...))
			return
		}
	}
	t.Error("no exec with a megabyte of arguments")
}

// wholeOrFlagged checks an argv that may be too long for the record: it is
// complete, or it is truncated, with the length and digest of all of it.
func wholeOrFlagged(t *testing.T, e audit.Exec, want []string) {
	t.Helper()
	whole := strings.Join(want, "\x00") + "\x00"
	got := make([]string, len(e.Argv))
	for i, a := range e.Argv {
		got[i] = string(a)
	}
	if !e.Truncated {
		if !slices.Equal(got, want) {
			t.Errorf("argv of %d, want %d, and not flagged as truncated", len(got), len(want))
		}
		return
	}
	sum := sha256.Sum256([]byte(whole))
	if e.ArgvBytes != len(whole) || e.ArgvSHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("truncated argv has %d bytes and digest %s, want %d and %x", e.ArgvBytes, e.ArgvSHA256, len(whole), sum)
	}
	if !strings.HasPrefix(whole, strings.Join(got, "\x00")) {
		t.Errorf("truncated argv is not the beginning of the whole: %.100q", got)
	}
}

func (r record) ends(t *testing.T) {
	execs, exits := map[string]bool{}, map[string]int{}
	for _, rec := range r.all {
		switch {
		case rec.Exec != nil:
			execs[rec.Exec.Proc] = true
			if exits[rec.Exec.Proc] > 0 {
				t.Errorf("seq %d: exec after its process's exit", rec.Seq)
			}
		case rec.Exit != nil:
			exits[rec.Exit.Proc]++
		}
	}
	for proc, n := range exits {
		if n != 1 || !execs[proc] {
			t.Errorf("process %s has %d exits, exec: %v", proc, n, execs[proc])
		}
	}
	if len(execs) != len(exits) {
		t.Errorf("%d processes, %d exits", len(execs), len(exits))
	}
	if x := r.exit(t, r.exec(t, "/bin/sh", "-c", "exit 41")); x.Code != 41 || x.Signal != 0 || x.Synthetic || x.DurationNS <= 0 {
		t.Errorf("exit 41: %+v", x)
	}
	if x := r.exit(t, r.exec(t, "/bin/sh", "-c", "kill -15 $$")); x.Signal != 15 {
		t.Errorf("killed: %+v", x)
	}
	// One process, three programs, one end.
	first, last := r.exec(t, "/bin/sh", "-c", "exec /bin/sh -c 'exec /bin/sleep 0.2'"), r.exec(t, "/bin/sleep", "0.2")
	if first.Proc != last.Proc || r.exit(t, first).DurationNS < 200e6 {
		t.Errorf("exec in exec: %+v, then %+v", first, last)
	}
	// The remaining processes were killed with their cell.
	if x := r.exit(t, r.exec(t, "sleep", "1000")); x.Signal != 9 && !x.Synthetic {
		t.Errorf("daemon: %+v", x)
	}
}

func (r record) files(t *testing.T, out string) {
	digests := map[string]string{}
	ops := map[string][]audit.FileOp{}
	for _, rec := range r.all {
		f := rec.File
		if f == nil {
			continue
		}
		name, inside := strings.CutPrefix(string(f.Path), "/workspace/")
		if !inside {
			continue
		}
		ops[name] = append(ops[name], f.Op)
		if f.Op == audit.FileWrite {
			digests[name] = f.SHA256
		}
		if f.Op == audit.FileRename && string(f.To) != "/workspace/sub/renamed" {
			t.Errorf("renamed: %+v", f)
		}
	}
	for _, name := range []string{"small", "big", "log"} {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%x", sha256.Sum256(b)); digests[name] != want {
			t.Errorf("%s: sha256 %s in the record, %s of what came back", name, digests[name], want)
		}
	}
	for name, op := range map[string]audit.FileOp{
		"small": audit.FileWrite, "big": audit.FileRead, "gone": audit.FileRename, "sub/renamed": audit.FileDelete, "empty": audit.FileCreate,
	} {
		if !slices.Contains(ops[name], op) {
			t.Errorf("no %s of %s: %v", op, name, ops[name])
		}
	}
}

// connections checks the connections; denied6 is the error of one over IPv6 that is denied.
func (r record) connections(t *testing.T, denied6 unix.Errno) {
	var seen []string
	for _, rec := range r.all {
		if f := rec.Flow; f != nil && f.Proto == "tcp" {
			seen = append(seen, fmt.Sprintf("%s %s %d errno %d", f.State, f.DstIP, f.DstPort, f.Errno))
		}
	}
	want := []string{
		"attempt 192.0.2.1 80 errno 113", "deny 192.0.2.1 80 errno 0", // EHOSTUNREACH
		fmt.Sprintf("attempt 2001:db8::1 443 errno %d", denied6), "deny 2001:db8::1 443 errno 0",
		"attempt 127.0.0.1 4 errno 111", // ECONNREFUSED
	}
	for _, w := range want {
		if !slices.Contains(seen, w) {
			t.Errorf("no flow %q in %q", w, seen)
		}
	}
}

func (r record) order(t *testing.T) {
	for i, rec := range r.all {
		if rec.Seq != uint64(i+1) {
			t.Fatalf("record %d has seq %d", i, rec.Seq)
		}
		if rec.Gap != nil {
			t.Errorf("loss: %+v", *rec.Gap)
		}
	}
	first, last := r.all[0], r.all[len(r.all)-1]
	if first.Kind != audit.KindRun || first.Lifecycle.Phase != audit.PhaseStart || last.Kind != audit.KindRun || last.Lifecycle.Phase != audit.PhaseEnd {
		t.Errorf("first record is %s, last %s", first.Kind, last.Kind)
	}
	if l := first.Lifecycle; l.Tier == "" || l.TierNote == "" || l.TemplateDigest == "" || l.PolicyDigest == "" || l.Mode != "strict" {
		t.Errorf("the first record lacks facts: %+v", l)
	}
}
