package outside

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/storetest"
)

// testWorker describes the process as one of the test's program.
func testWorker() (privsep.Worker, error) {
	d, err := describe()
	d.Binds = append(d.Binds, privseptest.Worker("").Binds...) // what the program of a test may need
	return d, err
}

// newStore opens a database in the process.
func newStore(t *testing.T, dsn string) (*storeProcess, store.Store) {
	t.Helper()
	p := newStoreProcess(testWorker, dsn, clickhouse.Options{Settle: time.Second})
	s, err := p.store(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return p, s
}

// TestStore: a ClickHouse server is spoken to by the process, whose uid is not root's.
func TestStore(t *testing.T) {
	t.Parallel()
	p, s := newStore(t, clickhousetest.Start(t).Fresh())
	segs := storetest.Run("r-1", 3000, 700)
	must(t, s.Ingest(t.Context(), segs...))
	must(t, s.Ingest(t.Context(), segs...))
	storetest.WantRecords(t, s, "r-1", segs)
	r, err := s.Run(t.Context(), "", "r-1")
	if err != nil || r.Events != 3000 {
		t.Errorf("the run is %+v, %v", r, err)
	}
	if _, err := s.Run(t.Context(), "", "r-2"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another run: %v", err)
	}
	other := segs[0]
	other.Frames = storetest.Run("r-1", 700, 700)[0].Frames
	other.Frames[3].Salt[0]++
	if err := s.Ingest(t.Context(), other); !errors.Is(err, store.ErrConflict) {
		t.Errorf("other records with the same seqs: %v", err)
	}
	if p.open.UID() == 0 {
		t.Error("the process is root's")
	}
}

// TestStoreKilled: what a process that is killed in the middle of a batch has not stored, the transport gives to the next one.
func TestStoreKilled(t *testing.T) {
	t.Parallel()
	p, s := newStore(t, clickhousetest.Start(t).Fresh())
	transport := ship.Start(t.Context(), s)
	defer transport.Close()
	var want []store.Segment
	for i := range 6 {
		segs := storetest.Run(fmt.Sprintf("r-%d", i), 2000, 100)
		want = append(want, segs...)
		for n, seg := range segs {
			must(t, transport.Publish(t.Context(), seg))
			if n == len(segs)/2 {
				p.mu.Lock()
				if p.open != nil { // nil: the next one is being started
					must(t, p.open.Kill())
				}
				p.mu.Unlock()
			}
		}
	}
	must(t, transport.Drain(t.Context()))
	for i := range 6 {
		storetest.WantRecords(t, s, fmt.Sprintf("r-%d", i), want)
	}
}

// TestStoreRefused: the errors of opening a store have their causes and remedies, and leave no process.
func TestStoreRefused(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"clickhouse://127.0.0.1:1/custody":                                   "connection refused",
		"clickhouse://u:secretword@127.0.0.1:1/custody?ca=/nowhere/ca.pem":   "/nowhere/ca.pem",
		"clickhouse://u:secretword@127.0.0.1:1/custody?dial_timeout=forever": "dial",
	} {
		p := newStoreProcess(testWorker, dsn, clickhouse.Options{})
		_, err := p.store(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secretword") {
			t.Errorf("%s: %v", dsn, err)
		}
		if p.open != nil {
			t.Errorf("%s: a process is left", dsn)
		}
	}
}

// TestStoreNotOpen: without an open store there is nothing to ask, and a process opens one once.
func TestStoreNotOpen(t *testing.T) {
	t.Parallel()
	s := &storeServer{}
	conn := privseptest.Connect(t, s.handlers())
	for name := range s.handlers() {
		if _, err := conn.Call(t.Context(), name, none{}, nil); err == nil {
			t.Errorf("%s succeeds without a store", name)
		}
	}
	s.used = true
	f, err := privsep.Memory("store", database{})
	must(t, err)
	defer f.Close()
	if _, err := conn.Call(t.Context(), callStore, within{}, nil, f); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second store: %v", err)
	}
}

// TestStoreFiles: the process gets the certificates that a DSN names.
func TestStoreFiles(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/ca.pem"
	must(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	p := newStoreProcess(testWorker, "clickhouse://127.0.0.1:1/custody?secure=true&ca="+file, clickhouse.Options{})
	if _, err := p.store(t.Context()); err == nil || !strings.Contains(err.Error(), "no certificate of an authority") {
		t.Errorf("the process says: %v", err)
	}
}
