package export_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// follow runs an exporter until the test ends, or stop is called.
func follow(t testing.TB, o export.Options) (x *export.Exporter, stop func()) {
	t.Helper()
	x, err := export.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- x.Follow(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-done, x.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return x, stop
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

// hanging blocks until it is released.
type hanging struct {
	receiver
	free chan struct{}
}

func (h *hanging) Send(ctx context.Context, items []export.Item) error {
	select {
	case <-h.free:
		return h.receiver.Send(ctx, items)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestBackPressure: while one sink blocks, its exporter keeps a bounded amount in memory, and others continue.
func TestBackPressure(t *testing.T) {
	src, slow, fast := &exporttest.Source{}, &hanging{free: make(chan struct{})}, &receiver{}
	o := options(t, src, slow)
	o.Batch, o.Format = export.Batch{Items: 1000, Bytes: 256 << 10}, padded{}
	x, _ := follow(t, o)
	fo := options(t, src, fast)
	fo.Name = "fast"
	follow(t, fo)
	for r := range 10 {
		src.Add(exporttest.Run("acme", fmt.Sprint("r-", r), 2000, 500)...)
	}
	eventually(t, "the fast sink has everything", func() bool { return len(fast.ids()) == 20000 })
	before := heap()
	time.Sleep(200 * time.Millisecond)
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("the memory grew by %d bytes while the sink hung", grown)
	}
	// 20,000 events of 10 kB are 200 MB: the exporter keeps a few batches.
	if used := heap(); used > 120<<20 {
		t.Errorf("%d bytes are in use", used)
	}
	if b, err := x.Behind(t.Context()); b.Segments != 40 || b.Records != 20000 || b.Lag(time.Now()) <= 0 || x.Stats().Sent > 0 || err != nil {
		t.Errorf("%+v, %v", b, err)
	}
	close(slow.free)
	slow.fail = func(items []export.Item) error { // keeps ids only
		for i := range items {
			items[i].Data = nil
		}
		return nil
	}
	eventually(t, "the slow sink has everything", func() bool { return len(slow.ids()) == 20000 })
	wantOrder(t, slow.got)
}

// padded makes events large.
type padded struct{}

func (padded) Name() string { return "padded" }

func (padded) Append(dst []byte, e export.Event) ([]byte, error) {
	return append(append(dst, e.Body...), strings.Repeat(" ", 10<<10)...), nil
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestLocked: of two exporters with one name the second fails, with an error that names the remedy.
func TestLocked(t *testing.T) {
	o := options(t, &exporttest.Source{}, &receiver{})
	_, stop := follow(t, o)
	_, err := export.Open(o)
	var locked *export.LockedError
	if !errors.As(err, &locked) || locked.Owner != fmt.Sprint(os.Getpid()) || locked.Hint() == "" {
		t.Fatal(err)
	}
	stop()
	follow(t, o)
	o.Name = "../x"
	if _, err := export.Open(o); !errors.Is(err, export.ErrName) {
		t.Error(err)
	}
}

func TestCursorThatIsNone(t *testing.T) {
	o := options(t, &exporttest.Source{}, &receiver{})
	for _, text := range []string{"", "{", `{"v":2,"feed":"1"}`, "\x00\x00"} {
		if err := os.WriteFile(filepath.Join(o.Dir, "siem.cursor"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := export.Open(o)
		var broken *export.CursorError
		if !errors.As(err, &broken) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestOrderOfSegments: segments that the store ingested in another order are exported in order.
func TestOrderOfSegments(t *testing.T) {
	src, sink := &exporttest.Source{}, &receiver{}
	a, b := exporttest.Run("acme", "r-1", 100, 10), exporttest.Run("acme", "r-2", 30, 10)
	src.Add(a[0], a[2], a[1], b[0], a[5], a[4], a[3])
	x, _ := follow(t, options(t, src, sink))
	eventually(t, "what there is, is there", func() bool { return len(sink.ids()) == 70 })
	src.Add(a[7], b[2]) // their predecessors are ingested later
	time.Sleep(50 * time.Millisecond)
	if len(sink.ids()) != 70 {
		t.Error("a segment did not wait for the one before it")
	}
	src.Add(a[6], b[1], a[9])
	eventually(t, "the late ones are there", func() bool { return len(sink.ids()) == 110 })
	eventually(t, "one whose predecessor never comes is there as well", func() bool { return len(sink.ids()) == 120 })
	wantOrder(t, sink.got)
	eventually(t, "nothing is behind", func() bool {
		b, err := x.Behind(t.Context())
		return err == nil && b == export.Behind{}
	})
}

// keeper is a format that collects events.
type keeper struct{ events *[]export.Event }

func (k keeper) Name() string { return "keeper" }

func (k keeper) Append(dst []byte, e export.Event) ([]byte, error) {
	*k.events = append(*k.events, e)
	return append(dst, e.ID()...), nil
}

// TestContextAfterRestart: the context of an event is the same whether the exporter
// has read the run from the start or begins in the middle.
func TestContextAfterRestart(t *testing.T) {
	parent := audit.Exec{Proc: "p1", PID: 10, Exe: "/bin/sh", Argv: []audit.Text{"sh"}}
	again := parent
	again.Exe = "/bin/bash"
	child := audit.Exec{Proc: "p2", Parent: "p1", PID: 11, Exe: "/bin/cat"}
	events := storetest.Events(4)[:2]
	add := func(e audit.Event) { e.Time, e.Observer = storetest.Start(), audit.Guest; events = append(events, e) }
	add(audit.Event{Kind: audit.KindExec, Exec: &parent})
	add(audit.Event{Kind: audit.KindExec, Exec: &child})
	add(audit.Event{Kind: audit.KindExec, Exec: &again})
	for range 5 {
		add(audit.Event{Kind: audit.KindFile, File: &audit.File{Proc: "p2", Op: audit.FileWrite, Path: "/x"}})
		add(audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{Proc: "p9", Parent: "p2", State: audit.FlowAttempt}})
		add(audit.Event{Kind: audit.KindExit, Exit: &audit.Exit{Proc: "p1"}})
	}
	src := &exporttest.Source{}
	src.Add(storetest.Segments("r-1", storetest.Frames("r-1", events), 3)...)

	var whole, parts []export.Event
	o := options(t, src, &receiver{})
	o.Format = keeper{&whole}
	catchUp(t, o)
	for _, e := range whole[5:] {
		switch {
		case e.Start == nil || e.Start.Project != "shop":
			t.Errorf("%s has no start", e.ID())
		case e.Kind == audit.KindFile && (e.Exec == nil || e.Exec.Exe != "/bin/cat" || e.Parent == nil || e.Parent.Exe != "/bin/bash"),
			e.Kind == audit.KindFlow && (e.Exec != nil || e.Parent == nil || e.Parent.Exe != "/bin/cat"),
			e.Kind == audit.KindExit && (e.Exec == nil || e.Exec.Exe != "/bin/bash" || e.Parent != nil):
			t.Errorf("%s: exec %+v, parent %+v", e.ID(), e.Exec, e.Parent)
		}
	}
	// Each segment with a new exporter, which begins where the previous one ended.
	po := options(t, src, nil)
	po.Format, po.Batch = keeper{&parts}, export.Batch{Items: 1}
	for range 100 {
		r := &receiver{}
		r.fail = func([]export.Item) error {
			if len(r.got) >= 1 {
				return errors.New("enough")
			}
			return nil
		}
		po.Sink = r
		x, err := export.Open(po)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		err = x.CatchUp(ctx)
		cancel()
		x.Close()
		if err == nil {
			break
		}
	}
	for _, e := range parts {
		if want := whole[e.Seq-1]; !reflect.DeepEqual(e, want) {
			t.Errorf("event %d after a restart: %+v, want %+v", e.Seq, e, want)
		}
	}
	if c, err := export.ReadCursor(po.Dir, "siem"); err != nil || c.Feed == "" {
		t.Errorf("cursor %+v, %v", c, err)
	}
}

// TestDeadAndRedrive: refused events are counted, kept within bounds, and can be sent again.
func TestDeadAndRedrive(t *testing.T) {
	src, sink := &exporttest.Source{}, &receiver{}
	src.Add(exporttest.Run("acme", "r-1", 200, 50)...)
	bad := map[string]bool{"r-1:7": true, "r-1:8": true, "r-1:150": true}
	sink.fail = func(items []export.Item) error {
		for _, i := range items {
			if bad[i.ID] {
				return &export.Refused{Reason: "HTTP 400: mapping"}
			}
		}
		return nil
	}
	o := options(t, src, sink)
	if s := catchUp(t, o); s.Dead != 3 || s.DeadKept != 3 || s.Sent != 197 {
		t.Fatalf("%+v", s)
	}
	dead, err := export.OpenDead(o.Dir, o.Name, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for l, err := range dead.Letters() {
		if err != nil || !strings.Contains(l.Reason, "mapping") || !json.Valid([]byte(l.Data)) || l.Tenant != "acme" {
			t.Errorf("%+v, %v", l, err)
		}
		ids = append(ids, l.ID)
	}
	if !slices.Equal(ids, []string{"r-1:7", "r-1:8", "r-1:150"}) {
		t.Errorf("dead letters %q", ids)
	}
	delete(bad, "r-1:7")
	delete(bad, "r-1:150")
	src.Erase("r-1", 150) // concurrently: the repeated event is erased
	if n, err := export.Redrive(t.Context(), o); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := dead.Count(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	want(t, src, sink.ids(), "r-1:8")
	if n, err := dead.Forget(t.Context(), "r-1", 8); n != 1 || err != nil {
		t.Error(n, err)
	}
	if n, err := dead.Count(); n != 0 || err != nil {
		t.Error(n, err)
	}
	if names, err := export.Names(o.Dir); !slices.Equal(names, []string{"siem"}) || err != nil {
		t.Error(names, err)
	}
	if last := sink.got[len(sink.got)-1]; !strings.Contains(string(last.Data), `"erased":true`) {
		t.Errorf("%s", last.Data)
	}
}

// TestRedriveKilled: letters that an earlier Redrive claimed and did not finish are sent by the next one.
func TestRedriveKilled(t *testing.T) {
	src, sink := &exporttest.Source{}, &receiver{fail: func([]export.Item) error { return &export.Refused{Reason: "no"} }}
	src.Add(exporttest.Run("acme", "r-1", 10, 50)...)
	o := options(t, src, sink)
	catchUp(t, o)
	sink.fail = func(items []export.Item) error {
		if len(sink.got) < 4 {
			return nil
		}
		return errors.New("away")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n, err := export.Redrive(ctx, o); n != 4 || err == nil {
		t.Fatal(n, err)
	}
	sink.fail = nil
	if n, err := export.Redrive(t.Context(), o); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	want(t, src, sink.ids())
	if n, err := export.Redrive(t.Context(), o); n != 0 || err != nil {
		t.Fatal(n, err)
	}
}

// TestDeadIsBounded: the oldest letters are removed and counted.
func TestDeadIsBounded(t *testing.T) {
	src, sink := &exporttest.Source{}, &receiver{fail: func([]export.Item) error { return &export.Refused{Reason: "no"} }}
	src.Add(exporttest.Run("acme", "r-1", 300, 300)...)
	o := options(t, src, sink)
	o.DeadBytes, o.DeadFiles = 10<<10, 2
	s := catchUp(t, o)
	if s.Dead != 300 || s.DeadKept+s.DeadDropped != 300 || s.DeadDropped == 0 {
		t.Errorf("%+v", s)
	}
	files, err := filepath.Glob(filepath.Join(o.Dir, "siem.dead*.ndjson"))
	if err != nil || len(files) != 2 {
		t.Errorf("%q, %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 10<<10 || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
	}
}

// TestHalts: a sink that refuses everything is misconfigured. The exporter waits and gives up no further events.
func TestHalts(t *testing.T) {
	src, sink := &exporttest.Source{}, &receiver{fail: func([]export.Item) error { return &export.Refused{Reason: "wrong index"} }}
	src.Add(exporttest.Run("acme", "r-1", 300, 300)...)
	o := options(t, src, sink)
	o.MaxRefused = 20
	x, _ := follow(t, o)
	eventually(t, "it halts", func() bool { return x.Stats().Halted })
	if s := x.Stats(); s.Dead != 20 || !strings.Contains(s.LastError, "wrong index") {
		t.Errorf("%+v", s)
	}
	sink.mu.Lock()
	sink.fail = nil
	sink.mu.Unlock()
	eventually(t, "it goes on", func() bool { return len(sink.ids()) == 280 && !x.Stats().Halted })
}

// TestFilters: selected events are exported, and the cursor passes the others.
func TestFilters(t *testing.T) {
	src := &exporttest.Source{}
	src.Add(exporttest.Run("acme", "r-1", 40, 10)...)
	src.Add(exporttest.Run("evil", "r-2", 40, 10)...)
	for name, c := range map[string]struct {
		export.Filter
		want int
	}{
		"all":      {export.Filter{}, 80},
		"tenant":   {export.Filter{Tenant: "acme"}, 40},
		"run":      {export.Filter{Runs: []string{"r-2", "r-9"}}, 40},
		"kinds":    {export.Filter{Kinds: []audit.Kind{audit.KindExit, audit.KindRun}}, 22},
		"observer": {export.Filter{Observer: audit.Host}, 8},
		"severity": {export.Filter{MinSeverity: export.Alert}, 0},
	} {
		sink := &receiver{}
		o := options(t, src, sink)
		o.Filter = c.Filter
		s := catchUp(t, o)
		if len(sink.got) != c.want || s.Missing > 0 {
			t.Errorf("%s: %d events, %+v", name, len(sink.got), s)
		}
		if cursor, err := export.ReadCursor(o.Dir, o.Name); err != nil || cursor.Feed != "10" {
			t.Errorf("%s: cursor %+v, %v", name, cursor, err)
		}
	}
}

// TestMissingRecords: records that the feed announced and the store does not have are counted.
func TestMissingRecords(t *testing.T) {
	src, sink := &exporttest.Source{}, &receiver{}
	src.Add(exporttest.Run("acme", "r-1", 40, 10)...)
	src.Lose("r-1", 3)
	src.Lose("r-1", 33)
	if s := catchUp(t, options(t, src, sink)); s.Missing != 2 || len(sink.got) != 38 {
		t.Errorf("%+v", s)
	}
}

// TestWrite: one run to a writer, and to a sink, without a cursor.
func TestWrite(t *testing.T) {
	src, sink := &exporttest.Source{}, &receiver{}
	src.Add(exporttest.Run("acme", "r-1", 2500, 400)...)
	src.Add(exporttest.Run("acme", "r-2", 10, 400)...)
	var b strings.Builder
	runs := []store.Run{{ID: "r-1", Tenant: "acme"}, {ID: "r-2", Tenant: "acme"}}
	n, err := export.Write(t.Context(), &b, src, export.JSON{}, export.Filter{}, runs...)
	if n != 2510 || err != nil || strings.Count(b.String(), "\n") != 2510 {
		t.Fatal(n, err)
	}
	o := options(t, src, sink)
	if s, err := export.Send(t.Context(), o, runs...); err != nil || s.Sent != 2510 {
		t.Fatal(s, err)
	}
	want(t, src, sink.ids())
}
