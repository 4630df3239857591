package sink_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gosyslog "github.com/leodido/go-syslog/v4"
	"github.com/leodido/go-syslog/v4/octetcounting"
	"github.com/leodido/go-syslog/v4/rfc5424"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/export/sink"
	"github.com/custody-project/custody/store/sqlite"
)

const childEnv = "CUSTODY_TEST_EXPORT" // directory, and address of a syslog receiver

// TestMain also runs the test binary as a child process, with childEnv, that exports to two sinks
// until its input ends, and then until it has caught up.
func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		dir, addr, _ := strings.Cut(what, " ")
		if err := child(dir, addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(dir, addr string) error {
	st, err := sqlite.OpenReader(context.Background(), filepath.Join(dir, "store.db"))
	if err != nil {
		return err
	}
	defer st.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { io.Copy(io.Discard, os.Stdin); cancel() }() // until the parent closes it, or dies
	errs := make(chan error, 2)
	for _, t := range []sink.Target{
		{Name: "file", To: "file:" + filepath.Join(dir, "out", "events.ndjson"), Format: "json", BatchEvents: 20, RotateBytes: 20 << 10, Gzip: true},
		{Name: "syslog", To: "syslog+tcp://" + addr, Format: "json", BatchEvents: 20},
	} {
		go func() { errs <- both(ctx, st, dir, t) }()
	}
	err = <-errs
	if other := <-errs; err == nil {
		err = other
	}
	return err
}

// both follows until ctx is done, and catches up then.
func both(ctx context.Context, st export.Source, dir string, t sink.Target) error {
	s, err := sink.Open(ctx, t)
	if err != nil {
		return err
	}
	defer s.Close()
	o, err := t.Options()
	if err != nil {
		return err
	}
	if o.Format, err = t.Encoding(); err != nil {
		return err
	}
	o.Dir, o.Source, o.Sink, o.Poll = filepath.Join(dir, "exporters"), st, s, 5*time.Millisecond
	o.Retry = export.Retry{First: 5 * time.Millisecond, Max: 50 * time.Millisecond}
	x, err := export.Open(o)
	if err != nil {
		return err
	}
	defer x.Close()
	if err := x.Follow(ctx); err != nil {
		return err
	}
	return x.CatchUp(context.Background())
}

// listener receives syslog messages, and stores their ids in order of arrival.
type listener struct {
	net.Listener
	wait sync.WaitGroup
	mu   sync.Mutex // guards ids
	ids  []string
}

func listen(t *testing.T) *listener {
	t.Helper()
	nl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{Listener: nl}
	l.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			l.wait.Go(func() { l.read(c) })
		}
	})
	return l
}

// read reads complete messages; a killed sender leaves a torn one at the end.
func (l *listener) read(c net.Conn) {
	defer c.Close()
	octetcounting.NewParser(gosyslog.WithListener(func(r *gosyslog.Result) {
		if m, ok := r.Message.(*rfc5424.SyslogMessage); ok && r.Error == nil && m.StructuredData != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.ids = append(l.ids, (*m.StructuredData)["custody@32473"]["id"])
		}
	})).Parse(c)
}

// TestKilled kills an exporter at random moments while runs are stored. Each sink has each event
// at least once, in its run's order, and each line of the files is complete.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	st, err := sqlite.Open(t.Context(), filepath.Join(dir, "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ids := map[string]bool{}
	l := listen(t)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	const rounds = 12
	for round := range rounds {
		run := fmt.Sprint("r-", round)
		cmd, in := startChild(t, dir, l.Addr().String())
		for _, seg := range exporttest.Run("acme", run, 300, 20) {
			if err := st.Ingest(t.Context(), seg); err != nil {
				t.Fatal(err)
			}
			for _, f := range seg.Frames {
				ids[fmt.Sprintf("%s:%d", run, f.Seq)] = true
			}
		}
		if round == rounds-1 {
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			break
		}
		time.Sleep(time.Duration(random.IntN(120)) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
	}
	l.Close()
	l.wait.Wait()
	wantAll(t, "syslog", ids, l.ids)
	wantAll(t, "file", ids, fileIDs(t, filepath.Join(dir, "out")))
}

func startChild(t *testing.T, dir, addr string) (*exec.Cmd, io.Closer) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir+" "+addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, in
}

func wantAll(t *testing.T, where string, ids map[string]bool, got []string) {
	t.Helper()
	seen, last := map[string]bool{}, map[string]int{}
	for _, id := range got {
		if !ids[id] {
			t.Fatalf("%s has %q, which is no event", where, id)
		}
		run, number, _ := strings.Cut(id, ":")
		var seq int
		fmt.Sscan(number, &seq)
		if !seen[id] && seq < last[run] {
			t.Errorf("%s: %s came first behind seq %d", where, id, last[run])
		}
		seen[id], last[run] = true, max(last[run], seq)
	}
	if len(seen) != len(ids) {
		t.Errorf("%s has %d of %d events", where, len(seen), len(ids))
	}
	t.Logf("%s: %d events, %d of them repeats", where, len(got), len(got)-len(seen))
}

// fileIDs returns the written ids, oldest first: every line must be a complete record.
func fileIDs(t *testing.T, dir string) (ids []string) {
	t.Helper()
	aside, err := filepath.Glob(filepath.Join(dir, "events-*"))
	if err != nil || len(aside) == 0 {
		t.Fatal("no file was set aside", err)
	}
	for _, path := range append(aside, filepath.Join(dir, "events.ndjson")) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
			if b, err = io.ReadAll(z); err != nil {
				t.Fatal(path, err)
			}
		}
		if len(b) > 0 && b[len(b)-1] != '\n' {
			t.Errorf("%s ends torn", path)
		}
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			var r struct {
				Run string
				Seq uint64
			}
			if err := json.Unmarshal(s.Bytes(), &r); err != nil {
				t.Fatalf("%s: %q: %v", path, s.Text(), err)
			}
			ids = append(ids, fmt.Sprintf("%s:%d", r.Run, r.Seq))
		}
	}
	return ids
}
