package api

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/custody-project/custody/store"
)

const (
	// eventRows and eventBytes bound the records of one event, which has at least one.
	eventRows, eventBytes = 500, 1 << 20
	// beat is how often a stream without records sends a comment, as a sign of life.
	beat = 15 * time.Second
	// slowest is how long a reader may take for one event; a slower one is dropped, and can resume.
	slowest = 10 * time.Second
	// streamFor bounds a stream: the reader resumes with a new request, which passes the Gate again.
	streamFor = 10 * time.Minute
	// maxStreams bounds all streams, and maxStreamsOf those of one principal.
	maxStreams, maxStreamsOf = 512, 32
)

// turnstile counts concurrent requests, in total and of each principal.
type turnstile struct {
	most, each int

	mu  sync.Mutex // guards the fields below
	all int
	of  map[string]int
}

// enter counts a request, and returns a function to call at its end.
func (t *turnstile) enter(who, what string) (func(), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= t.most || t.of[who] >= t.each {
		return nil, later(http.StatusTooManyRequests, "too-many", "too many concurrent "+what, "end some, or try again later", 5*time.Second)
	}
	if t.of == nil {
		t.of = map[string]int{}
	}
	t.all++
	t.of[who]++
	return func() { t.leave(who) }, nil
}

func (t *turnstile) leave(who string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.of[who]--; t.of[who] == 0 {
		delete(t.of, who)
	}
}

// stream is one reader's event stream (HTML Living Standard, server-sent events).
type stream struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf []byte
}

// send writes one event or a comment, and waits until the connection has accepted it.
func (st *stream) send(text []byte) error {
	if err := deadline(st.rc, slowest); err != nil {
		return err
	}
	if _, err := st.w.Write(text); err != nil {
		return err
	}
	if err := st.rc.Flush(); err != nil {
		return err
	}
	return deadline(st.rc, 0)
}

func (st *stream) records(rows []store.Row) error {
	b := append(st.buf[:0], "id: "...)
	b = strconv.AppendUint(b, rows[len(rows)-1].Seq, 10)
	b = append(b, "\nevent: records\ndata: {\"records\":["...)
	for i, row := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRecord(b, row)
	}
	st.buf = append(b, "]}\n\n"...)
	return st.send(st.buf)
}

func (st *stream) event(name string, v any) error {
	text, err := encode(v)
	if err != nil {
		return err
	}
	return st.send([]byte("event: " + name + "\ndata: " + string(text) + "\n\n"))
}

// liveHandler streams live runs.
type liveHandler struct {
	runFinder
	hubs    *hubs
	checks  *checks
	streams turnstile
	ended   <-chan struct{} // closed when the Server ends
}

// stream streams a run's new records until it has ended. It begins after Last-Event-ID, else after
// the parameter after, else with new records.
func (l *liveHandler) stream(w http.ResponseWriter, r *request) error {
	run, err := l.find(r)
	if err != nil {
		return err
	}
	after, err := r.after(run)
	if err != nil {
		return err
	}
	leave, err := l.streams.enter(r.who.Tenant+"\x00"+r.who.Name, "streams")
	if err != nil {
		return err
	}
	defer leave()
	h, err := l.hubs.join(run)
	if err != nil {
		return err
	}
	defer l.hubs.leave(h)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	ctx, cancel := context.WithDeadline(r.Context(), streamEnd(time.Now(), r.who.Expires))
	defer cancel()
	st := &stream{w: w, rc: http.NewResponseController(w)}
	if err := st.send([]byte("retry: 1000\n\n")); err != nil {
		return nil // the reader has gone
	}
	_ = l.follow(ctx, st, h, after) // a disconnected client resumes by itself
	_ = deadline(st.rc, slowest)    // for what ends the answer
	return nil
}

// streamEnd is the latest end of a stream: no later than the expiry of the principal's credential.
func streamEnd(now, expires time.Time) time.Time {
	end := now.Add(streamFor)
	if !expires.IsZero() && expires.Before(end) {
		return expires
	}
	return end
}

// after returns the seq after which the stream begins.
func (r *request) after(run store.Run) (uint64, error) {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.ParseUint(last, 10, 63)
		if err != nil {
			return 0, bad("it is the seq of the last record that came", "Last-Event-ID is %.40q", last)
		}
		return n, nil
	}
	return r.number("after", run.LastSeq, store.MaxSeq)
}

func (l *liveHandler) follow(ctx context.Context, st *stream, h *hub, after uint64) error {
	beating := time.NewTicker(beat)
	defer beating.Stop()
	var sent store.Run
	for ctx.Err() == nil {
		v := h.look(after)
		if v.behind {
			n, err := l.catchUp(ctx, st, h, &after)
			if err != nil {
				return err
			}
			if n > 0 {
				continue
			}
			after = max(after, v.floor) // rows that are not kept are not in the store either: continue with those that are
			continue
		}
		if err := l.sendNews(st, v, &after, &sent); err != nil {
			return err
		}
		switch {
		case v.over && len(v.rows) == 0:
			return l.finish(st, v)
		case len(v.rows) > 0:
			continue
		}
		select {
		case <-v.changed:
		case <-beating.C:
			if err := st.send([]byte(": alive\n\n")); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ended:
			return errEnding()
		}
	}
	return ctx.Err()
}

// sendNews sends the state of the run, if it changed, and new records.
func (l *liveHandler) sendNews(st *stream, v glimpse, after *uint64, sent *store.Run) error {
	if sent.ID == "" || sent.Events != v.run.Events || sent.Status != v.run.Status {
		*sent = v.run
		if err := st.event("run", l.checks.item(v.run)); err != nil {
			return err
		}
	}
	if len(v.rows) == 0 {
		return nil
	}
	*after = v.rows[len(v.rows)-1].Seq
	return st.records(v.rows)
}

func (l *liveHandler) catchUp(ctx context.Context, st *stream, h *hub, after *uint64) (int, error) {
	var rows []store.Row
	bytes := 0
	for row, err := range h.catchUp(ctx, *after) {
		if err != nil {
			return 0, err
		}
		if rows = append(rows, row); bytes+len(row.Body) > eventBytes {
			break
		}
		bytes += len(row.Body)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	*after = rows[len(rows)-1].Seq
	return len(rows), st.records(rows)
}

// finish sends the last event: the run has ended, or the store does not answer.
func (l *liveHandler) finish(st *stream, v glimpse) error {
	if v.err != nil {
		return st.event("problem", problemOf(v.err))
	}
	return st.event("end", l.checks.item(v.run))
}
