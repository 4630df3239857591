package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/wal"
)

// accessed starts a server on a host that keeps nothing for longer than a millisecond, and has it write an access
// log of several segments, all of which are in the store.
func accessed(t *testing.T) (*server, string) {
	t.Helper()
	d := newDoor(t)
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\nretain: {age: 1ms}\n")
	s := d.serving()
	s.token = d.newToken("reader", "admin")
	for range 3 {
		if status, body := s.ask("GET", "runs", nil); status != 200 {
			t.Fatalf("%d: %s", status, body)
		}
		time.Sleep(1100 * time.Millisecond) // a segment is sealed after a second
	}
	names := d.logNames()
	if len(names) != 1 {
		t.Fatalf("logs: %v", names)
	}
	eventually(t, "in the store: three segments", func() bool {
		n, err := os.ReadFile(filepath.Join(d.home, "runs", names[0], "stored"))
		return err == nil && len(n) == 1 && n[0] >= '3'
	})
	return s, names[0]
}

// TestRetentionOfLiveRuns: retention leaves a live run alone, also when the host's key changes meanwhile.
func TestRetentionOfLiveRuns(t *testing.T) {
	t.Parallel()
	s, run := accessed(t)
	s.contains(s.must(0, "prune").stderr, "removed 0 segments")
	s.contains(s.must(2, "verify", run).stderr, "the run is live")
	s.must(0, "key", "rotate")
	s.contains(s.must(0, "prune").stderr, "removed 0 segments")
	s.must(2, "verify", run)
	s.ask("GET", "runs", nil)
	s.stop()
	s.must(0, "ship")
	s.must(0, "fsck")
	s.must(0, "verify", run)
	if removed := s.must(0, "prune").stderr; removed == "custody: removed 0 segments (0B)\n" {
		t.Errorf("after its end: %s", removed)
	}
	s.must(0, "fsck")
	s.must(0, "verify", run)
	bundle := filepath.Join(s.dir, "b.tar")
	s.must(0, "bundle", run, "-o", bundle)
	s.must(0, "verify", bundle)
}

// TestPrunedWhileLive: earlier versions removed segments of live runs. Such a host comes right by itself.
func TestPrunedWhileLive(t *testing.T) {
	t.Parallel()
	s, run := accessed(t)
	dir := filepath.Join(s.home, "runs", run)
	segments, err := wal.Segments(dir)
	if err != nil || len(segments) < 2 {
		t.Fatal(segments, err)
	}
	s.write(filepath.Join(dir, "pruned"), "")
	for _, file := range []string{segments[0], segments[0][:len(segments[0])-len(wal.SegmentSuffix)] + wal.LeavesSuffix} {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	s.contains(s.must(2, "verify", run).stderr, "the run is live")
	s.must(0, "key", "rotate")
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.must(0, "ship")
	s.must(0, "fsck")
	s.must(0, "verify", run)
}
