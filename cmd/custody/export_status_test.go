package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/doctor"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
)

// listener accepts connections on a port of loopback until it is closed.
type listener struct {
	net.Listener
	mu    sync.Mutex // guards conns
	conns []net.Conn
	done  sync.WaitGroup
}

func listen(t *testing.T, address string) *listener {
	t.Helper()
	l := &listener{}
	var err error
	for range 50 { // the port may be in use for a moment
		if l.Listener, err = net.Listen("tcp", address); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			l.conns = append(l.conns, c)
			l.mu.Unlock()
			l.done.Go(func() { io.Copy(io.Discard, c) })
		}
	})
	t.Cleanup(l.leave)
	return l
}

func (l *listener) leave() {
	l.Close()
	l.mu.Lock()
	for _, c := range l.conns {
		c.Close()
	}
	l.mu.Unlock()
	l.done.Wait()
}

// sinks is what custody export --status has of each sink.
func (d *door) sinks() map[string]host.SinkStatus {
	d.Helper()
	all := map[string]host.SinkStatus{}
	for _, line := range lines(d.must(0, "export", "--status", "--json").stdout) {
		var s host.SinkStatus
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			d.Fatal(err)
		}
		all[s.Name] = s
	}
	return all
}

// awaitSink waits until a sink is as it should be.
func (d *door) awaitSink(name, what string, ok func(host.SinkStatus) bool) host.SinkStatus {
	d.Helper()
	var s host.SinkStatus
	for range 900 {
		if s = d.sinks()[name]; ok(s) {
			return s
		}
		time.Sleep(100 * time.Millisecond)
	}
	d.Fatalf("%s: %+v behind %+v", what, s, s.Behind)
	return s
}

// finds is what custody doctor has about a sink.
func (d *door) finds(name string) doctor.Finding {
	d.Helper()
	for _, line := range lines(d.custody("doctor", "--json").stdout) {
		var f doctor.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			d.Fatal(err)
		}
		if f.Name == "export "+name {
			return f
		}
	}
	d.Fatalf("custody doctor has nothing about %s", name)
	return doctor.Finding{}
}

func (d *door) wantFinding(name string, grade doctor.Grade, parts ...string) {
	d.Helper()
	f := d.finds(name)
	if f.Grade != grade {
		d.Errorf("custody doctor: %+v, want %s", f, grade)
	}
	d.contains(f.Detail+" "+f.Hint, parts...)
}

// TestExportStatus: the status of a sink holds while its receiver is away, after a kill -9 of the exporter, and over restarts.
func TestExportStatus(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.home = t.TempDir() // without templates, which doctor would try
	receiver := listen(t, "127.0.0.1:0")
	address, metrics := receiver.Addr().String(), freePort(t)
	config := filepath.Join(d.home, "host.yaml")
	yaml := "version: 1\nexport:\n"
	d.write(config, yaml+`  - {name: siem, to: "syslog+tcp://`+address+`"}`+"\n")
	sampleruns.Record(t, d.home, sampleruns.Review())
	records := uint64(len(d.records("last")))

	s := d.sinks()["siem"]
	if s.State != export.NeverRan || s.Behind == nil || s.Behind.Records != records || s.Since().IsZero() || s.Sent != 0 {
		t.Errorf("before: %+v behind %+v", s, s.Behind)
	}
	d.wantFinding("siem", doctor.Warn, "never ran", "custody export --follow")

	exporter := d.command("export", "--follow", "--metrics", metrics)
	d.start(exporter)
	delivered := func(s host.SinkStatus) bool { return s.State == export.Running && s.Behind.Records == 0 }
	s = d.awaitSink("siem", "all is delivered", delivered)
	if s.Sent != records || s.PID != exporter.Process.Pid || s.LastSuccess.IsZero() || !s.Since().IsZero() || s.Behind.Segments != 0 {
		t.Errorf("delivered: %+v behind %+v", s, s.Behind)
	}
	d.wantFinding("siem", doctor.OK, "running", fmt.Sprint(records, " events delivered"))
	wantMetric(t, metrics, `custody_exported_events_total{sink="siem"}`, records)
	last := s.LastSuccess

	receiver.leave()
	gone := time.Now()
	sampleruns.Record(t, d.home, sampleruns.Review())
	s = d.awaitSink("siem", "the receiver is away", func(s host.SinkStatus) bool { return s.State == export.Failing })
	if s.Behind.Records == 0 || s.LastError == "" || s.FailingSince.Before(gone.Add(-time.Second)) || !s.LastSuccess.After(last.Add(-time.Second)) {
		t.Errorf("away: %+v behind %+v", s, s.Behind)
	}
	d.wantFinding("siem", doctor.Warn, "failing", s.LastError, "records since")
	wantMetric(t, metrics, `custody_lag_segments{sink="siem",stage="export"}`, uint64(s.Behind.Segments))
	d.contains(d.must(0, "export", "--status").stdout, "failing", fmt.Sprint(s.Behind.Records, " records"), s.FailingSince.UTC().Format(time.RFC3339))

	exporter.Process.Kill()
	exporter.Wait()
	killed := d.sinks()["siem"]
	if killed.State != export.Killed || killed.PID != 0 || killed.Behind.Records != s.Behind.Records || killed.Sent != s.Sent {
		t.Errorf("killed: %+v behind %+v", killed, killed.Behind)
	}
	d.wantFinding("siem", doctor.Warn, "killed", "custody export --follow")
	sampleruns.Record(t, d.home, sampleruns.Review()) // it falls further behind, without a process that could count
	if now := d.sinks()["siem"]; now.Behind.Records != killed.Behind.Records+records || now.Since().IsZero() {
		t.Errorf("later: %+v behind %+v", now, now.Behind)
	}

	exporter = d.command("export", "--follow", "--metrics", metrics)
	d.start(exporter)
	again := d.awaitSink("siem", "it fails again", func(s host.SinkStatus) bool { return s.State == export.Failing })
	if !again.FailingSince.Equal(s.FailingSince) {
		t.Errorf("it fails since %v, and before since %v", again.FailingSince, s.FailingSince)
	}
	listen(t, address)
	s = d.awaitSink("siem", "it goes on", delivered)
	total := uint64(0)
	for _, run := range d.runs() {
		total += uint64(len(d.records(run.ID)))
	}
	if s.Sent < total || s.Sent > total+records { // at least once: what the dead receiver's kernel took may be sent again
		t.Errorf("%d delivered over two processes, want %d", s.Sent, total)
	}
	wantMetric(t, metrics, `custody_exported_events_total{sink="siem"}`, s.Sent)
	exporter.Process.Signal(syscall.SIGTERM)
	exporter.Wait()
	if now := d.sinks()["siem"]; now.State != export.Stopped || now.Sent != s.Sent {
		t.Errorf("stopped: %+v", now)
	}
	d.wantFinding("siem", doctor.Warn, "stopped")

	d.write(config, yaml+`  - {name: other, to: "file:`+filepath.Join(d.dir, "out")+`"}`+"\n")
	d.wantFinding("siem", doctor.Warn, "host.yaml does not name it")
	d.contains(d.must(0, "export", "--status").stdout, "siem (not in host.yaml)", "never ran")
}

func wantMetric(t *testing.T, address, series string, want uint64) {
	t.Helper()
	text := ""
	for range 50 { // counters are added up each second
		if res, err := http.Get("http://" + address + "/metrics"); err == nil {
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			text = string(body)
		}
		if strings.Contains(text, fmt.Sprintf("\n%s %d\n", series, want)) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, line := range lines(text) {
		if strings.HasPrefix(line, series) {
			t.Errorf("%s, want %d", line, want)
			return
		}
	}
	t.Errorf("no metric %s", series)
}
