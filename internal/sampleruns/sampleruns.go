// Package sampleruns makes homes with runs for tests: with the real log, proofs and store, and without a VM.
// What stands in their records is made up, and as hostile or as long as a test wants it.
package sampleruns

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
)

// Begin is the time of the first record of the runs that are made here.
var Begin = time.Date(2026, 11, 20, 14, 31, 0, 0, time.UTC)

// Record makes a run of the events in the home below dir, which is made if need be, and returns its name.
// The run is sealed, in the store and verifies.
func Record(t testing.TB, dir string, events iter.Seq[audit.Event]) string {
	t.Helper()
	name, err := Write(context.Background(), dir, events)
	if err != nil {
		t.Fatal("make a run:", err)
	}
	return name
}

// Write is Record for a process that is no test.
func Write(ctx context.Context, dir string, events iter.Seq[audit.Event]) (string, error) {
	h, err := host.Open(dir)
	if err != nil {
		return "", err
	}
	key, err := h.TagKey()
	if err != nil {
		return "", err
	}
	run, err := h.Begin(ctx, host.RunOptions{ID: host.NewRunID(time.Now()), Mode: wal.Strict, Redactor: redact.New(key)})
	if err != nil {
		return "", err
	}
	run.Ship(ctx)
	err = post(ctx, run, events)
	whole, stored := run.Close(ctx, wal.Sealed)
	return run.ID, errors.Join(err, whole, stored)
}

// post records the events without waiting for each of them.
func post(ctx context.Context, run *host.Run, events iter.Seq[audit.Event]) error {
	n := 0
	for e := range events {
		n++
		if _, err := run.Post(ctx, e); err != nil {
			return fmt.Errorf("event %d, %s: %w", n, e.Kind, err)
		}
	}
	return run.Flush(ctx)
}

// script writes events that follow each other.
type script struct {
	yield func(audit.Event) bool
	at    time.Time
	over  bool // no one wants more
}

// say writes an event some time after the one before it.
func (s *script) say(after time.Duration, e audit.Event) {
	if s.over {
		return
	}
	s.at = s.at.Add(after)
	e.Time = s.at
	s.over = !s.yield(e)
}

func (s *script) host(after time.Duration, kind audit.Kind, step string, e audit.Event) {
	e.Observer, e.Kind, e.Step = audit.Host, kind, step
	s.say(after, e)
}

func (s *script) guest(after time.Duration, kind audit.Kind, step string, e audit.Event) {
	e.Observer, e.Kind, e.Step = audit.Guest, kind, step
	s.say(after, e)
}

// begin writes the run's start, and its steps'.
func (s *script) begin(project string, steps ...string) {
	s.host(0, audit.KindRun, "", audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Project: project, Template: "base",
		TemplateDigest: digest("template"), PolicyDigest: digest("policy"), Tier: "qemu-tcg", TierNote: "software emulation: QEMU's own project gives it no security promise",
		Mode: "strict", Version: "test", Host: "custody.example", Steps: steps}})
	s.host(time.Millisecond, audit.KindVM, "", audit.Event{VM: &audit.VM{Op: "restore", Driver: "qemu", Tier: "qemu-tcg", DurationNS: 37e6}})
	s.host(time.Millisecond, audit.KindPolicy, "", audit.Event{Policy: &audit.Policy{Generation: 1, Digest: digest("policy"), Rules: []audit.Text{"github.com tcp/443", "*.pypi.org tcp/443"}}})
}

// end writes the end of the run.
func (s *script) end() {
	code := 0
	s.host(time.Millisecond, audit.KindRun, "", audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusDone, ExitCode: &code, DurationNS: int64(s.at.Sub(Begin))}})
}

func (s *script) stepStart(name string, argv ...audit.Text) {
	s.host(time.Millisecond, audit.KindStep, name, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Name: name, Argv: argv}})
}

func (s *script) stepEnd(name string) {
	code := 0
	s.host(time.Millisecond, audit.KindStep, name, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Name: name, Status: audit.StatusDone, ExitCode: &code, DurationNS: 1e9}})
}

// events has f write a run's events.
func events(f func(s *script)) iter.Seq[audit.Event] {
	return func(yield func(audit.Event) bool) { f(&script{yield: yield, at: Begin}) }
}
