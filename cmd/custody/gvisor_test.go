package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm"
)

// runscEnv names gVisor's program, a real one.
const runscEnv = "CUSTODY_TEST_RUNSC"

// newGVisorDoor returns a user of a host that runs sandboxes with gVisor.
func newGVisorDoor(t *testing.T) *door {
	t.Helper()
	runsc := os.Getenv(runscEnv)
	if runsc == "" {
		t.Fatalf("%s is not set: run `make test`, which builds runsc", runscEnv)
	}
	d := newDoor(t)
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\nisolation: {require: gvisor, runsc: "+runsc+"}\n")
	return d
}

// TestGVisorRecord: the host observes in a gVisor sandbox what the guest's sensor observes in a VM, without the guest.
func TestGVisorRecord(t *testing.T) {
	t.Parallel()
	d := newGVisorDoor(t)
	in, out := filepath.Join(d.dir, "in"), filepath.Join(d.dir, "out")
	for _, dir := range []string{in, out} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.write(filepath.Join(in, "work.py"), "binary = []"+work)
	d.must(0, "run", "--workdir", in, "--out", out, "--", "python3", "work.py")
	d.verified("last")
	r := record{d, d.records("last")}
	if tier := r.all[0].Lifecycle.Tier; tier != vmm.GVisor {
		t.Fatalf("the tier is %s", tier)
	}
	t.Run("commands", func(t *testing.T) { r.commands(t) })
	t.Run("ends", r.ends)
	t.Run("connections", func(t *testing.T) { r.connections(t, unix.ENETUNREACH) })
	t.Run("files", func(t *testing.T) { r.filesByHost(t, out) })
	t.Run("observer", r.observedByHost)
}

// evasions are ways to run /bin/true that gVisor does not report: it drops each message with a string that is not UTF-8.
// Where gVisor does report it, the program has the argument "named".
var evasions = []struct{ name, code string }{
	{"an argument", `os.execv("/bin/true", [b"true", b"\xff"])`},
	{"a variable", `os.execve("/bin/true", ["true"], {b"A": b"\xff"})`},
	{"a path", `copy(b"/tmp/\xff"); os.execv(b"/tmp/\xff", ["true"])`},
	{"a link to a path", `copy(b"/tmp/\xfe"); os.symlink(b"/tmp/\xfe", "/tmp/link"); os.execv("/tmp/link", ["true"])`},
	{"the working directory", `os.mkdir(b"/tmp/\xfd"); os.chdir(b"/tmp/\xfd"); os.execv("/bin/true", ["true"])`},
	{"a file in memory", `fd = os.memfd_create(b"\xff"); os.write(fd, open("/bin/true", "rb").read()); os.execve(fd, ["true", "named"], {})`},
	{"the process's name", `ctypes.CDLL(None).prctl(15, b"\xff", 0, 0, 0); os.execv("/bin/true", ["true", "named"])`},
	{"a thread", `threading.Thread(target=os.execv, args=("/bin/true", [b"true", b"\xff"])).start(); time.sleep(60)`},
	{"a call that fails before", `fails("/does/not/exist"); os.execv("/bin/true", [b"true", b"\xff"])`},
	{"a call that fails after", `os.execv("/bin/sh", [b"sh", b"-c", b"exec /does/not/exist; : \xff"])`},
}

const evade = `
import ctypes, os, shutil, threading, time
copy = lambda to: (shutil.copyfile("/bin/true", to), os.chmod(to, 0o755))
def fails(path):
    try: os.execv(path, ["x"])
    except OSError: pass
if os.fork() == 0:
    %s
os.wait()
`

// TestGVisorEvasions: an exec that gVisor does not report is declared as lost, or as a call without a result.
func TestGVisorEvasions(t *testing.T) {
	t.Parallel()
	d := newGVisorDoor(t)
	yaml := "version: 1\nsteps:\n"
	dir := filepath.Join(d.dir, "in")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, e := range evasions {
		d.write(filepath.Join(dir, fmt.Sprintf("%d.py", i)), fmt.Sprintf(evade, e.code))
		yaml += fmt.Sprintf("  - {name: s%d, run: \"/usr/bin/python3 %d.py\"}\n", i, i)
	}
	d.project(yaml + "  - {name: none, run: \"/bin/true\"}\n")
	d.must(0, "run", "--workdir", dir)
	d.verified("last")
	gaps := map[string]string{}
	for _, rec := range d.records("last", "gap") {
		if strings.Contains(rec.Gap.What, "execve") && !strings.Contains(rec.Gap.What, "reads of files") {
			gaps[rec.Step] += string(rec.Gap.Stage)
		}
	}
	execs := map[string]int{}
	for _, rec := range d.records("last", "exec") {
		if len(rec.Exec.Argv) == 2 && string(rec.Exec.Argv[1]) == "named" {
			execs[rec.Step]++
		}
	}
	for i, e := range evasions {
		step := fmt.Sprintf("s%d", i)
		if gaps[step] == "" && execs[step] == 0 {
			t.Errorf("%s hides an exec: the record of the step has neither the exec nor a gap", e.name)
		}
		t.Logf("%s: gaps %q, %d execs", e.name, gaps[step], execs[step])
	}
	if gaps["none"] != "" {
		t.Errorf("a step without such a call has a gap: %s", gaps["none"])
	}
}

// TestGVisorRedteam: a gVisor sandbox withstands the same attacks as a VM.
func TestGVisorRedteam(t *testing.T) {
	t.Parallel()
	d := newGVisorDoor(t)
	d.withstands("--isolation", "gvisor")
	for _, run := range d.runs()[:3] {
		if run.Tier != vmm.GVisor && run.Project != "redteam" {
			d.Errorf("run %s of %s has the tier %s", run.ID, run.Project, run.Tier)
		}
	}
}

// filesByHost checks the files that a step leaves behind: the host compares the file system at its start and at its end.
func (r record) filesByHost(t *testing.T, out string) {
	files := map[string]audit.File{}
	for _, rec := range r.all {
		if name, inside := strings.CutPrefix(string(pathOf(rec)), "/workspace/"); inside {
			files[name] = *rec.File
		}
	}
	for _, name := range []string{"small", "big", "log", "empty"} {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		f := files[name]
		if want := fmt.Sprintf("%x", sha256.Sum256(b)); f.SHA256 != want || f.Size != int64(len(b)) || f.Proc == "" {
			t.Errorf("%s: %+v in the record, sha256 %s of what came back", name, f, want)
		}
	}
	for _, name := range []string{"gone", "sub/renamed"} {
		if f, ok := files[name]; ok {
			t.Errorf("a file that did not outlive the step is in the record: %+v", f)
		}
	}
	if f := files["sub"]; f.Op != audit.FileCreate {
		t.Errorf("the new directory: %+v", f)
	}
}

func pathOf(rec audit.Record) audit.Text {
	if rec.File == nil {
		return ""
	}
	return rec.File.Path
}

// observedByHost checks that no process of the sandbox reported what happened in it, and that the record declares what
// this driver cannot observe, and no loss.
func (r record) observedByHost(t *testing.T) {
	var declared []string
	for _, rec := range r.all {
		switch rec.Kind {
		case audit.KindExec, audit.KindExit, audit.KindFile:
			if rec.Observer != audit.Host {
				t.Errorf("seq %d: %s was observed by %s", rec.Seq, rec.Kind, rec.Observer)
			}
		case audit.KindFlow:
			if strings.Contains(rec.Flow.Reason, "MAC") {
				t.Errorf("seq %d: a frame that no process of the sandbox sent was recorded: %+v", rec.Seq, rec.Flow)
			}
		case audit.KindGap:
			if declared = append(declared, rec.Gap.What); rec.Gap.Stage != audit.StageDriver || rec.Gap.Count != 0 {
				t.Errorf("seq %d: loss: %+v", rec.Seq, rec.Gap)
			}
		}
	}
	if len(declared) == 0 || !strings.Contains(declared[0], "reads of files") {
		t.Errorf("the record declares %q, want what the driver cannot observe", declared)
	}
}
