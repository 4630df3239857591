package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

const childEnv = "CUSTODY_TEST_INGEST" // "path run"

// TestMain also runs the test binary's child processes: with one of these variables it
// does one operation on a store.
func TestMain(m *testing.M) {
	for env, do := range map[string]func(string) error{childEnv: childIngest, migrateEnv: childOpen, eraseEnv: childErase} {
		if what := os.Getenv(env); what != "" {
			if err := do(what); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

const childRecords, childSegment = 20000, 500

// childIngest ingests one run, segment by segment, and reports each on its output.
func childIngest(what string) error {
	path, run, _ := strings.Cut(what, " ")
	s, err := Open(context.Background(), path)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, seg := range storetest.Run(run, childRecords, childSegment) {
		if err := s.Ingest(context.Background(), seg); err != nil {
			return err
		}
		fmt.Println(seg.Last)
	}
	return nil
}

func startChild(t *testing.T, path, run string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path+" "+run)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func TestTwoProcessesAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	runs := []string{"r-a", "r-b"}
	var children []*exec.Cmd
	for _, run := range runs {
		cmd, out := startChild(t, path, run)
		children = append(children, cmd)
		go func() { // ends with the child's output
			for out.Scan() {
			}
		}()
	}
	for _, cmd := range children {
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	s := open1(t, path)
	for _, run := range runs {
		storetest.WantRecords(t, s, run, storetest.Run(run, childRecords, childSegment))
	}
}

// TestKilledWhileIngesting kills a child during its work, several
// times, and ingests its log again: every record is stored exactly once, and what
// the child had acknowledged was stored before.
func TestKilledWhileIngesting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	want := storetest.Run("r-k", childRecords, childSegment)
	for _, segments := range []int{1, 5, 12} {
		cmd, out := startChild(t, path, "r-k")
		var acknowledged uint64
		for i := 0; i < segments && out.Scan(); i++ {
			fmt.Sscan(out.Text(), &acknowledged)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		wantPrefix(t, path, acknowledged)
	}
	s := open1(t, path)
	storetest.Ingest(t, s, want)
	storetest.WantRecords(t, s, "r-k", want)
	if r, err := s.Run(t.Context(), "", "r-k"); err != nil || r.Events != childRecords || r.Status != store.Sealed {
		t.Errorf("summary %+v, %v", r, err)
	}
}

// wantPrefix checks that a reader finds complete segments, and at least those up to acknowledged.
func wantPrefix(t *testing.T, path string, acknowledged uint64) {
	t.Helper()
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := uint64(len(storetest.Collect(t, r.Records(t.Context(), store.Query{Run: "r-k"}))))
	if n < acknowledged || n%childSegment != 0 || acknowledged == 0 {
		t.Fatalf("%d records after the kill, %d were acknowledged", n, acknowledged)
	}
	run, err := r.Run(t.Context(), "", "r-k")
	if err != nil || run.Events != n || run.LastSeq != n {
		t.Fatalf("summary counts %d events, the store has %d: %v", run.Events, n, err)
	}
}
