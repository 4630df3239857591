package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
)

const secret = "hunter2-correct-horse"

// memory is a log in memory that records what was synced.
type memory struct {
	bodies []string
	synced []uint64
	fail   error
}

func (m *memory) Append(_ context.Context, s redact.Sealed) (uint64, error) {
	if m.fail != nil {
		return 0, m.fail
	}
	m.bodies = append(m.bodies, string(s.Bytes()))
	return uint64(len(m.bodies)), nil
}

func (m *memory) Sync(_ context.Context, seq uint64) error {
	m.synced = append(m.synced, seq)
	return m.fail
}

func newRecorder(t *testing.T) (*audit.Recorder, *memory) {
	t.Helper()
	r := redact.New([]byte("0123456789abcdef0123456789abcdef"))
	if err := r.Add("token", []byte(secret)); err != nil {
		t.Fatal(err)
	}
	m := &memory{}
	return audit.NewRecorder(m, r), m
}

func (m *memory) last(t *testing.T) audit.Event {
	t.Helper()
	var ev audit.Event
	if err := json.Unmarshal([]byte(m.bodies[len(m.bodies)-1]), &ev); err != nil {
		t.Fatal(err)
	}
	return ev
}

func TestRecorderRedacts(t *testing.T) {
	rec, log := newRecorder(t)
	ctx := context.Background()
	exec := func(truncated bool, argv ...audit.Text) audit.Event {
		return audit.Event{Observer: audit.Guest, Kind: audit.KindExec, Exec: &audit.Exec{Exe: "/bin/sh", Argv: argv, Truncated: truncated}}
	}
	for name, ev := range map[string]audit.Event{
		"argv":   exec(false, "curl", "-H", "Authorization: "+secret),
		"cut":    exec(true, "curl", "-H", audit.Text("Authorization: "+secret[:12])),
		"output": {Observer: audit.Guest, Kind: audit.KindOutput, Output: &audit.Output{Text: secret + "\n"}},
		"path":   {Observer: audit.Guest, Kind: audit.KindFile, File: &audit.File{Op: audit.FileWrite, Path: "/tmp/" + secret}},
	} {
		before := time.Now()
		if _, err := rec.Record(ctx, ev); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if body := log.bodies[len(log.bodies)-1]; strings.Contains(body, secret[:12]) {
			t.Errorf("%s: the record holds the secret: %s", name, body)
		}
		if at := log.last(t).Time; at.Before(before.Add(-time.Second)) || at.Location() != time.UTC {
			t.Errorf("%s: time %v", name, at)
		}
	}
	if !slices.Equal(log.synced, []uint64{1, 2, 3, 4}) {
		t.Errorf("synced %v", log.synced)
	}
	if seq, err := rec.Post(ctx, exec(false, "true")); seq != 5 || err != nil || len(log.synced) != 4 {
		t.Errorf("post: seq %d, %v, synced %v", seq, err, log.synced)
	}
}

func TestRecorderRefuses(t *testing.T) {
	rec, log := newRecorder(t)
	vm, exit := &audit.VM{Op: "boot"}, &audit.Exit{}
	for name, ev := range map[string]audit.Event{
		"no observer":    {Kind: audit.KindVM, VM: vm},
		"no kind":        {Observer: audit.Host},
		"unknown kind":   {Observer: audit.Host, Kind: "weather"},
		"no payload":     {Observer: audit.Host, Kind: audit.KindVM},
		"other payload":  {Observer: audit.Host, Kind: audit.KindVM, Exit: exit},
		"second payload": {Observer: audit.Host, Kind: audit.KindVM, VM: vm, Exit: exit},
	} {
		if _, err := rec.Record(context.Background(), ev); !errors.Is(err, audit.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(log.bodies) > 0 {
		t.Errorf("recorded: %v", log.bodies)
	}
	for _, kind := range []audit.Kind{audit.KindRun, audit.KindStep} {
		ev := audit.Event{Observer: audit.Host, Kind: kind, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart}}
		if _, err := rec.Record(context.Background(), ev); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestRecorderWithholds: a gap replaces each event that cannot be recorded, without its contents.
func TestRecorderWithholds(t *testing.T) {
	rec, log := newRecorder(t)
	ctx := context.Background()
	for name, ev := range map[string]audit.Event{
		"a time that JSON cannot hold": {Time: time.Date(1<<20, 1, 1, 0, 0, 0, 0, time.UTC), Observer: audit.Guest,
			Kind: audit.KindOutput, Output: &audit.Output{Text: "x"}},
		"too long": {Observer: audit.Guest, Kind: audit.KindOutput, Output: &audit.Output{Text: audit.Text(strings.Repeat("x", 5<<20))}},
	} {
		seq, err := rec.Record(ctx, ev)
		if !errors.Is(err, audit.ErrWithheld) || seq != uint64(len(log.bodies)) || !slices.Contains(log.synced, seq) {
			t.Errorf("%s: seq %d, %v, synced %v", name, seq, err, log.synced)
			continue
		}
		got := log.last(t)
		if got.Kind != audit.KindGap || got.Gap.Count != 1 || got.Gap.What != "output" || got.Observer != audit.Host {
			t.Errorf("%s: %+v", name, got)
		}
	}
	log.fail = errors.New("disk")
	if _, err := rec.Record(ctx, audit.Event{Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{}}); !errors.Is(err, log.fail) {
		t.Errorf("log fails: %v", err)
	}
}
