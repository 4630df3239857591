package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/service/remote"
	"github.com/custody-project/custody/store"
)

// newServedRecords starts a service on a host that has two runs, with no VM. user is an ordinary user of the service, admin is root
// without it. Both give commands in the same directory, which is the user's.
func newServedRecords(t *testing.T) (s *served, runs []string) {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	dir := publicDir(t)
	home := filepath.Join(t.TempDir(), "home")
	for range 2 {
		runs = append(runs, sampleruns.Record(t, home, sampleruns.Review()))
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(work, someone, someone); err != nil {
		t.Fatal(err)
	}
	s = &served{admin: &door{T: t, home: home, bin: bin, dir: work}}
	user := *s.admin
	s.user = &user
	s.user.env = []string{remote.SocketEnv + "=" + filepath.Join(dir, "custody.sock")}
	s.user.launch = as(someone, someone)
	s.start()
	return s, runs
}

// changing are the parts of an output that differ from one call to the next: times, and the state of the host's log, to which the
// access log of the service adds entries.
var changing = regexp.MustCompile(`"at":"[^"]*"|\d+ (seconds?|s) ago|"size":\d+,"root":"[^"]*"|checkpoint of \d+ entries, root \S+`)

// TestCommands: each command that the service executes prints the same, and exits with the same code, with and without it.
func TestCommands(t *testing.T) {
	s, runs := newServedRecords(t)
	run := runs[0]
	at := func(name string) string { return filepath.Join(s.user.dir, name) }
	s.user.write(at("project.yaml"), "version: 1\nproject: p\negress: [{allow: example.com}]\n")
	s.user.write(at("wrong.yaml"), "version: 1\negress: [{alow: x}]\n")
	s.user.write(at("garbage"), "garbage\n")
	key := strings.TrimSpace(s.admin.must(0, "key", "show").stdout)
	s.user.write(at("host.pub"), key+"\n")
	s.admin.must(0, "bundle", run, "-o", at("bundle.tar"))
	s.admin.must(0, "bundle", run, "-o", at("part.tar"), "--records", "2-4", "--context")
	for _, name := range []string{"bundle.tar", "part.tar"} {
		if err := os.Chmod(at(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"runs"}, {"runs", "--json"}, {"runs", "-n", "1"}, {"runs", "--status", "running"}, {"runs", "--from", "yesterday"}, {"runs", "--deleted"},
		{"runs", "--zone", "Europe/Berlin"}, {"runs", "--zone", "Nowhere/Nothing"}, {"runs", "--project", "none"}, {"runs", "--wrong"}, {"runs", "--help"},
		{"timeline"}, {"timeline", run}, {"timeline", run[:6]}, {"timeline", "r-unknown"}, {"timeline", "nothing"}, {"timeline", "./nothing.tar"},
		{"timeline", run, "--json"}, {"timeline", run, "--json", "--notes"}, {"timeline", run, "--html"}, {"timeline", run, "-r", "--kind", "exec,dns"},
		{"timeline", run, "--kind", "none"}, {"timeline", run, "--at", "+1s"}, {"timeline", run, "--at", "+1s", "--json"}, {"timeline", run, "--at", "+1s", "--follow"},
		{"timeline", run, "--from", "+0s", "--until", "+2s"}, {"timeline", run, "--zone", "local"}, {"timeline", run, "--key", "host.pub"}, {"timeline", run, "--follow"},
		{"timeline", "bundle.tar"}, {"timeline", "bundle.tar", "--json"}, {"timeline", "part.tar"}, {"timeline", "garbage"},
		{"timeline", "/proc/self/fd/99"}, {"timeline", "../../../etc/passwd"}, {"timeline", "/etc"},
		{"verify", run}, {"verify", "last", "--json"}, {"verify", run, "--key", key}, {"verify", run, "--key", "host.pub", "--detailed"}, {"verify", run, "--key", "garbage"},
		{"verify", run, "--key", "missing.pub"}, {"verify", run, "--quorum", "2"}, {"verify", run, "--within", "-1s"}, {"verify", run, "--since", "garbage", "--json"},
		{"verify", run, "--since", "missing"}, {"verify", run, "--tsa", "garbage"}, {"verify", "r-unknown"}, {"verify", "r-unknown", "--json"}, {"verify", "nothing"},
		{"verify", "bundle.tar"}, {"verify", "bundle.tar", "--json"}, {"verify", "part.tar"}, {"verify", "bundle.tar", "--key", "host.pub"}, {"verify", "garbage"},
		{"verify", "."}, {"verify", "/proc/self/fd/99"}, {"verify", "../../../etc/passwd"},
		{"bundle", run, "-o", "out.tar"}, {"bundle", "r-unknown", "-o", "out.tar"}, {"bundle", run, "-o", "missing/out.tar"}, {"bundle", run, "-o", "/"},
		{"bundle", run, "-o", "out.tar", "--records", "x"}, {"bundle", run, "-o", "out.tar", "--records", "2-3"}, {"bundle", run, "-o", "out.tar", "--since", "garbage"},
		{"policy", "check", "project.yaml"}, {"policy", "check", "wrong.yaml"}, {"policy", "explain", "project.yaml", "example.com:443"},
		{"policy", "explain", "project.yaml", "example.net"}, {"policy", "explain", "missing.yaml", "example.net"},
		{"policy", "learn", run}, {"policy", "learn", run, "--policy", "project.yaml"}, {"policy", "learn", run, "--policy", "wrong.yaml"}, {"policy", "learn", "r-unknown"},
		{"policy", "set", run, "wrong.yaml"}, {"policy", "set", run, "missing.yaml"},
		{"pause", run}, {"pause", "last"}, {"resume", run}, {"resume", "r-unknown"},
	} {
		t.Run(strings.ReplaceAll(strings.Join(args, " "), run, "RUN"), func(t *testing.T) {
			call := func(d door) said {
				d.T = t
				got := d.custody(args...)
				os.Remove(at("out.tar"))
				got.stdout, got.stderr = changing.ReplaceAllString(got.stdout, "X"), changing.ReplaceAllString(got.stderr, "X")
				return got
			}
			want, got := call(*s.admin), call(*s.user)
			if got != want {
				t.Errorf("with the service it exits %d\nstdout: %.3000s\nstderr: %.1000s\nwithout: %d\nstdout: %.3000s\nstderr: %.1000s",
					got.code, got.stdout, got.stderr, want.code, want.stdout, want.stderr)
			}
		})
	}
}

// TestCommandFiles: files are the client's: written with its rights, whole or not at all.
func TestCommandFiles(t *testing.T) {
	s, runs := newServedRecords(t)
	s.user.must(0, "bundle", runs[0], "-o", "out.tar")
	info, err := os.Stat(filepath.Join(s.user.dir, "out.tar"))
	if err != nil || ownerOf(info) != someone {
		t.Errorf("the bundle: %v, %v", info, err)
	}
	s.user.must(0, "verify", "out.tar")
	s.admin.must(0, "verify", "out.tar")
	secret := filepath.Join(t.TempDir(), "secret")
	s.user.write(secret, "of root")
	if err := os.Chmod(secret, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"bundle", runs[0], "-o", secret}, {"verify", runs[0], "--since", secret}, {"verify", runs[0], "--key", secret}, {"policy", "set", "last", secret},
		{"policy", "learn", runs[0], "--policy", secret},
	} {
		if said := s.user.custody(args...); said.code == 0 || strings.Contains(said.stdout+said.stderr, "of root") {
			t.Errorf("%v exits %d: %s%s", args, said.code, said.stdout, said.stderr)
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "of root" {
		t.Errorf("the file of root is %q: %v", text, err)
	}
	if said := s.user.custody("--store", "sqlite:/etc/shadow", "runs"); said.code != exitUsage || !strings.Contains(said.stderr, "--store") {
		t.Errorf("--store exits %d: %s", said.code, said.stderr)
	}
}

// TestCommandsRecorded: what a user has executed is in an access log, with the number of the user.
func TestCommandsRecorded(t *testing.T) {
	s, runs := newServedRecords(t)
	s.user.must(0, "timeline", runs[0], "--kind", "exec")
	s.user.must(0, "verify", runs[1])
	s.user.custody("pause", "last")
	s.stop()
	logs := decode[store.Run](s.admin, s.admin.must(0, "runs", "--access", "--json").stdout)
	if len(logs) != 1 {
		t.Fatalf("access logs %v", logs)
	}
	s.admin.verified(logs[0].ID)
	var got []string
	for _, r := range s.admin.records(logs[0].ID, string(audit.KindAccess)) {
		if !strings.HasSuffix(r.Access.Who, "(uid 65534)") {
			t.Errorf("the user is %q", r.Access.Who)
		}
		got = append(got, r.Access.Action+" "+r.Access.Route+" "+string(r.Access.About))
	}
	want := []string{"view custody timeline " + runs[0], "verify custody verify " + runs[1], "manage custody pause last"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("recorded are %q", got)
	}
}

// TestCommandOutputs: a closed or a full output ends a command as it does without the service.
func TestCommandOutputs(t *testing.T) {
	s, runs := newServedRecords(t)
	for _, script := range []string{`"$0" timeline "$1" --json | head -n 1 | wc -l`, `"$0" timeline "$1" --html > /dev/full`} {
		call := func(d *door) said {
			custody := d.command()
			cmd := exec.Command("bash", "-c", "set -o pipefail; "+script, custody.Path, runs[0])
			cmd.Env, cmd.Dir = custody.Env, custody.Dir
			return d.finish(cmd)
		}
		if want, got := call(s.admin), call(s.user); got != want {
			t.Errorf("%s: with the service %+v, without %+v", script, got, want)
		}
	}
}

// ownerOf returns the uid of a file's owner.
func ownerOf(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// TestCommandsLive: a user follows a run, pauses and resumes it, and changes its policy, but allows no more than the defaults do. An
// administrator can, unless custody host enforces the bound. Other members of the group only read.
func TestCommandsLive(t *testing.T) {
	t.Run("served", func(t *testing.T) {
		s := newServed(t)
		commandsLive(t, s, func(wide string) { s.admin.must(0, "policy", "set", "last", wide, "--trust") })
	})
	t.Run("separated", func(t *testing.T) {
		s := newSeparated(t)
		commandsLive(t, s.served, func(wide string) {
			s.admin.contains(s.admin.must(exitFailed, "policy", "set", "last", wide, "--trust").stderr, "example.com")
		})
	})
}

// commandsLive tries the commands. widen gives the run a policy from a file.
func commandsLive(t *testing.T, s *served, widen func(file string)) {
	t.Helper()
	run := s.user.command("run", "--", "sh", "-c", "echo ready; sleep 1000")
	var out screen
	run.Stdout, run.Stderr = &out, &out
	s.user.start(run)
	out.await(t, "ready")
	eventually(t, "in the store: the run", func() bool { return len(s.admin.runs()) == 1 })
	follow := s.user.command("timeline", "--follow")
	var followed screen
	follow.Stdout, follow.Stderr = &followed, &followed
	s.user.start(follow)
	followed.await(t, "echo ready")
	s.user.must(0, "pause", "last")
	s.user.must(0, "resume", "last")
	s.user.write(filepath.Join(s.user.dir, "none.yaml"), "version: 1\n")
	s.user.write(filepath.Join(s.user.dir, "wide.yaml"), "version: 1\negress: [{allow: example.com}]\n")
	if said := s.user.must(0, "policy", "set", "last", "none.yaml"); !strings.Contains(said.stdout, "generation 2") {
		t.Errorf("policy set prints %s", said.stdout)
	}
	if said := s.user.must(exitFailed, "policy", "set", "last", "wide.yaml"); !strings.Contains(said.stderr, "example.com") {
		t.Errorf("policy set says %s", said.stderr)
	}
	s.user.must(exitUsage, "policy", "set", "last", "none.yaml", "--trust")
	other := *s.user
	other.launch = as(someone-1, someone) // in the same group
	other.must(0, "timeline", "last")
	for _, args := range [][]string{{"pause", "last"}, {"resume", "last"}, {"policy", "set", "last", "none.yaml"}} {
		other.contains(other.must(exitFailed, args...).stderr, host.UserName(someone)+" has started the run: only that user and root can control it")
	}
	s.admin.write(filepath.Join(s.admin.dir, "wide.yaml"), "version: 1\negress: [{allow: example.com}]\n")
	widen(filepath.Join(s.admin.dir, "wide.yaml"))
	run.Process.Signal(syscall.SIGTERM)
	run.Wait()
	if follow.Wait(); follow.ProcessState.ExitCode() != 0 {
		t.Errorf("timeline --follow exits %d: %s", follow.ProcessState.ExitCode(), followed.String())
	}
	followed.await(t, "generation 2")
	s.admin.verified("last")
}
