package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/sampleruns"
)

// inTheWay puts another kind of file in the place of a file.
var inTheWay = map[string]func(path string) error{
	"FIFO":           func(path string) error { return unix.Mkfifo(path, 0o600) },
	"device":         func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) }, // like /dev/zero
	"socket":         func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
	"directory":      func(path string) error { return os.Mkdir(path, 0o700) },
	"dangling link":  func(path string) error { return os.Symlink(path+".nothing", path) },
	"link to itself": func(path string) error { return os.Symlink(path, path) },
}

// callsByName are calls by a short name. RUN, SEQ, HOME and OUT are replaced.
var callsByName = map[string][]string{
	"verify": {"verify", "RUN"}, "fsck": {"fsck"}, "bundle": {"bundle", "RUN", "-o", "OUT"}, "timeline": {"timeline", "RUN"},
	"runs": {"runs"}, "search": {"search", "--host", "example.com"}, "rebuild": {"rebuild"}, "ship": {"ship", "--differ"},
	"key show": {"key", "show"}, "report": {"report", "--framework=soc2", "RUN", "-o", "OUT"}, "export": {"export", "RUN"},
	"monitor": {"monitor", "HOME/log"}, "serve": {"serve", "--listen", "127.0.0.1:0"},
	"prune": {"prune"}, "erase": {"erase", "RUN", "SEQ", "--reason", "test"}, "key rotate": {"key", "rotate"}, "run": {"run", "-q", "--", "true"},
}

// kept are the files that Custody keeps, and the commands that cannot work without them.
var kept = map[string]string{
	"runs/RUN/00000000000000000001.seg":      "fsck, rebuild, erase",
	"runs/RUN/00000000000000000001.leaves":   "erase",
	"runs/RUN/00000000000000000001.manifest": "fsck, rebuild, ship",
	"runs/RUN/lock":                          "fsck",
	"runs/RUN/stored":                        "",
	"keys/host.key":                          "erase, key rotate, run",
	"keys/host.pub":                          "fsck, monitor, erase, key rotate, run",
	"log/checkpoint":                         "fsck, monitor, erase, key rotate",
	"log/tile/0/000.p/2":                     "fsck, bundle, report, erase, key rotate",
	"log/tile/entries/000.p/2":               "fsck, monitor, erase, key rotate",
	"log/.state/treeState":                   "erase, key rotate",
	"log/append.lock":                        "erase, key rotate",
	"log/publish.lock":                       "erase, key rotate",
	"log.checkpoints":                        "fsck, erase, key rotate",
	"log.entries":                            "",
	"custody.db":                             "verify, fsck, bundle, timeline, runs, search, ship, report, export, erase",
	"custody.db-wal":                         "verify, fsck, bundle, timeline, runs, search, ship, report, export, erase",
	"custody.db-journal":                     "verify, fsck, bundle, timeline, runs, search, ship, report, export, erase",
	"log.entries-journal":                    "",
	"host.yaml":                              "verify, fsck, bundle, timeline, runs, search, rebuild, ship, key show, report, export, monitor, serve, erase, key rotate, prune, run",
}

// TestInTheWay: whatever stands in the place of a file that Custody keeps, each command ends within a bounded time. One
// that fails names the file, and one that needs it does not succeed.
func TestInTheWay(t *testing.T) {
	t.Parallel()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(t.TempDir(), "home")
	run := sampleruns.Record(t, original, sampleruns.Review())
	sampleruns.Record(t, original, sampleruns.Review()) // so that the log has two entries
	if err := os.Symlink(os.Getenv(templatesEnv), filepath.Join(original, "templates")); err != nil {
		t.Fatal(err)
	}
	seq := firstExec(t, bin, original, run)
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(inTheWay)), func(kind string) bool { return kind == "FIFO" })
	for at, file := range slices.Sorted(maps.Keys(kept)) {
		needed := kept[file]
		for i, command := range slices.Sorted(maps.Keys(callsByName)) {
			args, kinds := callsByName[command], []string{"FIFO"}
			if k := (at + i) % len(callsByName); k < len(others) && !testing.Short() { // each once for a file, with varying commands
				kinds = append(kinds, others[k])
			}
			for _, kind := range kinds {
				t.Run(strings.ReplaceAll(file, "/", ".")+"/"+command+"/"+kind, func(t *testing.T) {
					t.Parallel()
					c := obstacle{bin: bin, home: filepath.Join(t.TempDir(), "home"), run: run, seq: seq}
					if out, err := exec.Command("cp", "-a", original, c.home).CombinedOutput(); err != nil {
						t.Fatalf("copy: %v: %s", err, out)
					}
					path := filepath.Join(c.home, strings.ReplaceAll(file, "RUN", run))
					if err := errors.Join(os.RemoveAll(path), inTheWay[kind](path)); err != nil {
						t.Fatal(err)
					}
					out, code := c.call(t, args)
					fails := slices.Contains(strings.Split(needed, ", "), command)
					switch named := strings.Contains(out, filepath.Base(path)); {
					case code == 0 && fails:
						t.Errorf("it succeeds: %s", out)
					case code != 0 && !named:
						t.Errorf("it exits %d and does not name the file: %s", code, out)
					}
				})
			}
		}
	}
}

// firstExec returns the seq of a run's first exec, which can be erased.
func firstExec(t *testing.T, bin, home, run string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "custody"), "timeline", run, "--json", "--kind", "exec")
	cmd.Env = append(os.Environ(), "CUSTODY_HOME="+home)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r audit.Record
	if err := json.Unmarshal(bytes.SplitN(out, []byte("\n"), 2)[0], &r); err != nil {
		t.Fatal(err)
	}
	return strconv.FormatUint(r.Seq, 10)
}

type obstacle struct {
	bin, home, run, seq string
	waits               bool // for someone who writes to a pipe
}

// call runs a command to its end. One that serves, or waits, gets a signal after some time.
func (c obstacle) call(t *testing.T, args []string) (out string, code int) {
	t.Helper()
	put := strings.NewReplacer("RUN", c.run, "SEQ", c.seq, "HOME", c.home, "OUT", filepath.Join(c.home, "out"))
	cmd := exec.Command(filepath.Join(c.bin, "custody"))
	for _, a := range args {
		cmd.Args = append(cmd.Args, put.Replace(a))
	}
	cmd.Env, cmd.Dir = append(os.Environ(), "CUSTODY_HOME="+c.home), filepath.Dir(c.home)
	var both screen
	cmd.Stdout, cmd.Stderr = &both, &both
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); cmd.Wait() }()
	if args[0] == "serve" {
		for both.String() == "" {
			select {
			case <-ended:
			case <-time.After(10 * time.Millisecond):
				continue
			}
			break
		}
		cmd.Process.Signal(syscall.SIGTERM)
	}
	if c.waits {
		select {
		case <-ended:
		case <-time.After(2 * time.Second):
			cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		cmd.Process.Kill()
		<-ended
		t.Fatalf("it goes on: %s", both.String())
	}
	return both.String(), cmd.ProcessState.ExitCode()
}

// TestGivenInTheWay: what stands in the place of a file that the command line names is refused by its name; who writes to
// a pipe is waited for until a signal.
func TestGivenInTheWay(t *testing.T) {
	t.Parallel()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(t.TempDir(), "home")
	run := sampleruns.Record(t, home, sampleruns.Review())
	for name, args := range map[string][]string{
		"bundle": {"verify", "FILE"}, "proof": {"verify", "FILE.json"}, "since": {"verify", run, "--since", "FILE"}, "key": {"verify", run, "--key", "FILE"},
		"witness": {"verify", run, "--witness", "FILE"}, "tsa": {"verify", run, "--tsa", "FILE"}, "bundle since": {"bundle", run, "-o", "OUT", "--since", "FILE"},
		"monitor key": {"monitor", "HOME/log", "--key", "FILE"}, "monitor log": {"monitor", "FILE"}, "policy": {"policy", "check", "FILE"}, "enrol": {"key", "fleet", "add", "FILE"},
	} {
		for kind, put := range inTheWay {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "given")
				args := slices.Clone(args)
				for i, a := range args {
					if strings.HasSuffix(a, "FILE.json") {
						path += ".json"
						args[i] = path
					} else if a == "FILE" {
						args[i] = path
					}
				}
				if err := put(path); err != nil {
					t.Fatal(err)
				}
				c := obstacle{bin: bin, home: home, run: run, waits: kind == "FIFO"}
				if out, code := c.call(t, args); code == 0 || !strings.Contains(out, filepath.Base(path)) {
					t.Errorf("it exits %d: %s", code, out)
				}
			})
		}
	}
}

// TestFullOutput: a command whose output cannot be written fails.
func TestFullOutput(t *testing.T) {
	t.Parallel()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(t.TempDir(), "full")
	if err := unix.Mknod(full, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 7))); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(t.TempDir(), "home")
	run := sampleruns.Record(t, home, sampleruns.Review())
	for _, args := range [][]string{
		{"verify", run}, {"timeline", run}, {"runs"}, {"key", "show"}, {"export", run}, {"monitor", filepath.Join(home, "log")}, {"version"},
		{"search", "--from", "2026-01-01T00:00:00Z"}, {"report", "--framework=soc2", run},
	} {
		out, err := os.OpenFile(full, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(bin, "custody"), args...)
		cmd.Env = append(os.Environ(), "CUSTODY_HOME="+home)
		var said screen
		cmd.Stdout, cmd.Stderr = out, &said
		cmd.Run()
		out.Close()
		if cmd.ProcessState.ExitCode() == 0 || !strings.Contains(said.String(), "no space left") || !strings.Contains(said.String(), "free space for /dev/stdout") {
			t.Errorf("%v: %v: %s", args, cmd.ProcessState, said.String())
		}
	}
}
