package llm

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestBrokenOff(t *testing.T) {
	for _, f := range load(t) {
		for _, n := range []int{0, 1, len(f.body) / 2, len(f.body) * 9 / 10} {
			b := NewTracker(0, nil)
			c := b.Begin(Request{Method: f.method, Path: f.path})
			c.Response(f.status, f.header)
			c.Body(f.body[:n])
			e := c.Finish(nil)
			whole := stable(f.play(NewTracker(0, nil), atOnce))
			if e.Incomplete == "" && f.status == 200 && e.API != "count_tokens" && (e.InputTokens != whole.InputTokens || e.OutputTokens != whole.OutputTokens) {
				t.Errorf("%s: truncated at %d of %d without a note", f.name, n, len(f.body))
			}
			if e.InputTokens > whole.InputTokens || e.OutputTokens > whole.OutputTokens {
				t.Errorf("%s: cut at %d has more tokens than the whole", f.name, n)
			}
		}
	}
	c := begun(NewTracker(0, nil), "/v1/messages")
	if e := c.Finish(errors.New("no route")); e.Incomplete != "the exchange broke off: no route" || e.Status != 0 {
		t.Errorf("%+v", e)
	}
	if e := c.Finish(nil); e != nil {
		t.Error("finished twice")
	}
	c.Request([]byte("x"))
	c.Response(200, plainJSON)
	c.Body([]byte("x"))
}

func TestNotUnderstood(t *testing.T) {
	for _, c := range []struct{ kind, coding, body, reason string }{
		{"application/json", "", "", "the answer is empty"},
		{"application/json", "", "{", "it is no whole JSON text"},
		{"application/json", "", "<html>", "no JSON"},
		{"application/json", "", `{"a":1}}`, "an unmatched closing"},
		{"application/json", "", strings.Repeat("[", 300), "nested too deeply"},
		{"application/json", "", `{"model":"` + strings.Repeat("x", maxText) + `"}`, "it is too long"},
		{"application/json", "", `{"` + strings.Repeat("x", maxKey+1) + `":1}`, "name is too long"},
		{"application/json", "", `{"model":tru}`, "no JSON"},
		{"application/json", "", `{"model":7,"choices":3}`, "was not understood"},
		{"application/json", "bogus", `{}`, "unknown content coding \"bogus\""},
		{"application/json", "gzip, br", `{}`, "several content codings"},
		{"application/json", "gzip", `{}{}{}{}{}{}`, "content coding gzip is broken"},
		{"application/json", "br", "\xff\xff\xff", "content coding br is broken"},
		{"application/json", "zstd", "zzzzzzzz", "content coding zstd is broken"},
		{"application/json", "deflate", "\x78\x9c\xff\xff", "content coding deflate is broken"},
		{"text/event-stream", "", "data: {\n\n", "an event was not understood"},
		{"text/event-stream", "", "data: " + strings.Repeat("[", 300) + "\n\n", "nested too deeply"},
		{"application/vnd.amazon.eventstream", "", "\x00\x00", "Amazon"},
		{"", "", "", "the answer is empty"},
	} {
		call := begun(NewTracker(0, nil), "/v1/chat/completions")
		h := http.Header{"Content-Type": {c.kind}}
		if c.coding != "" {
			h.Set("Content-Encoding", c.coding)
		}
		call.Response(200, h)
		call.Body([]byte(c.body))
		if e := call.Finish(nil); !strings.Contains(e.Incomplete, c.reason) {
			t.Errorf("%.40s: %s, want %s", c.body, e.Incomplete, c.reason)
		}
	}
}

// Events are parsed even if the server does not declare them, or declares another type.
func TestUnnamed(t *testing.T) {
	for _, f := range load(t) {
		for _, kind := range []string{"", "text/plain", "nonsense/"} {
			g := f
			g.header = http.Header{"Content-Type": {kind}}
			g.body = append([]byte(" \r\n"), f.body...)
			same(t, stable(g.play(NewTracker(0, nil), byOne)), f.wanted(t))
		}
	}
}

// Large values that are not needed do not exceed the limits.
func TestLarge(t *testing.T) {
	b := NewTracker(0, nil)
	c := b.Begin(Request{Method: "POST", Path: "/v1/embeddings"})
	c.Request([]byte(`{"input":["`))
	for range 300 {
		c.Request(bytes.Repeat([]byte("x"), 64<<10))
	}
	c.Request([]byte(`"],"model":"at-the-end"}`))
	c.Response(200, plainJSON)
	c.Body([]byte(`{"data":[`))
	for range 300 {
		c.Body(bytes.Repeat([]byte("0.12345678,"), 4<<10))
	}
	c.Body([]byte(`0],"usage":{"prompt_tokens":9,"total_tokens":9}}`))
	if e := c.Finish(nil); e.InputTokens != 9 || e.Model != "at-the-end" || e.Incomplete != "" {
		t.Errorf("%+v", e)
	}
}

// A body that becomes very large is not parsed to its end, and uses little memory.
func TestBomb(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range 10 {
		w.Write(bytes.Repeat([]byte(" "), 1<<20))
	}
	w.Close()
	c := begun(NewTracker(0, nil), "/v1/messages")
	c.Response(200, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}})
	c.in.left = 9 << 20 // as if most of the limit were used
	c.Body(packed.Bytes())
	if e := c.Finish(nil); !strings.HasPrefix(e.Incomplete, "the answer was not read to its end: it is longer than 128 MiB") {
		t.Error(e.Incomplete)
	}
}

// A response with very many and very long tool calls makes an event that can be recorded.
func TestManyToolCalls(t *testing.T) {
	b := NewTracker(0, nil)
	c := begun(b, "/v1/chat/completions")
	c.Response(200, eventStream)
	const calls, parts = 300, 4
	long := strings.Repeat("y", 8<<10)
	for i := range calls {
		fmt.Fprintf(body{c}, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":%d,\"id\":\"c%d\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"p\\\":%d,\\\"x\\\":\\\"\"}}]}}]}\n\n", i, i, i)
		for range parts {
			fmt.Fprintf(body{c}, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":\"%s\"}}]}}]}\n\n", i, long)
		}
	}
	e := c.Finish(nil)
	size := 0
	for _, call := range e.ToolCalls {
		size += len(call.Arguments)
	}
	if len(e.ToolCalls) != maxToolCalls || size > maxAllText || !strings.Contains(e.Incomplete, "more tool calls") {
		t.Errorf("%d tool calls with %d bytes: %s", len(e.ToolCalls), size, e.Incomplete)
	}
	if first := e.ToolCalls[0]; first.Arguments != `{"p":0,"x":` || !first.Truncated {
		t.Errorf("%+v", first)
	}
	if c.answer.tools.kept > maxAllArgs {
		t.Error(c.answer.tools.kept, "bytes are kept")
	}
}

type body struct{ c *Call }

func (b body) Write(p []byte) (int, error) { b.c.Body(p); return len(p), nil }

// Arguments are cut only outside of strings.
func TestSafe(t *testing.T) {
	for _, c := range []struct {
		args  string
		limit int
		want  string
	}{
		{`{"a":"secret"}`, 100, `{"a":"secret"}`},
		{`{"a":"secret"}`, 10, `{"a":`},
		{`{"a":"sec\"ret","b":1}`, 12, `{"a":`},
		{`{"a":"s","b":1}`, 12, `{"a":"s","b"`},
		{`{"a":"sec`, 100, `{"a":`},
		{`"secret"`, 5, ``},
		{`plain secret`, 100, ``},
		{`plain secret`, 5, ``},
		{``, 5, ``},
	} {
		if got := safe([]byte(c.args), c.limit); string(got) != c.want {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
}

// The contents of an event are known after its last byte has arrived, in every flushed coding: nothing waits for further
// data.
func TestImmediately(t *testing.T) {
	for coding, coder := range coders {
		var packed bytes.Buffer
		w := coder(&packed)
		b := NewTracker(0, nil)
		c := begun(b, "/v1/messages")
		c.Response(200, http.Header{"Content-Type": {"text/event-stream"}, "Content-Encoding": {coding}})
		for n := int64(1); n < 20; n++ {
			fmt.Fprintf(w, "data: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":0,\"output_tokens\":%d}}\n\n", n)
			w.Flush()
			piece, _ := io.ReadAll(&packed)
			c.Body(piece)
			if got := b.spent.Load(); got != n {
				t.Fatalf("%s: %d tokens known of %d", coding, got, n)
			}
		}
		c.Finish(nil)
	}
}

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begun(NewTracker(0, nil), "/v1/messages")
		time.Sleep(time.Second)
		c.Response(200, eventStream)
		c.Body([]byte("data: {\"type\":\"message_start\",\"message\":{}}\n\ndata: {\"type\":\"ping\"}\n\n: hi\n\n"))
		time.Sleep(time.Second)
		c.Body([]byte("data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n"))
		time.Sleep(time.Second)
		if e := c.Finish(nil); e.FirstTokenNS != 2e9 || e.DurationNS != 3e9 {
			t.Error(e.FirstTokenNS, e.DurationNS)
		}
	})
}

// Pieces of request and response, calls of the Tracker and Finish may be concurrent.
func TestConcurrent(t *testing.T) {
	b := NewTracker(1<<30, nil)
	var all sync.WaitGroup
	for _, f := range load(t) {
		c := b.Begin(Request{Method: f.method, Path: f.path, Header: http.Header{"Content-Encoding": {"gzip"}}})
		all.Go(func() { pieces(f.request, byOne, c.Request) })
		all.Go(func() {
			c.Response(f.status, f.header)
			pieces(f.body, byOne, func(p []byte) { c.Body(p) })
			c.Finish(nil)
		})
		all.Go(func() { b.Asked([]string{"sh", "-c", "true"}) })
	}
	all.Wait()
}
