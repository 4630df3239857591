package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
)

// ocsfSchemas are the published schemas, by class. They are no part of this tree.
func ocsfSchemas(t *testing.T) map[int]*jsonschema.Schema {
	t.Helper()
	dir := os.Getenv("CUSTODY_OCSF")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "ocsf")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "1.8.0", "*.schema.json"))
	schemas := map[int]*jsonschema.Schema{}
	for _, file := range files {
		schema, err := jsonschema.NewCompiler().Compile(file)
		if err != nil {
			t.Fatal(err)
		}
		var head struct {
			Properties struct {
				Class struct{ Enum []int } `json:"class_uid"`
			}
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &head)
		}
		if err != nil || len(head.Properties.Class.Enum) != 1 {
			t.Fatalf("%s: %v", file, err)
		}
		schemas[head.Properties.Class.Enum[0]] = schema
	}
	return schemas
}

// TestExportOfARun: a run with an agent, a model, secrets, denials and findings, in all
// formats; each OCSF event is valid, and none is missing.
func TestExportOfARun(t *testing.T) {
	d, w := newSite(t)
	work, err := filepath.Abs(filepath.Join("..", "..", "examples", "agent", "work"))
	if err != nil {
		t.Fatal(err)
	}
	yaml, err := os.ReadFile(filepath.Join(work, "..", "custody.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d.project(string(yaml) + "      curl -sS https://evil.example/ || true\n")
	d.env = append(d.env, "WORLD_LLM_KEY="+w.ModelKey())
	d.must(0, "run", "-q", "--workdir", work)
	records := lines(d.must(0, "timeline", "last", "--json").stdout)

	schemas := ocsfSchemas(t)
	if len(schemas) == 0 {
		t.Log("NOT VALIDATED: there are no OCSF schemas in ../shared/ocsf; set CUSTODY_OCSF to their folder")
	}
	classes := map[string]int{}
	exported := lines(d.must(0, "export", "last", "--format", "ocsf").stdout)
	for _, line := range exported {
		var event struct {
			UID      int    `json:"class_uid"`
			Class    string `json:"class_name"`
			Metadata struct{ UID string }
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		classes[event.Class]++
		schema := schemas[event.UID]
		if len(schemas) > 0 && schema == nil {
			t.Errorf("no schema for class %q", event.Class)
			continue
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err == nil && schema != nil {
			err = schema.Validate(doc)
		}
		if err != nil {
			t.Errorf("%.300s\nis not valid: %v", line, err)
		}
	}
	if len(exported) != len(records) {
		t.Errorf("%d records, %d OCSF events", len(records), len(exported))
	}
	for _, want := range []string{"Process Activity", "File System Activity", "DNS Activity", "Network Activity", "HTTP Activity", "API Activity", "Application Lifecycle", "Device Config State Change"} {
		if classes[want] == 0 {
			t.Errorf("no event is a %q: %v", want, classes)
		}
	}
	for _, format := range []string{"ecs", "cef", "json"} {
		if n := len(lines(d.must(0, "export", "last", "--format", format).stdout)); n != len(records) {
			t.Errorf("%d records, %d events as %s", len(records), n, format)
		}
	}
	for _, version := range []string{"1.1.0", "1.3.0", "1.5.0", "1.9.0"} {
		d.contains(d.must(0, "export", "last", "--ocsf", version).stdout, `"version":"`+version+`"`)
	}
	d.contains(d.must(exitFailed, "export", "last", "--ocsf", "2.0").stderr, "1.8.0")
}

// TestExportFollows: what runs record goes on to rsyslog and to an OTLP receiver, each with a
// cursor of its own, across a kill -9 of the exporter.
func TestExportFollows(t *testing.T) {
	d := newDoor(t)
	logs := newReceiver(t)
	address, file := rsyslog(t)
	d.write(filepath.Join(d.home, "host.yaml"), fmt.Sprintf(`version: 1
export:
  - {name: siem, to: "syslog+tcp://%s", format: ocsf}
  - {name: otel, to: "otlp+grpc://%s", format: ocsf, kinds: [run, exec, exit]}
`, address, logs.address))
	d.script(0, "echo one")
	first := d.command("export", "--follow")
	d.start(first)
	want := len(d.records("last"))
	awaitEvents(t, file, want)
	first.Process.Kill()
	first.Wait()

	d.script(0, "echo two")
	second := d.serve("export", "--follow")
	all := map[string]bool{}
	for _, run := range d.runs() {
		for _, r := range d.records(run.ID) {
			all[fmt.Sprintf("%s:%d", run.ID, r.Seq)] = true
		}
	}
	got := awaitEvents(t, file, len(all))
	for id := range all {
		if !got[id] {
			t.Errorf("rsyslog has no event %s", id)
		}
	}
	d.contains(d.must(0, "export", "--status").stdout, "siem", "otel", "running")
	logs.await(t, `"uid":"`+d.runs()[0].ID)
	second.Process.Signal(syscall.SIGTERM)
	if err := second.Wait(); err != nil {
		t.Errorf("export --follow ends with %v when it is told to stop", err)
	}
}

// rsyslog starts Debian's rsyslogd on loopback and returns its address and the file that it writes.
func rsyslog(t *testing.T) (address, file string) {
	t.Helper()
	dir := t.TempDir()
	address = freePort(t)
	_, port, _ := net.SplitHostPort(address)
	file = filepath.Join(dir, "out.log")
	conf := filepath.Join(dir, "rsyslog.conf")
	text := fmt.Sprintf(`global(workDirectory=%q maxMessageSize="1m")
module(load="imtcp" maxSessions="10")
template(name="raw" type="string" string="%%structured-data%% %%msg%%\n")
input(type="imtcp" port="%s" address="127.0.0.1" ruleset="all")
ruleset(name="all") { action(type="omfile" file=%q template="raw") }
`, dir, port, file)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("rsyslogd", "-n", "-f", conf, "-i", filepath.Join(dir, "pid"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: run `make test`, which installs rsyslog", err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	awaitPort(t, address)
	return address, file
}

// awaitEvents waits until a file has events with so many different ids, and returns them.
func awaitEvents(t *testing.T, file string, n int) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	for range 600 {
		text, _ := os.ReadFile(file)
		clear(ids)
		for _, line := range lines(string(text)) {
			_, rest, _ := strings.Cut(line, `"metadata":`)
			_, rest, _ = strings.Cut(rest, `"uid":"`)
			id, _, _ := strings.Cut(rest, `"`)
			if id != "" {
				ids[id] = true
			}
		}
		if len(ids) >= n {
			return ids
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%s has %d events of %d", file, len(ids), n)
	return ids
}

// receiver is an OTLP server for logs.
type receiver struct {
	collector.UnimplementedLogsServiceServer
	address string
	mu      sync.Mutex // guards the fields below
	bodies  bytes.Buffer
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{address: l.Addr().String()}
	s := grpc.NewServer()
	collector.RegisterLogsServiceServer(s, r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return r
}

// Export implements the service.
func (r *receiver) Export(_ context.Context, req *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range req.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, record := range scope.LogRecords {
				r.bodies.WriteString(record.Body.String() + "\n")
				r.bodies.WriteString(record.Body.GetStringValue() + "\n")
			}
		}
	}
	return &collector.ExportLogsServiceResponse{}, nil
}

func (r *receiver) await(t *testing.T, part string) {
	t.Helper()
	for range 900 {
		r.mu.Lock()
		there := strings.Contains(r.bodies.String(), part)
		r.mu.Unlock()
		if there {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("the OTLP receiver has not got %s", part)
}
