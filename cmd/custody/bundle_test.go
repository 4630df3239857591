package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/custody-project/custody/audit"
)

// serve starts a command of the program that serves until it is stopped.
func (d *door) serve(args ...string) *exec.Cmd {
	d.Helper()
	cmd := d.command(args...)
	cmd.Stderr = os.Stderr
	d.start(cmd)
	d.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	return cmd
}

// freePort returns a port of loopback without a listener.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func awaitPort(t *testing.T, address string) {
	t.Helper()
	for range 1200 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("nothing listens at %s", address)
}

// TestErase: the contents of an erased record are removed from log, store and bundle, and all of them verify.
func TestErase(t *testing.T) {
	d := newDoor(t)
	const personal = "jane-roe-1970-01-01"
	d.script(0, "touch /workspace/"+personal+" && rm /workspace/"+personal)
	run := d.runs()[0].ID
	var seqs []uint64
	for _, r := range d.records(run) {
		body, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), personal) {
			if r.Kind == audit.KindStep {
				d.contains(d.must(exitFailed, "erase", run, strconv.FormatUint(r.Seq, 10), "--reason", "no").stderr, "cannot be erased")
				continue // the step's own words: it has to stay
			}
			seqs = append(seqs, r.Seq)
		}
	}
	if len(seqs) < 2 {
		t.Fatalf("only seqs %v name the file", seqs)
	}
	for _, seq := range seqs {
		d.must(0, "erase", run, strconv.FormatUint(seq, 10), "--reason", "request 4711", "--by", "dpo")
	}
	for _, r := range d.records(run) {
		if r.Kind == audit.KindFile && r.File != nil && strings.Contains(string(r.File.Path), personal) {
			t.Errorf("seq %d still names the file", r.Seq)
		}
	}
	s := d.must(0, "verify", run)
	d.contains(s.stdout, "erased    seq "+strconv.FormatUint(seqs[0], 10), "for dpo: request 4711", "verified: every record")
	bundle := filepath.Join(d.dir, "b.tar")
	d.must(0, "bundle", run, "-o", bundle)
	d.contains(d.must(0, "verify", bundle).stdout, "erased    seq")
	d.must(0, "fsck")
	d.must(0, "rebuild")
	d.must(0, "verify", run)
}

// TestKeyRotation: runs from before and after verify, with the old key as well as on the host.
func TestKeyRotation(t *testing.T) {
	d := newDoor(t)
	d.script(0, "true")
	old := strings.TrimSpace(d.must(0, "key", "show").stdout)
	first := d.runs()[0].ID
	fresh := strings.TrimSpace(d.must(0, "key", "rotate").stdout)
	if fresh == old || d.must(0, "key", "show").stdout != fresh+"\n" {
		t.Fatalf("the key was %s and is %s", old, fresh)
	}
	d.script(0, "true")
	second := d.runs()[0].ID
	d.verified(first)
	d.verified(second)
	d.must(0, "fsck")
	stranger := newDoor(t)
	for _, run := range []string{first, second} {
		bundle := filepath.Join(d.dir, run+".tar")
		d.must(0, "bundle", run, "-o", bundle)
		stranger.must(0, "verify", bundle, "--key", old)
	}
	// The new key cannot prove what the old one signed.
	stranger.must(2, "verify", filepath.Join(d.dir, first+".tar"), "--key", fresh)
	stranger.must(0, "verify", filepath.Join(d.dir, second+".tar"), "--key", fresh)
}

// TestWitnessed: a witness of another team cosigns, an auditor demands it, and a host's
// log that was put back to an older state gets no cosignature any more.
func TestWitnessed(t *testing.T) {
	d, other := newDoor(t), newDoor(t)
	hostKey := strings.TrimSpace(d.must(0, "key", "show").stdout)
	witness := strings.TrimSpace(other.must(0, "witness", "key", "witness.example").stdout)
	address := freePort(t)
	other.serve("witness", "serve", "--listen", address, "--log", hostKey)
	awaitPort(t, address)
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\nlog: {wait: 3s, witnesses: [{key: \""+witness+"\", url: \"http://"+address+"\"}]}\n")

	d.script(0, "echo one")
	run := d.runs()[0].ID
	bundle := filepath.Join(d.dir, "b.tar")
	d.must(0, "bundle", run, "-o", bundle)
	s := other.must(0, "verify", bundle, "--key", hostKey, "--witness", witness)
	other.contains(s.stdout, "witnesses witness.example")

	// A log that was put back to an older state is found here; where what this host remembers of
	// it was put back, too, the witness still knows.
	old := t.TempDir()
	both := []string{"log", "log.checkpoints"}
	for _, name := range both {
		copyTree(t, filepath.Join(d.home, name), filepath.Join(old, name))
	}
	d.script(0, "echo two")
	putBack := func(name string) {
		if err := os.RemoveAll(filepath.Join(d.home, name)); err != nil {
			t.Fatal(err)
		}
		copyTree(t, filepath.Join(old, name), filepath.Join(d.home, name))
	}
	putBack("log")
	d.contains(d.custody("fsck").stdout, "log-rolled-back")
	d.contains(d.must(0, "run", "--", "true").stderr, "rolled back to an older state")
	putBack("log.checkpoints")
	d.contains(d.custody("fsck").stdout, "not-logged")
	d.contains(d.must(0, "run", "--", "true").stderr, "too few witnesses")
}

// TestFsck: each thing that was tampered with is found, by name.
func TestFsck(t *testing.T) {
	d := newDoor(t)
	d.script(0, "echo one; sleep 2; echo two")
	d.script(0, "echo three")
	d.must(0, "fsck")
	runs := d.runs()
	pristine := filepath.Join(t.TempDir(), "home")
	restore := func() {
		for _, name := range []string{"runs", "log", "custody.db", "custody.db-wal", "custody.db-shm"} {
			from, to := filepath.Join(pristine, name), filepath.Join(d.home, name)
			if err := os.RemoveAll(to); err != nil {
				t.Fatal(err)
			}
			copyTree(t, from, to)
		}
	}
	for _, name := range []string{"runs", "log", "custody.db", "custody.db-wal", "custody.db-shm"} {
		copyTree(t, filepath.Join(d.home, name), filepath.Join(pristine, name))
	}
	segment := filepath.Join(d.home, "runs", runs[1].ID, "00000000000000000001.seg")
	for name, tamper := range map[string]func(){
		"run-missing": func() {
			os.RemoveAll(filepath.Join(d.home, "runs", runs[1].ID))
			os.Remove(filepath.Join(d.home, "custody.db"))
		},
		"not-stored":  func() { d.sqlite("DELETE FROM manifests WHERE idx = 0 AND run = '" + runs[1].ID + "'") },
		"row-altered": func() { d.sqlite("UPDATE runs SET findings = 9, exit_code = 3 WHERE run = '" + runs[0].ID + "'") },
		"run-unsigned": func() {
			d.sqlite("INSERT INTO runs SELECT 'r-invented', project, start, first_time, \"end\", status, result, exit_code, tier, mode, template, events, findings, gaps, lost, last_seq, tenant, host FROM runs LIMIT 1")
		},
		"store-differs": func() { d.sqlite("UPDATE records SET body = replace(body, 'one', 'two') WHERE kind = 'output'") },
		"record-altered": func() {
			b, err := os.ReadFile(segment)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			d.write(segment, string(b))
		},
		"log-tiles-altered": func() {
			files, _ := filepath.Glob(filepath.Join(d.home, "log", "tile", "0", "*", "*"))
			if len(files) == 0 {
				files, _ = filepath.Glob(filepath.Join(d.home, "log", "tile", "0", "*"))
			}
			b, err := os.ReadFile(files[len(files)-1])
			if err != nil {
				t.Fatal(err)
			}
			b[0] ^= 1
			d.write(files[len(files)-1], string(b))
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer restore()
			tamper()
			s := d.custody("fsck")
			if s.code != 1 || !strings.Contains(s.stdout, name+":") {
				t.Errorf("fsck exits %d and says: %s%s", s.code, s.stdout, s.stderr)
			}
		})
	}
	d.must(0, "fsck")
}

// TestShipDiffer: changes to the store by another program are reported, and repaired from the logs.
func TestShipDiffer(t *testing.T) {
	d := newDoor(t)
	d.script(0, "echo one; touch /workspace/left; sleep 2; echo two")
	d.script(0, "echo three")
	runs := d.runs()
	first, second := runs[1].ID, runs[0].ID
	before, summaries := d.must(0, "timeline", first, "--json").stdout, d.must(0, "runs", "--json").stdout
	d.sqlite("UPDATE records SET body = replace(body, 'one', 'two') WHERE kind = 'output' AND instr(body, 'one') > 0 AND run = '" + first + "'")
	d.sqlite("DELETE FROM records WHERE kind = 'file' AND run = '" + first + "'")
	d.sqlite("UPDATE runs SET events = 3, status = 'running'")
	d.sqlite("DELETE FROM manifests WHERE idx = 0 AND run = '" + second + "'")
	if d.must(0, "timeline", first, "--json").stdout == before {
		t.Fatal("nothing was altered")
	}
	d.contains(d.must(1, "fsck").stdout, "store-differs", first, "not-stored", second)
	d.contains(d.must(0, "ship", "--differ").stderr, first, second)
	d.must(0, "fsck")
	d.verified(first)
	d.verified(second)
	if d.must(0, "timeline", first, "--json").stdout != before {
		t.Error("the run's records are not what they were")
	}
	if after := d.must(0, "runs", "--json").stdout; after != summaries {
		t.Errorf("the summaries were\n%s, and are\n%s", summaries, after)
	}
	if s := d.must(0, "ship", "--differ"); strings.Contains(s.stderr, "in the store now") {
		t.Errorf("nothing differs any more, and ship says: %s", s.stderr)
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if info, err := os.Stat(from); err != nil {
		return
	} else if info.IsDir() {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(from)
	if err == nil {
		if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestKeyInVault: the signing key never leaves Vault; runs verify, also after a rotation, and an unreachable Vault freezes
// a run rather than leaving it unsigned.
func TestKeyInVault(t *testing.T) {
	v := newVault(t)
	if err := v.Sys().Mount("transit", &api.MountInput{Type: "transit"}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Logical().Write("transit/keys/host-1", map[string]any{"type": "ed25519"}); err != nil {
		t.Fatal(err)
	}
	d := newDoor(t)
	d.env = append(d.env, "VAULT_ADDR="+v.addr, "VAULT_TOKEN="+v.token)
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\nkey: vault-transit:transit/host-1\n")
	d.script(0, "echo one; sleep 2; echo two")
	first := strings.TrimSpace(d.must(0, "key", "show").stdout)
	if !strings.HasPrefix(first, "host-1+") {
		t.Errorf("the key is %s", first)
	}
	d.must(0, "key", "rotate")
	d.script(0, "true")
	for _, run := range d.runs() {
		d.verified(run.ID)
		bundle := filepath.Join(d.dir, run.ID+".tar")
		d.must(0, "bundle", run.ID, "-o", bundle)
		newDoor(t).must(0, "verify", bundle, "--key", first)
	}
	d.must(0, "fsck")
	if files, _ := filepath.Glob(filepath.Join(d.home, "keys", "*.key")); len(files) != 1 { // tag.key
		t.Errorf("keys on this host: %v", files)
	}

	cmd, _ := d.begun("run", "--", "sh", "-c", "echo 'begun !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!!'; sleep 5; echo end")
	v.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(3 * time.Second)
	v.cmd.Process.Signal(syscall.SIGCONT)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the run ended with %v", err)
	}
	d.verified(d.runs()[0].ID)
}
