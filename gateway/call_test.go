package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/llm"
)

// model is a host that responds like Anthropic's messages API, with a stream and a tool call. It waits for a receive
// from next before each event except the first.
func model(next <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			io.WriteString(rw, "models")
			return
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		for i, ev := range []string{
			`{"type":"message_start","message":{"id":"m","model":"claude-x","usage":{"input_tokens":100,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"bash","input":{}}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"command\":\"make all-of-it\"}"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":40}}`,
			`{"type":"message_stop"}`,
		} {
			if i > 0 && next != nil {
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
			}
			name, _, _ := strings.Cut(ev[len(`{"type":"`):], `"`)
			fmt.Fprintf(rw, "event: %s\ndata: %s\n\n", name, ev)
			rw.(http.Flusher).Flush()
		}
	})
}

const question = `{"model":"claude-x","stream":true,"tools":[{"name":"bash"}],"messages":[{"role":"user","content":"build it"}]}`

// eventAfter returns the event after the n-th http event.
func (w *world) eventAfter(n int) audit.Event {
	w.Helper()
	w.http(n)
	var found audit.Event
	w.until("an event after the request's", func() bool {
		seen, all := 0, w.log.all()
		for i, ev := range all {
			if ev.HTTP != nil {
				seen++
			}
			if seen == n && i+1 < len(all) {
				found = all[i+1]
				return true
			}
		}
		return false
	})
	return found
}

// TestCall makes an LLM API call: the stream is not delayed, the event is correct, and the command in the response is
// known before the guest receives it.
func TestCall(t *testing.T) {
	for _, change := range [][]func(*http.Transport){nil, {withH2}} {
		tracker, next := llm.NewTracker(1000, nil), make(chan struct{})
		w := newKeyWorld(t, model(next), func(c *Config) { c.Calls = tracker })
		resp, err := w.client("a.example", change...).Post("https://a.example/v1/messages", "application/json", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(resp.Body)
		for i := range 6 {
			if i > 0 {
				next <- struct{}{}
			}
			for line := "x"; line != "\n"; {
				if line, err = r.ReadString('\n'); err != nil {
					t.Fatal(i, err)
				}
				if strings.Contains(line, "content_block_stop") {
					if call, tool := tracker.Asked([]string{"sh", "-c", "make all-of-it"}); call == "" || tool != "toolu_1" {
						t.Errorf("the command is not known when the guest receives it: %q %q", call, tool)
					}
				}
			}
		}
		if rest := hear(r); rest != "" {
			t.Errorf("%q", rest)
		}
		ev := w.eventAfter(1).LLM
		if ev == nil || ev.ID != w.http(1).LLM || ev.ID == "" || ev.Provider != "anthropic" || ev.Model != "claude-x" || ev.InputTokens != 100 ||
			ev.OutputTokens != 40 || ev.Flow != w.http(1).Flow || ev.Status != 200 || ev.StopReason != "tool_use" || ev.Incomplete != "" || len(ev.ToolCalls) != 1 {
			t.Errorf("%+v", ev)
		}
		if seen := w.seen(); len(seen) != 1 || !strings.HasSuffix(seen[0], question) || !strings.Contains(seen[0], "X-Api-Key: "+apiValue) {
			t.Errorf("the host received %q", seen)
		}
		w.checkRecord()
	}
}

// TestCallBudget uses up the budget during a response.
func TestCallBudget(t *testing.T) {
	for _, change := range [][]func(*http.Transport){nil, {withH2}} {
		tracker := llm.NewTracker(120, nil)
		w := newKeyWorld(t, model(nil), func(c *Config) { c.Calls = tracker })
		client := w.client("a.example", change...)
		resp, err := client.Post("https://a.example/v1/messages", "application/json", strings.NewReader(question))
		if err == nil {
			var b []byte
			if b, err = io.ReadAll(resp.Body); err == nil || strings.Contains(string(b), "message_stop") {
				t.Errorf("%q %v", b, err)
			}
		}
		if ev := w.http(1); ev.Verdict != audit.Deny || !strings.Contains(ev.Reason, "limits.llm_tokens") || ev.LLM == "" {
			t.Errorf("%+v", ev)
		}
		if ev := w.eventAfter(1).LLM; ev == nil || ev.Spent < 120 || ev.Budget != 120 {
			t.Errorf("%+v", ev)
		}
		w.until("the flow's end", func() bool { return w.count(audit.FlowClose) == 1 })
		if f := w.flow(audit.FlowClose); !strings.Contains(f.Reason, "limits.llm_tokens") {
			t.Errorf("%+v", f)
		}
		w.seen()
		client = w.client("a.example", change...)
		resp, err = client.Post("https://a.example/v1/messages", "application/json", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		if reason := w.refusalOf(resp); resp.StatusCode != 403 || !strings.Contains(reason, "limits.llm_tokens") || len(w.seen()) > 0 {
			t.Errorf("%d %s", resp.StatusCode, reason)
		}
		if resp, err = client.Get("https://a.example/v1/models"); err != nil || hear(resp.Body) != "models" {
			t.Errorf("a request that is not an LLM API call: %v", err)
		}
	}
}

// TestCallBroken: a host closes the connection early, and another cannot be reached.
func TestCallBroken(t *testing.T) {
	tracker := llm.NewTracker(0, nil)
	w := newKeyWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("Content-Length", "1000")
		io.WriteString(rw, `{"model":"claude-x",`)
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}), func(c *Config) { c.Calls, c.Limits.Dial = tracker, time.Second })
	resp, err := w.client("a.example").Post("https://a.example/v1/messages", "application/json", strings.NewReader(question))
	if err == nil {
		_, err = io.ReadAll(resp.Body)
	}
	if ev := w.eventAfter(1).LLM; err == nil || ev == nil || ev.Incomplete == "" || ev.Status != 200 {
		t.Errorf("%v %+v", err, ev)
	}
	w.zone.set("a.example", newAddr())
	resp, err = w.client("a.example").Post("https://a.example/v1/messages", "application/json", strings.NewReader(question))
	if err != nil || resp.StatusCode != 502 {
		t.Fatal(resp, err)
	}
	if ev := w.eventAfter(2).LLM; ev == nil || ev.Incomplete == "" || ev.Status != 0 {
		t.Errorf("%+v", ev)
	}
}
