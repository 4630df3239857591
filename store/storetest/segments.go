// Package storetest has the tests that every store passes (Suite), a slow store
// to compare with (Oracle), and generators of segments for tests of code that carries
// or stores them.
package storetest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Start is the start time of every generated run.
var start = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

// Start returns the start time of every generated run.
func Start() time.Time { return start }

// Events returns n events of a run that starts, works and ends: a run start, a
// step start, execs, files, outputs and exits, a step end and a run end. n must be at least 4.
func Events(n int) []audit.Event {
	at := func(i int) time.Time { return start.Add(time.Duration(i) * time.Millisecond) }
	code := 7
	events := []audit.Event{
		{Time: at(0), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{
			Phase: audit.PhaseStart, Project: "shop", Template: "base", Tier: "qemu-tcg", Mode: "strict", Steps: []string{"agent"}}},
		{Time: at(1), Observer: audit.Host, Kind: audit.KindStep, Step: "agent", Lifecycle: &audit.Lifecycle{
			Phase: audit.PhaseStart, Name: "agent", Argv: []audit.Text{"sh", "-c", "echo hi; exit 7"}}},
	}
	for i := 2; i < n-2; i++ {
		events = append(events, work(i, at(i)))
	}
	return append(events,
		audit.Event{Time: at(n - 2), Observer: audit.Host, Kind: audit.KindStep, Step: "agent", Lifecycle: &audit.Lifecycle{
			Phase: audit.PhaseEnd, Name: "agent", ExitCode: &code, Status: audit.StatusDone, DurationNS: int64(n-3) * 1e6}},
		audit.Event{Time: at(n - 1), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{
			Phase: audit.PhaseEnd, ExitCode: &code, Status: audit.StatusDone, DurationNS: int64(n-1) * 1e6}})
}

// work returns the i-th event between the starts and the ends.
func work(i int, t time.Time) audit.Event {
	pid := 100 + i/4
	proc := fmt.Sprintf("boot-s1-%d-%d", pid, i/4)
	e := audit.Event{Time: t, Observer: audit.Guest, Step: "agent"}
	switch i % 4 {
	case 0:
		e.Kind, e.Exec = audit.KindExec, &audit.Exec{Proc: proc, PID: pid, PPID: 99, Exe: "/usr/bin/git",
			Argv: []audit.Text{"git", "commit", "-m", audit.Text(fmt.Sprint("change ", i))}, Cwd: "/workspace"}
	case 1:
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
		e.Kind, e.File = audit.KindFile, &audit.File{Proc: proc, PID: pid, Op: audit.FileWrite,
			Path: audit.Text(fmt.Sprintf("/workspace/src/file%d.go", i)), Size: 4711, SHA256: fmt.Sprintf("%x", sum)}
	case 2:
		e.Kind, e.Output = audit.KindOutput, &audit.Output{Stream: "stdout", Offset: int64(i) * 20, Text: "one line of output\n"}
	case 3:
		e.Kind, e.Exit = audit.KindExit, &audit.Exit{Proc: proc, PID: pid, DurationNS: 3e6}
	}
	return e
}

// Frames encodes events as records of run with seqs from 1.
func Frames(run string, events []audit.Event) []store.Frame {
	frames := make([]store.Frame, len(events))
	for i, e := range events {
		frames[i] = Frame(run, uint64(i+1), e)
	}
	return frames
}

// Frame encodes one event.
func Frame(run string, seq uint64, e audit.Event) store.Frame {
	body, err := json.Marshal(audit.Record{V: audit.Version, Run: run, Seq: seq, Event: e})
	if err != nil {
		panic(err) // generated events always encode
	}
	f := store.Frame{Seq: seq, Body: body}
	binary.BigEndian.PutUint64(f.Salt[8:], seq)
	return f
}

// Segments splits frames into segments of at most size frames, each with a generated
// manifest, and adds a closing manifest without frames.
func Segments(run string, frames []store.Frame, size int) []store.Segment {
	var segs []store.Segment
	for len(frames) > 0 {
		n := min(size, len(frames))
		segs = append(segs, segment(run, uint64(len(segs)), frames[:n]))
		frames = frames[n:]
	}
	return append(segs, segment(run, uint64(len(segs)), nil))
}

// sealed returns the sealing time in a generated manifest.
func sealed(index uint64) time.Time { return start.Add(time.Hour + time.Duration(index)*time.Second) }

func segment(run string, index uint64, frames []store.Frame) store.Segment {
	seg := store.Segment{Run: run, Index: index, Frames: frames}
	seg.Root = store.RootOf(frames)
	if len(frames) > 0 {
		seg.First, seg.Last = frames[0].Seq, frames[len(frames)-1].Seq
	}
	seg.Manifest = fmt.Appendf(nil, "custody manifest of a test\n{\"run\":%q,\"segment\":%d,\"first\":%d,\"last\":%d,\"count\":%d,\"root\":\"%x\",\"sealed_at\":%q}\n",
		run, index, seg.First, seg.Last, len(frames), seg.Root, sealed(index).Format(time.RFC3339Nano))
	return seg
}

// Run returns a complete generated run of n records in segments of at most size.
func Run(id string, n, size int) []store.Segment {
	return Segments(id, Frames(id, Events(n)), size)
}
