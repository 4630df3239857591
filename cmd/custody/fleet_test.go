package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

const natsConfig = `
listen: "%s:4222"
http: "%s:8222"
max_payload: 33554432
jetstream: {store_dir: %q, sync_interval: always, max_file_store: 1TB}
`

// natsServer builds the server, once, of the version that this module has, and returns its path.
func natsServer(t *testing.T) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "nats-server")
	buildNATS.Do(func() {
		build := exec.Command("go", "build", "-o", path, "github.com/nats-io/nats-server/v2")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build nats-server: %v\n%s", err, out)
		}
	})
	return path
}

var buildNATS sync.Once

// hosts is a machine with agents, and one with the servers.
type hosts struct {
	*door       // on the agents' machine
	ops   *door // on the servers' machine
	there *peer
	dsn   string // of the ClickHouse there

	ingester *exec.Cmd
}

// newFleet starts NATS, a ClickHouse engine and `custody ingest` on one machine, and returns a
// user on another.
func newFleet(t *testing.T) *hosts {
	t.Helper()
	agents, ops := twoPeers(t)
	f := &hosts{door: newDoor(t), ops: newDoor(t), there: ops}
	f.launch, f.ops.launch = agents.start, ops.start
	dir := t.TempDir()

	conf := filepath.Join(dir, "nats.conf")
	f.write(conf, fmt.Sprintf(natsConfig, ops.address, ops.address, filepath.Join(dir, "jetstream")))
	ops.serve(exec.Command(natsServer(t), "-c", conf))
	clickhouse := exec.Command(program(t, "CUSTODY_TEST_CHDB"), "--path", filepath.Join(dir, "clickhouse"), "--listen", ops.address+":8123")
	if _, err := clickhouse.StdinPipe(); err != nil { // it ends when that closes
		t.Fatal(err)
	}
	ops.serve(clickhouse)
	ops.reach(ops.address + ":4222")
	ops.reach(ops.address + ":8123")
	f.dsn = "http://" + ops.address + ":8123/default"

	hostYAML := fmt.Sprintf("version: 1\ntenant: acme\ntransport: {url: \"nats://%s:4222\", monitor: \"http://%s:8222\"}\n", ops.address, ops.address)
	f.write(filepath.Join(f.home, "host.yaml"), hostYAML)
	f.write(filepath.Join(f.ops.home, "host.yaml"), hostYAML+"store: \""+f.dsn+"\"\n")
	f.ingest()
	return f
}

// enrol adds this machine's key to the other machine.
func (f *hosts) enrol() {
	f.Helper()
	statement := filepath.Join(f.dir, "statement")
	f.ops.must(0, "key", "fleet", "new", "fleet.example")
	f.write(statement, f.ops.must(0, "key", "fleet", "enrol", strings.TrimSpace(f.must(0, "key", "show").stdout)).stdout)
	f.ops.must(0, "key", "fleet", "add", statement)
}

// ingest starts `custody ingest`.
func (f *hosts) ingest() {
	f.ingester = f.ops.command("ingest")
	f.there.serve(f.ingester)
}

// TestFleet: a run on one machine is read from ClickHouse on another, and is record for
// record what its own host has, in its log and in a SQLite store made from it.
func TestFleet(t *testing.T) {
	f := newFleet(t)
	f.enrol()
	f.write(filepath.Join(f.dir, "in.txt"), "hello")
	s := f.must(0, "run", "--workdir", f.dir, "--", "sh", "-c", "cat in.txt; for i in 1 2 3 4 5 6 7 8; do date > f$i; done; sleep 2; echo done")
	if strings.Contains(s.stderr, "sync_interval") || strings.Contains(s.stderr, "does not have all") {
		t.Errorf("custody run says: %s", s.stderr)
	}
	here := f.must(0, "timeline", "last", "--json").stdout // its log: the store is elsewhere
	run := f.runs()[0].ID

	there := f.ops.must(0, "timeline", run, "--json").stdout
	if here != there || len(lines(here)) < 20 {
		t.Errorf("the log has %d records, ClickHouse %d, and they differ", len(lines(here)), len(lines(there)))
	}
	f.must(0, "--store", "sqlite:"+filepath.Join(f.home, "custody.db"), "rebuild")
	f.env = append(f.env, "CUSTODY_STORE=sqlite:"+filepath.Join(f.home, "custody.db"))
	if local := f.must(0, "timeline", run, "--json").stdout; local != there {
		t.Error("SQLite and ClickHouse show different records")
	}
	if a, b := f.must(0, "timeline", run).stdout, f.ops.must(0, "timeline", run).stdout; a != b {
		t.Errorf("the timelines differ:\n%s\n%s", a, b)
	}
	if r := f.ops.runs()[0]; r.Tenant != "acme" || r.Host == "" || r.Status != "sealed" {
		t.Errorf("ClickHouse lists the run as %+v", r)
	}
	for args, listed := range map[string]bool{
		"--from 1999-01-01 --until 2200-01-01": true, "--until 1999-01-01": false, "--from 2200-01-01": false,
		"--project default": true, "--project other": false, "--tenant acme": true, "--tenant initech": false, "--tenant (none)": false,
		"--from 1999-01-01 --project default --tenant acme": true,
	} {
		for name, d := range map[string]*door{"SQLite": f.door, "ClickHouse": f.ops} {
			if got := d.must(0, append([]string{"runs", "--json"}, strings.Split(args, " ")...)...).stdout; strings.Contains(got, run) != listed {
				t.Errorf("%s: runs %s lists %q", name, args, got)
			}
		}
	}
	if a, b := f.must(0, "search", "--kind", "file", "--from", "1999-01-01", "--runs").stdout, f.ops.must(0, "search", "--kind", "file", "--from", "1999-01-01", "--runs").stdout; a != b || !strings.Contains(a, run) {
		t.Errorf("search --runs differs:\n%s\n%s", a, b)
	}
	f.env = f.env[:len(f.env)-1]
	f.must(0, "fsck")
	f.verified(run)
}

// clickhouse does a statement on the database, as its administrator could.
func (f *hosts) clickhouse(statement string) {
	f.Helper()
	address := f.there.address + ":8123"
	var conn net.Conn
	f.there.do(func() (err error) {
		conn, err = net.Dial("tcp", address)
		return err
	}, true)
	defer conn.Close()
	req, err := http.NewRequest(http.MethodPost, "http://"+address+"/?database=default&mutations_sync=2", strings.NewReader(statement))
	if err == nil {
		err = req.Write(conn)
	}
	if err != nil {
		f.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		f.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		f.Fatalf("%s: %s, %v, %.1000s", statement, answer.Status, err, text)
	}
}

// TestFleetRepair: rows that someone altered, removed and added in ClickHouse are named on
// the host that recorded them, and put right over NATS.
func TestFleetRepair(t *testing.T) {
	f := newFleet(t)
	f.script(0, "echo one; for i in 1 2 3; do touch /workspace/f$i; done; sleep 2; echo two")
	run := f.runs()[0].ID
	before, summaries := f.ops.must(0, "timeline", run, "--json").stdout, f.ops.must(0, "runs", "--json").stdout
	of := " WHERE run = '" + run + "' AND "
	f.clickhouse("INSERT INTO records (" + clickhouseColumns + ") SELECT " + strings.ReplaceAll(clickhouseColumns, "leaf", "reverse(leaf)") +
		" FROM records" + of + "kind = 'output' ORDER BY seq DESC LIMIT 1") // a fork of one record
	f.clickhouse("ALTER TABLE records DELETE" + of + "kind = 'file' AND path LIKE '%f2'")
	f.clickhouse("ALTER TABLE records UPDATE body = replaceAll(body, 'one', 'two')" + of + "kind = 'output'")
	var gone uint64
	for _, r := range decode[audit.Record](f.door, before) {
		if r.File != nil && strings.HasSuffix(string(r.File.Path), "f2") {
			gone = r.Seq
		}
	}
	f.clickhouse(fmt.Sprintf("ALTER TABLE segments UPDATE count = count + 5, findings = 9%sfirst <= %d AND last >= %d AND count > 0", of, gone, gone)) // of a segment whose rows differ
	if f.ops.must(0, "timeline", run, "--json").stdout == before {
		t.Fatal("nothing was altered")
	}
	f.contains(f.must(1, "fsck").stdout, "store-differs", run)
	f.contains(f.must(0, "ship", "--differ").stderr, run)
	f.must(0, "fsck")
	f.verified(run)
	if f.ops.must(0, "timeline", run, "--json").stdout != before {
		t.Error("the run's records are not what they were")
	}
	if after := f.ops.must(0, "runs", "--json").stdout; after != summaries {
		t.Errorf("the summary was\n%s, and is\n%s", summaries, after)
	}
}

const clickhouseColumns = "tenant, run, time, seq, leaf, class, root, kind, observer, step, proc, path, host, hash, secret, rule, salt, body"

// TestFollowFromAnywhere: events are shown on another machine as they happen.
func TestFollowFromAnywhere(t *testing.T) {
	f := newFleet(t)
	cmd := f.command("run", "--", "sh", "-c", "sleep 3; touch /workspace/seen; sleep 6")
	f.start(cmd)
	var run string
	deadline := time.Now().Add(30 * time.Second)
	for run == "" && time.Now().Before(deadline) { // its first segment is in the store
		if runs := f.ops.runs(); len(runs) > 0 {
			run = runs[0].ID
		}
		time.Sleep(100 * time.Millisecond)
	}
	s := f.ops.must(0, "timeline", run, "--follow", "--json")
	f.contains(s.stdout, "/workspace/seen", `"phase":"end"`)
	cmd.Wait()
	if all := f.ops.must(0, "timeline", run, "--json").stdout; all != s.stdout {
		t.Error("what was followed is not what the store has")
	}
}

// TestBundleFromStore: when retention has removed a run's segments from its host, the
// bundle is made from the store, and verifies with the public key alone.
func TestBundleFromStore(t *testing.T) {
	f := newFleet(t)
	f.script(0, "echo kept; sleep 2; echo elsewhere")
	run := f.runs()[0].ID
	before := filepath.Join(f.dir, "before.tar")
	f.must(0, "bundle", run, "-o", before)

	host := filepath.Join(f.home, "host.yaml")
	f.write(host, fmt.Sprintf("version: 1\ntenant: acme\nstore: %q\ntransport: {url: \"nats://%s:4222\"}\nretain: {age: 1ms}\n", f.dsn, f.there.address))
	f.contains(f.must(0, "prune").stderr, "removed")
	if left, _ := filepath.Glob(filepath.Join(f.home, "runs", run, "*.seg")); len(left) > 0 {
		t.Errorf("segments are still here: %v", left)
	}
	f.must(0, "verify", run)
	f.must(0, "fsck")
	after := filepath.Join(f.dir, "after.tar")
	f.must(0, "bundle", run, "-o", after)
	stranger := newDoor(t)
	key := filepath.Join(f.home, "keys", "host.pub")
	f.contains(stranger.must(0, "verify", after, "--key", key).stdout, "verified: every record")
	if f.records(run)[0].Lifecycle.Tenant != "acme" {
		t.Error("the run's start does not name its tenant")
	}
}

// TestSpool: while nothing takes segments, a run goes on until the spool is full. In strict mode
// it freezes then, and goes on when there is an ingester again; in degrade mode it goes on, and
// what was lost is declared. Both runs are whole in the store at last, and verify.
func TestSpool(t *testing.T) {
	for _, mode := range []string{"strict", "degrade"} {
		t.Run(mode, func(t *testing.T) {
			f := newFleet(t)
			f.project("version: 1\nrecord: {mode: " + mode + "}\n")
			host, err := os.ReadFile(filepath.Join(f.home, "host.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			f.write(filepath.Join(f.home, "host.yaml"), string(host)+"spool: 64KiB\n")
			f.ingester.Process.Kill()
			f.ingester.Wait()

			var words screen
			cmd := f.command("run", "--", "sh", "-c", "head -c 8000000 /dev/urandom | base64; sleep 2; echo whole")
			cmd.Stderr = &words
			f.start(cmd)
			words.await(t, "the spool is full")
			time.Sleep(8 * time.Second) // longer than the buffer of degrade mode lasts
			f.ingest()
			cmd.Wait()
			run := f.runs()[0].ID
			kinds := map[string]int{}
			for _, r := range f.records(run, "vm", "gap") {
				if r.VM != nil {
					kinds[r.VM.Op]++
				} else if r.Gap.Stage == "wal" {
					kinds["gap"]++
				}
			}
			if mode == "strict" && (kinds["freeze"] == 0 || kinds["thaw"] == 0 || kinds["gap"] > 0) || mode == "degrade" && kinds["gap"] == 0 {
				t.Errorf("the record has %v", kinds)
			}
			f.must(0, "ship")
			f.must(0, "fsck")
			f.enrol()
			if here, there := f.must(0, "timeline", run, "--json").stdout, f.ops.must(0, "timeline", run, "--json").stdout; here != there {
				t.Error("the store does not have what the log has")
			}
		})
	}
}

// TestTransportAway: while NATS cannot be reached a run goes on, and its manifests are in the
// host's log all the same; what it left is carried when NATS is there.
func TestTransportAway(t *testing.T) {
	d := newDoor(t)
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\ntransport: {url: \"nats://127.0.0.1:1\", wait: 1s}\n")
	d.contains(d.must(0, "run", "--", "sh", "-c", "echo one; sleep 2; echo two").stderr, "`custody ship` or any later run continues there")
	run := d.runs()[0].ID
	d.contains(d.must(0, "verify", run).stdout, "0 are younger than the checkpoint")
	d.must(0, "bundle", run, "-o", filepath.Join(d.dir, "b.tar"))
}
