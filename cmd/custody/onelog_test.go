package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/store"
)

// witnessedDoor is root on a host whose log a witness must cosign.
func witnessedDoor(t *testing.T) *door {
	t.Helper()
	root := newGVisorDoor(t)
	vkey, address, _ := witnessServer(t, t.TempDir(), "127.0.0.1:0", strings.TrimSpace(root.must(0, "key", "show").stdout))
	path := filepath.Join(root.home, "host.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	root.write(path, string(text)+fmt.Sprintf("log: {wait: 10s, witnesses: [{key: %q, url: %q}]}\n", vkey, "http://"+address))
	return root
}

// oneLog fails the test unless the host's only log is the service's, which the witness has cosigned in full, and in which each record is.
func (s *separated) oneLog() {
	s.root.Helper()
	if logs, _ := filepath.Glob(filepath.Join(s.root.home, "log*", "checkpoint")); len(logs) > 0 {
		s.root.Errorf("root has a log: %v", logs)
	}
	notes, err := os.ReadFile(filepath.Join(s.admin.home, "log.checkpoints"))
	if err != nil {
		s.root.Fatal(err)
	}
	// That of the empty log, with which it begins, is for no witness.
	if all, cosigned := bytes.Count(notes, []byte("\n\n— ")), bytes.Count(notes, []byte("\n— witness.example ")); all < 2 || all != cosigned+1 {
		s.root.Errorf("%d checkpoints of %d are cosigned:\n%s", cosigned, all, notes)
	}
	s.stop() // closes the access log
	for _, list := range [][]string{{"runs", "--json"}, {"runs", "--access", "--json"}} {
		for _, r := range decode[store.Run](s.admin, s.admin.must(0, list...).stdout) {
			s.admin.verified(r.ID)
		}
	}
	s.admin.must(0, "fsck")
	s.root.must(0, "fsck")
	s.start()
}

// changes returns the changes of projects in the service's access log.
func (s *separated) changes() (all []string) {
	s.root.Helper()
	for _, log := range decode[store.Run](s.admin, s.admin.must(0, "runs", "--access", "--json").stdout) {
		for _, r := range s.admin.records(log.ID) {
			if a := r.Access; a != nil && a.Project != "" {
				all = append(all, fmt.Sprintf("%s %s %s %d %s", a.Who, a.Route, a.Project, a.ProjectVersion, a.Verdict))
			}
		}
	}
	return all
}

// direct is root without the service.
func (s *separated) direct() *door {
	d := *s.root
	d.env = nil
	return &d
}

// TestOneLog: what root does on a host with a service is recorded in the service's log, or refused, so that a witness accepts all of it.
func TestOneLog(t *testing.T) {
	t.Parallel()
	s := separate(witnessedDoor(t))
	apply := func(d *door, code int, name string) said {
		t.Helper()
		d.write(filepath.Join(d.dir, name+".yaml"), "version: 1\nproject: "+name+"\nsteps: [{name: s, run: 'true'}]\n")
		return d.must(code, "project", "apply", name+".yaml")
	}
	s.user.must(0, "run", "-q", "--", "true")
	apply(s.root, 0, "shop")
	if said := s.user.must(0, "run", "-q", "--project", "shop"); said.stderr != "" {
		t.Errorf("it says %s", said.stderr)
	}
	s.root.must(0, "run", "-q", "--", "true") // through the service
	s.root.must(0, "project", "rm", "shop")
	direct := s.direct()
	for _, args := range [][]string{{"run", "-q", "--", "true"}, {"serve", "--listen", "127.0.0.1:0"}} {
		direct.contains(direct.must(exitFailed, args...).stderr, "whose service has the only log of this host", "without CUSTODY_HOME")
	}
	if left, err := os.ReadDir(filepath.Join(s.root.home, "runs")); err != nil || len(left) > 0 {
		t.Errorf("root has records: %v, %v", left, err)
	}
	s.oneLog()

	s.stop()
	apply(s.root, exitFailed, "late")
	said := apply(s.root, exitFailed, "late")
	s.root.contains(said.stderr, "is not recorded", "systemctl start custody-serve")
	s.start()
	s.user.contains(s.user.must(exitFailed, "run", "--project", "late").stderr, "late")
	other := newServed(t)
	wrong := s.direct()
	wrong.env = other.user.env
	wrong.contains(apply(wrong, exitFailed, "late").stderr, "another host's state")
	apply(s.root, 0, "late")
	s.oneLog()

	who := host.CallerName()
	want := []string{who + " custody project apply shop 1 allow", who + " custody project rm shop 1 allow", who + " custody project apply late 1 allow"}
	got := s.changes()
	for _, w := range want {
		if !strings.Contains(strings.Join(got, "\n"), w) {
			t.Errorf("the access log has no %q: %q", w, got)
		}
	}
}

// TestOneLogKilled: what closes the records of killed processes adds to the one log.
func TestOneLogKilled(t *testing.T) {
	t.Parallel()
	s := separate(witnessedDoor(t))
	socket := strings.TrimPrefix(s.admin.env[0], hostd.SocketEnv+"=")
	for _, kill := range []func(){
		func() { s.host.Process.Kill(); s.host.Wait(); s.startHost(socket) },
		func() { s.serve.Process.Kill(); s.serve.Wait(); s.start() },
	} {
		cmd := s.user.command("run", "--", "sh", "-c", "echo ready; sleep 1000")
		out := new(screen)
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		s.user.start(cmd)
		out.await(t, "ready")
		kill()
		cmd.Wait()
		s.user.must(0, "run", "-q", "--", "true")
	}
	s.root.must(0, "project", "ls") // as root, who finds nothing to close
	s.oneLog()
}

// TestHostUsedBefore: a host that was used before it got a service has a log, which the service continues, with the records in it: also those
// of a run that was killed. What was the log is moved aside.
func TestHostUsedBefore(t *testing.T) {
	t.Parallel()
	root := witnessedDoor(t)
	root.must(0, "run", "-q", "--", "true")
	root.write(filepath.Join(root.dir, "shop.yaml"), "version: 1\nproject: shop\nsteps: [{name: s, run: 'true'}]\n")
	root.must(0, "project", "apply", "shop.yaml")
	cmd := root.command("run", "--", "sh", "-c", "echo ready; sleep 1000")
	out := new(screen)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	root.start(cmd)
	out.await(t, "ready")
	cmd.Process.Kill()
	cmd.Wait()
	before := logSize(t, root.home)

	s := separate(root)
	s.user.must(0, "run", "-q", "--project", "shop")
	s.root.must(0, "project", "rm", "shop")
	if runs := s.admin.runs(); len(runs) != 3 || runs[1].Status != "interrupted" {
		t.Errorf("the service has the runs %+v", runs)
	}
	if size := logSize(t, s.admin.home); before == 0 || size <= before {
		t.Errorf("the log had %d entries, and has %d", before, size)
	}
	if _, err := os.Stat(filepath.Join(s.root.home, "before-service", "log", "checkpoint")); err != nil {
		t.Error(err)
	}
	s.oneLog()
}

// logSize returns the number of entries in the published log of a home.
func logSize(t *testing.T, home string) uint64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(home, "log", "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := statement.ReadCheckpoint(b)
	if err != nil {
		t.Fatal(err)
	}
	return c.Size
}

// TestEraseServed: root erases records that the service has, with a statement that root signs. No one else can.
func TestEraseServed(t *testing.T) {
	t.Parallel()
	s := separate(witnessedDoor(t))
	const text = "a-name-that-must-go"
	s.user.must(0, "run", "-q", "--", "echo", text)
	run := s.admin.runs()[0].ID
	seq := strconv.FormatUint(s.admin.records(run, "output")[0].Seq, 10)
	erase := func(d *door, code int, seq string) string {
		t.Helper()
		return d.must(code, "erase", run, seq, "--reason", "request 4711", "--by", "dpo").stderr
	}
	s.user.contains(erase(s.user, exitFailed, seq), "root")
	s.admin.contains(erase(s.admin, exitFailed, seq), "run the command as root")
	s.root.contains(erase(s.root, exitFailed, "99999"), "has no record 99999")
	s.root.contains(erase(s.root, exitFailed, "1"), "cannot be erased")
	if got := s.admin.must(0, "timeline", run).stdout; !strings.Contains(got, text) {
		t.Errorf("before the erasure the timeline is %s", got)
	}
	for range 2 { // the second finds the statement
		s.root.contains(erase(s.root, 0, seq), "erased seq "+seq+" of run "+run)
	}
	for _, r := range s.admin.records(run, "output") {
		if strconv.FormatUint(r.Seq, 10) == seq {
			t.Errorf("record %s is still there: %+v", seq, r)
		}
	}
	statements, err := filepath.Glob(filepath.Join(s.admin.home, "runs", run, "*.erasure"))
	if err != nil || len(statements) != 1 {
		t.Errorf("statements: %v, %v", statements, err)
	}
	other := newServed(t)
	wrong := *s.root
	wrong.env = append(slices.Clone(wrong.env), other.user.env...)
	wrong.contains(erase(&wrong, exitFailed, seq), "another host's state")
	s.oneLog()
}
