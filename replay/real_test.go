package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// realRun is the record of a run in a VM, on the simulated internet: a Python
// program that connects in every honest way to what is allowed and what is not, and
// breaks off, binds ports, forks, sends messages, and asks for names.
func realRun(t testing.TB) []store.Frame {
	t.Helper()
	packed, err := os.ReadFile("testdata/network.ndjson.gz")
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var frames []store.Frame
	lines := bufio.NewScanner(unpacked)
	for lines.Scan() {
		frames = append(frames, store.Frame{Seq: uint64(len(frames) + 1), Body: bytes.Clone(lines.Bytes())})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return frames
}

// TestRealRun: an honest run has no disagreements, and its states are the slow ones.
func TestRealRun(t *testing.T) {
	frames := realRun(t)
	run := summary(frames)
	run.ID = "r-01m7ytve2vh3jay6ngh1r6v05z"
	s, err := Read(run, rowsOf(frames))
	if err != nil {
		t.Fatal(err)
	}
	if f := s.Findings().All(); len(f) != 0 {
		t.Errorf("findings: %s", toJSON(t, f))
	}
	states := map[string]int{}
	for _, c := range s.Connections().All() {
		states[c.State]++
		if c.Observer == audit.Host && c.Proto == "tcp" && c.By == nil {
			t.Errorf("nobody made %s", toJSON(t, c))
		}
	}
	if states["deny"] < 100 || states["close"] != 4 || states["refused"] != 2 || states["attempt"] == 0 {
		t.Errorf("connections: %v", states)
	}
	checkStates(t, "a real run", frames, rand.New(rand.NewPCG(9, 10)))
}

// TestLieInRealRun: a guest that says another address of one connection is found out.
func TestLieInRealRun(t *testing.T) {
	frames := realRun(t)
	var rows []store.Row
	at := uint64(0)
	for _, row := range benchRows(frames) {
		if r, err := decode(row); at == 0 && err == nil && r.Observer == audit.Guest && r.Flow != nil && r.Flow.DstIP == "93.184.216.37" {
			at = row.Seq
			row.Body = bytes.Replace(row.Body, []byte("93.184.216.37"), []byte("93.184.216.38"), 1)
		}
		rows = append(rows, row)
	}
	found, err := Disagreements(asRows(rows))
	if err != nil || at == 0 {
		t.Fatal(at, err)
	}
	rules := map[audit.Rule]int{}
	for _, f := range found {
		rules[f.Rule]++
	}
	if rules[audit.RuleFlowUnclaimed] != 0 || rules[audit.RuleConnectUnseen] != 1 { // the host names the process itself: its own record had the word
		t.Errorf("found %s", toJSON(t, found))
	}
}
