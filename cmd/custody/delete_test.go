package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/internal/sampleruns"
)

// marked returns a run's events with a text in their output, arguments and paths.
func marked(events iter.Seq[audit.Event], text string) iter.Seq[audit.Event] {
	return func(yield func(audit.Event) bool) {
		for e := range events {
			switch {
			case e.Output != nil:
				e.Output.Text = audit.Text(text)
			case e.Exec != nil:
				e.Exec.Argv = append(e.Exec.Argv, audit.Text(text))
			case e.File != nil:
				e.File.Path = audit.Text("/tmp/" + text)
			}
			if !yield(e) {
				return
			}
		}
	}
}

// having lists the files below $CUSTODY_HOME that contain a text.
func (d *door) having(text string) (files []string) {
	d.Helper()
	err := filepath.WalkDir(d.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			files = append(files, strings.TrimPrefix(path, d.home))
		}
		return err
	})
	if err != nil {
		d.Fatal(err)
	}
	return files
}

// retaining writes host.yaml.
func (d *door) retaining(settings ...string) {
	d.Helper()
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\n"+strings.Join(settings, "\n")+"\n")
}

// exporting runs an exporter of host.yaml's sinks until done returns true.
func (d *door) exporting(done func() bool) {
	d.Helper()
	cmd := d.command("export", "--follow")
	d.start(cmd)
	eventually(d.T, "exported", done)
	if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		d.Error("export --follow:", err)
	}
}

const goneText = "canary-5f0e1c-of-the-run"

// TestDeleteAfter: retention deletes a run with all its bytes, every command that names the run reports that, and the
// proofs of the other runs stay.
func TestDeleteAfter(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	gone := sampleruns.Record(t, d.home, marked(sampleruns.Review(), goneText))
	d.must(0, "search", "--text", goneText)
	if files := d.having(goneText); len(files) < 2 {
		t.Fatalf("the text is only in %q", files)
	}
	d.must(0, "bundle", gone, "-o", filepath.Join(d.dir, "before.tar"))
	d.must(0, "key", "rotate")

	d.retaining("delete_after: 1ms", "export: [{name: siem, to: \"file:"+filepath.Join(d.dir, "siem.ndjson")+"\"}]")
	d.contains(d.must(0, "prune").stderr, "kept run "+gone, "an exporter that host.yaml names has not sent all of it")
	d.exporting(func() bool { return strings.Contains(d.must(0, "prune", "--dry-run").stderr, "would delete run "+gone) })
	d.must(0, "hold", gone, "--reason", "case 7", "--by", "legal")
	d.contains(d.must(0, "hold").stdout, gone, "case 7", "legal")
	d.contains(d.must(0, "prune").stderr, "kept run "+gone, "it is on hold")
	d.must(0, "hold", gone, "--release")
	d.contains(d.must(0, "prune", "--dry-run").stderr, "would delete run "+gone)
	d.must(0, "verify", gone)

	d.contains(d.must(0, "prune").stderr, "deleted run "+gone)
	if files := d.having(goneText); len(files) > 0 {
		t.Errorf("the run's text is still in %q", files)
	}
	d.retaining("delete_after: 100h")
	kept := sampleruns.Record(t, d.home, sampleruns.Review())
	for _, args := range [][]string{{"timeline", gone}, {"verify", gone}, {"bundle", gone, "-o", filepath.Join(d.dir, "x.tar")}, {"timeline", gone[:20]}, {"report", gone, "-f", "soc2"}} {
		if s := d.custody(args...); s.code == 0 || !strings.Contains(s.stderr, "run "+gone+" was deleted by retention on 20") {
			t.Errorf("%q: %d: %s", args, s.code, s.stderr)
		}
	}
	d.contains(d.must(0, "runs", "--deleted").stdout, gone, "delete_after: 1ms")
	var stated statement.Deletion
	if err := json.Unmarshal([]byte(d.must(0, "runs", "--deleted", "--json").stdout), &stated); err != nil || stated.Run != gone || stated.Records == 0 {
		t.Errorf("%+v, %v", stated, err)
	}
	fine := func() {
		t.Helper()
		d.contains(d.must(0, "fsck").stderr, ": 0 problems")
		d.must(0, "verify", kept)
		d.must(0, "verify", filepath.Join(d.dir, "before.tar"))
	}
	fine()
	d.must(0, "rebuild")
	fine()
	d.must(0, "key", "rotate")
	fine()
	d.retaining("delete_after: 100h", "export: [{name: new, to: \"file:"+filepath.Join(d.dir, "new.ndjson")+"\"}]")
	d.exporting(func() bool {
		sent, _ := os.ReadFile(filepath.Join(d.dir, "new.ndjson"))
		return bytes.Contains(sent, []byte(kept))
	})
	if stats, err := export.ReadStats(filepath.Join(d.home, "export"), "new"); err != nil || stats.Missing > 0 {
		t.Errorf("a new exporter misses %d records, %v", stats.Missing, err)
	}
	s := d.serving()
	s.token = d.newToken("reader", "admin")
	for _, path := range []string{"runs/" + gone, "runs/" + gone + "/records", "runs/" + gone + "/verify"} {
		if status, body := s.ask("GET", path, nil); status != 410 || !bytes.Contains(body, []byte("deleted by retention")) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// TestDeletedByNobody: a run that was deleted without a statement in the host's log is found, and so is one that was
// restored after its deletion.
func TestDeletedByNobody(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	one, two := sampleruns.Record(t, d.home, marked(sampleruns.Review(), goneText)), sampleruns.Record(t, d.home, sampleruns.Review())
	before, err := os.ReadFile(filepath.Join(d.home, "custody.db"))
	if err != nil {
		t.Fatal(err)
	}
	d.retaining("delete_after: 1ms")
	d.must(0, "hold", two, "--reason", "it stays")
	d.contains(d.must(0, "prune").stderr, "deleted run "+one)
	d.retaining()
	stated := filepath.Join(d.home, "deleted", one+statement.DeletionSuffix)
	signed, err := os.ReadFile(stated)
	if err != nil {
		t.Fatal(err)
	}
	problem := func(names ...string) {
		t.Helper()
		d.contains(d.must(1, "fsck").stdout, names...)
	}

	d.write(stated, strings.Replace(string(signed), "1ms", "2ms", 1))
	problem("deletion-forged", "run-missing", one)
	if s := d.custody("timeline", one); strings.Contains(s.stderr, "deleted by retention") {
		t.Errorf("a forged statement is believed: %s", s.stderr)
	}
	if err := os.Remove(stated); err != nil {
		t.Fatal(err)
	}
	problem("run-missing", one)
	d.write(stated, string(signed))
	d.must(0, "fsck")

	for _, suffix := range []string{"-wal", "-shm"} {
		os.Remove(filepath.Join(d.home, "custody.db"+suffix))
	}
	d.write(filepath.Join(d.home, "custody.db"), string(before))
	problem("undeleted", one)
	d.retaining("delete_after: 1ms")
	d.must(0, "prune")
	d.must(0, "fsck")
	if files := d.having(goneText); len(files) > 0 {
		t.Errorf("what came back is still in %q", files)
	}

	// The other one is removed by hand, with a copy of the statement.
	if err := os.RemoveAll(filepath.Join(d.home, "runs", two)); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"records", "manifests", "runs", "feed"} {
		d.sqlite("DELETE FROM " + table + " WHERE run = '" + two + "'")
	}
	problem("run-missing", two)
	d.write(filepath.Join(d.home, "deleted", two+statement.DeletionSuffix), string(signed))
	problem("deletion-forged", "run-missing", two)
	if s := d.custody("verify", two); s.code == 0 || strings.Contains(s.stderr, "deleted by retention") {
		t.Errorf("%d %s", s.code, s.stderr)
	}
}

// TestDeleteAfterRefused: settings that contradict each other are refused.
func TestDeleteAfterRefused(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	for _, tc := range []struct{ why, settings string }{
		{"the segments would stay longer than the run", "delete_after: 24h\nretain: {age: 48h}"},
		{"this host has another one", "delete_after: 24h\nstore: \"clickhouse://ch:9000/custody\""},
		{"this host has another one", "delete_after: 24h\ntransport: {url: \"nats://127.0.0.1:1\"}"},
		{"is not a duration", "delete_after: 90 days"},
	} {
		d.retaining(tc.settings)
		d.contains(d.must(exitFailed, "runs").stderr, tc.why)
	}
}
