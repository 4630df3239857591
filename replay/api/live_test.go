package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// event is one of a stream.
type event struct{ id, name, data string }

// watch reads a stream's events until it ends or the caller stops.
func (w *world) watch(ctx context.Context, path, token, lastID string) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		req, err := http.NewRequestWithContext(ctx, "GET", w.base+path, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		if lastID != "" {
			req.Header.Set("Last-Event-ID", lastID)
		}
		res, err := (&http.Client{}).Do(req)
		if err != nil {
			yield(event{}, err)
			return
		}
		defer res.Body.Close()
		if got := res.Header.Get("Content-Type"); got != "text/event-stream" || res.StatusCode != 200 || res.Header.Get("Content-Encoding") != "" {
			yield(event{}, fmt.Errorf("%s, %s", res.Status, got))
			return
		}
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 64<<20)
		var e event
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "":
				if e.name != "" && !yield(e, nil) {
					return
				}
				e = event{}
			}
		}
		if err := lines.Err(); err != nil && ctx.Err() == nil {
			yield(event{}, err)
		}
	}
}

// seqs are those of an event's records.
func seqs(t testing.TB, e event) (list []uint64) {
	t.Helper()
	var data struct{ Records []struct{ Seq uint64 } }
	if err := json.Unmarshal([]byte(e.data), &data); err != nil {
		t.Fatal(err)
	}
	for _, r := range data.Records {
		list = append(list, r.Seq)
	}
	if e.id != strconv.FormatUint(list[len(list)-1], 10) {
		t.Errorf("the id is %s, the last record %d", e.id, list[len(list)-1])
	}
	return list
}

// upTo are the numbers from a to b.
func upTo(a, b uint64) (list []uint64) {
	for ; a <= b; a++ {
		list = append(list, a)
	}
	return list
}

// TestLive follows a run of this host from its begin to its end: each record comes once and in order,
// soon after it was recorded; a client that reconnects goes on where it was; the end is reported.
func TestLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token("", access.Viewer)
	events := storetest.Events(300)
	run := w.begin("r-live")
	run.Ship(context.Background())
	w.record(run, events[:50]...)
	w.await(t, func() bool { return w.get("/runs/r-live", token).StatusCode == 200 })
	var item api.RunItem
	w.get("/runs/r-live", token).json(t, &item)
	if !item.Live || item.Status != store.Running || item.Verification.State != api.Unchecked {
		t.Errorf("%+v", item)
	}
	const readers = 5
	var reading sync.WaitGroup
	begun := make(chan bool, readers)
	for range readers {
		reading.Go(func() {
			w.readLive(t, token, begun)
		})
	}
	for range readers {
		<-begun
	}
	for _, e := range events[50:] {
		w.record(run, e)
		time.Sleep(time.Millisecond)
	}
	if record, stored := run.Close(context.Background(), "sealed"); record != nil || stored != nil {
		t.Fatal(record, stored)
	}
	reading.Wait()
	w.get("/runs/r-live", token).json(t, &item)
	if item.Live || item.Events != 300 {
		t.Errorf("%+v", item)
	}
}

// readLive reads a run of 300 records that goes on, and breaks off twice.
func (w *world) readLive(t *testing.T, token string, begun chan<- bool) {
	var got []uint64
	last, told, ended := "", false, false
	for attempt := 0; !ended && attempt < 5; attempt++ {
		path := "/runs/r-live/live?after=0"
		for e, err := range w.watch(t.Context(), path, token, last) {
			if err != nil {
				t.Error(err)
				return
			}
			switch e.name {
			case "records":
				got, last = append(got, seqs(t, e)...), e.id
			case "end":
				ended = true
			}
			if !told && len(got) > 0 {
				told = true
				begun <- true
			}
			if e.name == "records" && (attempt == 0 && len(got) > 20 || attempt == 1 && len(got) > 150) {
				break
			}
		}
	}
	if !ended || !slices.Equal(got, upTo(1, 300)) {
		t.Errorf("ended %v, with %d records: %v", ended, len(got), got)
	}
}

// await waits until something is so.
func (w *world) await(t testing.TB, so func() bool) {
	t.Helper()
	for range 1200 {
		if so() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it did not come to that")
}

// TestLiveOver: of a run that has ended, what is asked for is sent, and that it has ended.
func TestLiveOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest("", madeUp("r-1", 2000, 0)...)
	token := w.token("", access.Viewer)
	for query, want := range map[string][]uint64{"": nil, "?after=1990": upTo(1991, 2000), "?after=0": upTo(1, 2000), "?after=99999": nil} {
		var got []uint64
		var names []string
		for e, err := range w.watch(t.Context(), "/runs/r-1/live"+query, token, "") {
			if err != nil {
				t.Fatal(err)
			}
			if names = append(names, e.name); e.name == "records" {
				got = append(got, seqs(t, e)...)
			}
		}
		if !slices.Equal(got, want) || names[len(names)-1] != "end" || !slices.Contains(names, "run") {
			t.Errorf("%q: %v, %d records, want %d", query, names, len(got), len(want))
		}
	}
	if r := w.do("GET", "/runs/r-1/live?after=0", token, ""); !strings.Contains(string(r.body), "event: end") {
		t.Errorf("%.300s", r.body)
	}
}

// counting counts how often a store is asked.
type counting struct {
	api.Source
	asked *atomic.Int64
}

func (c counting) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	c.asked.Add(1)
	return c.Source.Records(ctx, q)
}

// TestOnePoll: however many clients watch a run, the store is polled as for one. Clients beyond the bound are refused.
func TestOnePoll(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	w := newWorld(t, func(w *world, o *api.Options) {
		open := o.Open
		o.Ahead = nil
		o.Open = func(ctx context.Context) (api.Source, error) {
			src, err := open(ctx)
			return counting{src, &asked}, err
		}
	})
	w.ingest("", storetest.Segments("r-1", storetest.Frames("r-1", storetest.Events(100)[:50]), 50)[0])
	token := w.token("", access.Viewer)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	begun := make(chan bool, 64)
	for range 32 {
		reading.Go(func() {
			for range w.watch(ctx, "/runs/r-1/live", token, "") {
				begun <- true
			}
		})
	}
	for range 32 {
		<-begun
	}
	p := w.get("/runs/r-1/live", token).problem(t, http.StatusTooManyRequests)
	if !strings.Contains(p.Detail, "streams") {
		t.Errorf("%+v", p)
	}
	before := asked.Load()
	time.Sleep(time.Second)
	if n := asked.Load() - before; n < 1 || n > 12 {
		t.Errorf("the store was asked %d times in a second for 32 readers", n)
	}
}

// TestSlowReader: a reader that does not read is dropped, and holds no one up. The others get everything.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	big := strings.Repeat("x", 100<<10)
	var frames []store.Frame
	for i, e := range storetest.Events(400) {
		if e.Kind == audit.KindOutput {
			e.Output = &audit.Output{Stream: "stdout", Text: audit.Text(big)}
		}
		frames = append(frames, storetest.Frame("r-1", uint64(i+1), e))
	}
	w.ingest("", storetest.Segments("r-1", frames, 100)...)
	token := w.token("", access.Viewer)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range w.watch(ctx, "/runs/r-1/live?after=0", token, "") {
		break // the connection stays as full as it gets until stop
	}
	n := 0
	for e, err := range w.watch(t.Context(), "/runs/r-1/live?after=0", token, "") {
		if err != nil {
			t.Fatal(err)
		}
		if e.name == "records" {
			n += len(seqs(t, e))
		}
	}
	if n != 400 {
		t.Errorf("%d records, want 400", n)
	}
}

// TestWithdrawn: a stream ends when its credential does.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest("", storetest.Segments("r-1", storetest.Frames("r-1", storetest.Events(100)[:50]), 50)[0])
	token := w.token("", access.Viewer)
	list, err := w.tokens.List()
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	for e := range w.watch(t.Context(), "/runs/r-1/live", token, "") {
		if e.name == "run" {
			if _, err := w.tokens.Remove(t.Context(), list[0].ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.get("/runs", token).problem(t, http.StatusUnauthorized)
}

// TestShutdown: streams, waiting checks and running exports end in bounded time with the server.
func TestShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest("", storetest.Segments("r-1", storetest.Frames("r-1", storetest.Events(100)[:50]), 50)[0])
	token := w.token("", access.Auditor)
	began := time.Now()
	for e, err := range w.watch(t.Context(), "/runs/r-1/live", token, "") {
		if err != nil {
			t.Fatal(err)
		}
		if e.name == "run" {
			go w.server.Close()
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the stream went on for %v", took)
	}
}
