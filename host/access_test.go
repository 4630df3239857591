package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/store"
)

// TestAccessLog records many accesses concurrently. Each is in the log before Record returns, the log is a run that
// verifies, and the name `last` does not match it.
func TestAccessLog(t *testing.T) {
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := h.AccessLog(redact.New([]byte("0123456789abcdef0123456789abcdef")), "test")
	var looking sync.WaitGroup
	for i := range 20 {
		looking.Go(func() {
			access := audit.Access{Who: "ann", Role: "viewer", Action: "view", Route: "GET /api/v1/runs/{run}", About: "r-x", Verdict: audit.Allow}
			if i%2 == 1 {
				access.Verdict, access.Status = audit.Deny, 403
			}
			if err := log.Record(t.Context(), access); err != nil {
				t.Error(err)
			}
		})
	}
	looking.Wait()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := log.Record(t.Context(), audit.Access{Action: "view", Verdict: audit.Allow}); err == nil {
		t.Error("a closed log recorded an access")
	}
	st, err := h.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Run(t.Context(), "", store.Last); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("last: %v, want none", err)
	}
	runs, err := st.Runs(t.Context(), store.Filter{Class: store.Accesses})
	if err != nil || len(runs) != 1 || runs[0].Class() != store.Accesses || runs[0].Status != store.Sealed {
		t.Fatalf("access logs: %+v %v, want one that is sealed", runs, err)
	}
	if n := countAccesses(t, st, runs[0].ID); n != 20 {
		t.Errorf("the log has %d accesses, want 20", n)
	}
	e, done, err := h.Proofs().OfRun(t.Context(), "", runs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := h.Keys().Trusted()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Verify(t.Context(), e, proof.Trust{Keys: keys}); err != nil {
		t.Error(err)
	}
	if err := done(); err != nil {
		t.Error(err)
	}
}

func countAccesses(t *testing.T, st store.Store, run string) (n int) {
	t.Helper()
	for row, err := range st.Records(t.Context(), store.Query{Run: run, Kinds: []audit.Kind{audit.KindAccess}}) {
		var r audit.Record
		if err == nil {
			err = json.Unmarshal(row.Body, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Access.Who == "ann" && r.Observer == audit.Host {
			n++
		}
	}
	return n
}

// recordAndDie names the directory in which this test program, as a child, records an access and is killed.
const recordAndDie = "CUSTODY_TEST_RECORD_AND_DIE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(recordAndDie); dir != "" {
		h, err := host.Open(dir)
		if err == nil {
			err = h.AccessLog(redact.New([]byte("0123456789abcdef0123456789abcdef")), "test").
				Record(context.Background(), audit.Access{Who: "ann", Action: "view", Verdict: audit.Allow})
		}
		if err != nil {
			panic(err)
		}
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if do, dir, ok := strings.Cut(os.Getenv(keylessEnv), " "); ok {
		if err := keyless(do, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestAccessLogKilled: Tidy closes the access log of a killed process.
func TestAccessLogKilled(t *testing.T) {
	dir := t.TempDir()
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), recordAndDie+"="+dir)
	if out, err := child.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child: %v, want that it was killed\n%s", err, out)
	}
	var warnings []string
	if err := h.Tidy(context.WithoutCancel(t.Context()), func(text string) { warnings = append(warnings, text) }); err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], store.AccessPrefix) {
		t.Errorf("warnings %q, want the closing of one access log", warnings)
	}
}

// TestAccessLogFull: on a full disk, accesses fail in bounded time, also concurrent ones. When there is space again, one
// log is enough for all of them.
func TestAccessLogFull(t *testing.T) {
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Keys().Signing(); err != nil {
		t.Fatal(err)
	}
	runs := filepath.Join(h.Dir, "runs")
	if err := unix.Mount("custody-test", runs, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(runs, 0); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(runs, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) && err != nil {
		t.Fatal(err)
	}
	log := h.AccessLog(redact.New([]byte("0123456789abcdef0123456789abcdef")), "test")
	access := audit.Access{Who: "ann", Action: "view", Verdict: audit.Allow}
	var looking sync.WaitGroup
	refused := make(chan error, 20)
	for range cap(refused) {
		looking.Go(func() { refused <- log.Record(t.Context(), access) })
	}
	stuck := time.AfterFunc(time.Minute, func() { os.Remove(filler) }) // so that a failure ends
	looking.Wait()
	if !stuck.Stop() {
		t.Error("accesses waited for the disk")
	}
	for range cap(refused) {
		if err := <-refused; err == nil {
			t.Error("an access was recorded on a full disk")
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := log.Record(t.Context(), access); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if logs, _ := filepath.Glob(filepath.Join(runs, store.AccessPrefix+"*")); len(logs) != 1 {
		t.Errorf("%d access logs, want one", len(logs))
	}
}
