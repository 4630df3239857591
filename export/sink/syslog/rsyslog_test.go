package syslog

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
)

// rsyslog is Debian's rsyslogd, run by the test on loopback, which writes received messages to a file.
type rsyslog struct {
	dir, addr, conf string
	cmd             *exec.Cmd
	stderr          bytes.Buffer
}

func startRsyslog(t *testing.T, certs *exporttest.Certs) *rsyslog {
	t.Helper()
	r := &rsyslog{dir: t.TempDir()}
	r.write(t, certs, "0")
	r.start(t)
	t.Cleanup(r.kill)
	port := waitFor(t, func() string {
		b, _ := os.ReadFile(filepath.Join(r.dir, "port"))
		return strings.TrimSpace(string(b))
	})
	r.addr = net.JoinHostPort("127.0.0.1", port)
	r.write(t, certs, port) // for the next start
	return r
}

// write writes the configuration: one listener, one file; a line has the fields of a message, separated by tabs.
func (r *rsyslog) write(t *testing.T, certs *exporttest.Certs, port string) {
	t.Helper()
	driver := ""
	global := ""
	if certs != nil {
		global = fmt.Sprintf(`DefaultNetstreamDriver="ossl" DefaultNetstreamDriverCAFile=%q DefaultNetstreamDriverCertFile=%q DefaultNetstreamDriverKeyFile=%q`,
			certs.CA, certs.Cert, certs.Key)
		driver = `StreamDriver.Name="ossl" StreamDriver.Mode="1" StreamDriver.AuthMode="x509/certvalid"`
	}
	conf := fmt.Sprintf(`global(workDirectory=%q maxMessageSize="256k" %s)
module(load="imtcp" %s)
template(name="all" type="string" string="%%pri%%\t%%hostname%%\t%%app-name%%\t%%msgid%%\t%%structured-data%%\t%%msg%%\n")
ruleset(name="in") { action(type="omfile" file="%s/got" template="all" asyncWriting="off" flushOnTXEnd="on") }
input(type="imtcp" address="127.0.0.1" port=%q listenPortFileName="%s/port" ruleset="in")
`, r.dir, global, driver, r.dir, port, r.dir)
	r.conf = filepath.Join(r.dir, "rsyslog.conf")
	if err := os.WriteFile(r.conf, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *rsyslog) start(t *testing.T) {
	t.Helper()
	r.cmd = exec.Command("rsyslogd", "-n", "-iNONE", "-f", r.conf)
	r.cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	r.cmd.Path = "/usr/sbin/rsyslogd"
	r.cmd.Stderr = &r.stderr
	r.cmd.Err = nil
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("rsyslogd is needed (package rsyslog): %v", err)
	}
}

func (r *rsyslog) kill() {
	r.cmd.Process.Kill()
	r.cmd.Wait()
}

func waitFor[T comparable](t *testing.T, f func() T) T {
	t.Helper()
	var none T
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if v := f(); v != none {
			return v
		}
	}
	t.Fatal("it did not come")
	return none
}

// got returns the events that rsyslog wrote, by id: the fields of the line.
func (r *rsyslog) got(t *testing.T) map[string][]string {
	t.Helper()
	f, err := os.Open(filepath.Join(r.dir, "got"))
	if err != nil {
		return nil
	}
	defer f.Close()
	lines := map[string][]string{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		fields := strings.SplitN(s.Text(), "\t", 6)
		if len(fields) != 6 {
			continue // torn by a kill of rsyslog
		}
		_, rest, _ := strings.Cut(fields[4], `id="`)
		id, _, _ := strings.Cut(rest, `"`)
		lines[id] = fields
	}
	return lines
}

// TestRsyslog: a real rsyslog receives the feed over TCP and TLS, with client certificates, and has each
// event unchanged.
func TestRsyslog(t *testing.T) {
	for _, name := range []string{"tcp", "tls"} {
		t.Run(name, func(t *testing.T) {
			o := Options{}
			var certs *exporttest.Certs
			if name == "tls" {
				c := exporttest.NewCerts(t)
				certs, o.TLS = &c, c.Client(t)
			}
			r := startRsyslog(t, certs)
			o.Addr = r.addr
			s := New(o)
			defer s.Close()
			items := exporttest.Items("r-1", 2000)
			items[17].Data = append([]byte(`{"long":"`), append(bytes.Repeat([]byte("x"), 100<<10), `"}`...)...)
			send(t, s, items)
			waitFor(t, func() bool { return len(r.got(t)) == len(items) })
			for id, line := range r.got(t) {
				want := items[seqOf(t, id)-1]
				sd := fmt.Sprintf(`[custody@32473 id=%q run=%q seq="%d" tenant="acme"]`, want.ID, want.Run, want.Seq)
				if line[0] != "110" || line[1] != "host1" || line[2] != "custody" || line[3] != string(want.Kind) || line[4] != sd || line[5] != string(want.Data) {
					t.Fatalf("rsyslog has %.300q of %+v", line, want)
				}
			}
		})
	}
}

func seqOf(t *testing.T, id string) (seq int) {
	t.Helper()
	if _, err := fmt.Sscanf(id, "r-1:%d", &seq); err != nil {
		t.Fatalf("id %q: %v", id, err)
	}
	return seq
}

func send(t *testing.T, s export.Sink, items []export.Item) {
	t.Helper()
	for len(items) > 0 {
		n := min(100, len(items))
		if err := s.Send(t.Context(), items[:n]); err != nil {
			t.Fatal(err)
		}
		items = items[n:]
	}
}

// TestRsyslogKilled: rsyslog is killed while it receives the feed, several times, and restarted. Messages that it had in
// memory are sent again.
func TestRsyslogKilled(t *testing.T) {
	r := startRsyslog(t, nil)
	src := &exporttest.Source{}
	src.Add(exporttest.Run("acme", "r-1", 3000, 100)...)
	s := New(Options{Addr: r.addr, Timeout: time.Second})
	defer s.Close()
	x, err := export.Open(export.Options{Name: "siem", Dir: t.TempDir(), Source: src, Format: export.JSON{}, Sink: slowly{s},
		Batch: export.Batch{Items: 50}, Retry: export.Retry{First: 5 * time.Millisecond, Max: 50 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- x.CatchUp(ctx) }()
	for range 3 {
		time.Sleep(150 * time.Millisecond)
		r.kill()
		r.start(t)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// Only the kernel has acknowledged the last batches; a kill after them is not part of this test.
	ids := src.IDs()
	waitFor(t, func() bool { return len(r.got(t)) >= len(ids) })
	for id := range r.got(t) {
		if !ids[id] {
			t.Errorf("rsyslog has %q, which is no event", id)
		}
	}
	if s := x.Stats(); s.Retried == 0 {
		t.Error("nothing was repeated: the kills did not hit")
	}
}

// slowly leaves time for the kills.
type slowly struct{ *Sink }

func (s slowly) Send(ctx context.Context, items []export.Item) error {
	time.Sleep(8 * time.Millisecond)
	return s.Sink.Send(ctx, items)
}
