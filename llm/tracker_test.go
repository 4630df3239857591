package llm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/audit"
)

func named(t testing.TB, name string) *fixture {
	for _, f := range load(t) {
		if f.name == name {
			return &f
		}
	}
	t.Fatal("no fixture", name)
	return nil
}

func begun(b *Tracker, path string) *Call {
	c := b.Begin(Request{Method: "POST", Host: "llm.example", Path: path})
	c.Request([]byte(`{"model":"m"}`))
	return c
}

var eventStream = http.Header{"Content-Type": {"text/event-stream"}}
var plainJSON = http.Header{"Content-Type": {"application/json"}}

// Reported tokens count immediately.
func TestBudgetWithinAStream(t *testing.T) {
	b := NewTracker(100, nil)
	c := begun(b, "/v1/messages")
	c.Response(200, eventStream)
	for i, step := range []struct {
		data  string
		spent int64
		over  bool
	}{
		{`{"type":"message_start","message":{"usage":{"input_tokens":60,"output_tokens":1}}}`, 61, false},
		{`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"many words, none of which are counted"}}`, 61, false},
		{`{"type":"message_delta","delta":{},"usage":{"output_tokens":39}}`, 99, false},
		{`{"type":"message_delta","delta":{},"usage":{"output_tokens":40}}`, 100, true},
		{`{"type":"message_stop"}`, 100, true},
	} {
		if over := c.Body([]byte("data: " + step.data + "\n\n")); over != step.over || b.spent.Load() != step.spent {
			t.Errorf("%d: over %v at %d", i, over, b.spent.Load())
		}
	}
	if err := b.Spent(); err == nil || err.Error() != "the run's token budget is used up: 100 of 100 tokens are spent (limits.llm_tokens)" {
		t.Error(err)
	}
	if e := c.Finish(errors.New("the budget is used up")); e.Spent != 100 || e.Budget != 100 || e.Incomplete != "" {
		t.Errorf("%+v", e)
	}
}

// Bedrock reports the tokens of other models in header fields.
func TestAmazon(t *testing.T) {
	b := NewTracker(0, nil)
	c := begun(b, "/model/amazon.nova-lite-v1%3A0/invoke")
	h := plainJSON.Clone()
	h.Set("X-Amzn-Bedrock-Input-Token-Count", "12")
	h.Set("X-Amzn-Bedrock-Output-Token-Count", "34")
	c.Response(200, h)
	c.Body([]byte(`{"output":{"message":{}},"usage":{"inputTokens":12,"outputTokens":34}}`))
	if e := c.Finish(nil); e.InputTokens != 12 || e.OutputTokens != 34 || e.Model != "amazon.nova-lite-v1:0" || e.Incomplete != "" || e.Spent != 46 {
		t.Errorf("%+v", e)
	}
}

// Concurrent calls share the budget, and no token is counted twice or lost.
func TestBudgetShared(t *testing.T) {
	b := NewTracker(16*35*2, nil)
	f := named(t, "anthropic-stream") // 35 input tokens at the start, 142 output tokens at the end
	head, tail, _ := bytes.Cut(f.body, []byte("event: message_delta"))
	var calls []*Call
	for range 16 {
		c := begun(b, f.path)
		c.Response(200, f.header)
		if c.Body(head) {
			t.Fatal("over too early")
		}
		calls = append(calls, c)
	}
	if b.Spent() != nil {
		t.Fatal(b.Spent())
	}
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() {
			c.Body(append([]byte("event: message_delta"), tail...))
			c.Finish(nil)
		})
	}
	all.Wait()
	if got := b.spent.Load(); got != 16*(35+142) || b.Spent() == nil {
		t.Errorf("%d spent, %v", got, b.Spent())
	}
	if c := begun(b, f.path); !c.Body([]byte("x")) {
		t.Error("a call continues after others have used up the budget")
	}
}

// A client cannot evade the budget by not requesting usage reports, or by disconnecting before them.
func TestBudgetWithoutUsage(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		err              error
		spent            int64
		reason           string
	}{
		{"none asked for", "/v1/chat/completions", "data: {\"choices\":[{\"delta\":{\"content\":\"123456789\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", nil,
			13 + 9, "the provider sent no usage; the budget was charged 22 tokens more, one for each byte of text"},
		{"broken off", "/v1/messages", "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":100,\"output_tokens\":2}}}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"123456789\"}}\n\n", errors.New("the guest went away"),
			100 + 9, "the exchange broke off: the guest went away; the provider did not report the tokens of the output; the budget was charged 7 tokens more, one for each byte of text"},
		{"not understood", "/v1/messages", "what is this", nil,
			13 + 12, "the stream ended before the answer did; the provider sent no usage; the budget was charged 25 tokens more, one for each byte of text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewTracker(1000, nil)
			call := begun(b, c.path)
			call.Response(200, eventStream)
			call.Body([]byte(c.body))
			e := call.Finish(c.err)
			if e.Incomplete != c.reason || e.Spent != c.spent || b.spent.Load() != c.spent {
				t.Errorf("%d spent: %s", e.Spent, e.Incomplete)
			}
			if e.InputTokens+e.OutputTokens > 102 {
				t.Error("tokens were invented")
			}
		})
	}
	for _, b := range []*Tracker{NewTracker(0, nil), NewTracker(1000, nil)} {
		call := begun(b, "/v1/messages")
		call.Response(200, eventStream)
		call.Body([]byte("data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"))
		if e := call.Finish(nil); e.Spent != 0 {
			t.Errorf("%d of %d tokens charged for a response without content", e.Spent, e.Budget)
		}
	}
	b := NewTracker(0, nil)
	call := begun(b, "/v1/messages")
	call.Response(200, eventStream)
	if e := call.Finish(nil); e.Spent != 0 {
		t.Errorf("%d spent without a budget", e.Spent)
	}
}

func TestFiguresThatCannotBe(t *testing.T) {
	for _, figure := range []string{"-5", "1e300", "1.5", `"7"`, "99999999999999999999", "[1]", "{}", "true"} {
		b := NewTracker(1000, nil)
		c := begun(b, "/v1/chat/completions")
		c.Response(200, plainJSON)
		c.Body([]byte(`{"model":"x","usage":{"prompt_tokens":3,"completion_tokens":` + figure + `}}`))
		e := c.Finish(nil)
		if e.InputTokens != 3 || e.OutputTokens != 0 || !strings.Contains(e.Incomplete, "a figure that cannot be") || e.Model != "x" {
			t.Errorf("%s: %+v", figure, e)
		}
	}
	b := NewTracker(10, nil)
	for range 100 {
		b.spend(1 << 60)
		if b.Spent() == nil {
			t.Fatal("the budget is available again")
		}
	}
}

// A request counts as a retry if an equal one failed before it began.
func TestRetry(t *testing.T) {
	b := NewTracker(0, nil)
	call := func(name, body string) *audit.LLM {
		f := *named(t, name)
		f.path, f.request = "/v1/messages", []byte(body)
		return f.play(b, atOnce)
	}
	for i, step := range []struct {
		name, body string
		retry      int
	}{
		{"anthropic-overloaded", "one", 0},
		{"anthropic-stream-error", "one", 1},
		{"anthropic-overloaded", "two", 0},
		{"anthropic-overloaded", "one", 2},
		{"anthropic-json", "one", 3},
		{"anthropic-json", "one", 0},
		{"anthropic-json", "two", 1},
	} {
		if e := call(step.name, step.body); e.Retry != step.retry {
			t.Errorf("%d: retry %d, want %d", i, e.Retry, step.retry)
		}
	}
	one, other := begun(b, "/v1/messages"), begun(b, "/v1/messages")
	one.Finish(errors.New("broken"))
	if e := other.Finish(errors.New("broken")); e.Retry != 0 {
		t.Error("concurrent calls were counted as retries")
	}
	for i := range 3 * maxBroken {
		c := b.Begin(Request{Method: "POST", Path: fmt.Sprint("/", i, "/v1/messages")})
		c.Finish(errors.New("broken"))
	}
	if n := len(b.broken.at); n != maxBroken || b.broken.order.Len() != n {
		t.Error(n, "failures are stored")
	}
}

// shared is an account that others use, too.
type shared struct{ limit, used, asked int64 }

func (s *shared) Charge(tokens int64) { s.used += tokens }

func (s *shared) Spent() error {
	if s.used >= s.limit {
		return errors.New("the tokens of the day are used up")
	}
	return nil
}

func (s *shared) Ask(context.Context) error { s.asked++; return s.Spent() }

// TestAccount: tokens are charged to the account once, also those that were not reported, and no call begins when it is used up.
func TestAccount(t *testing.T) {
	s := &shared{limit: 200}
	b := NewTracker(0, s)
	if err := b.Admit(t.Context()); err != nil || s.asked != 1 {
		t.Errorf("%v after %d questions", err, s.asked)
	}
	c := begun(b, "/v1/messages")
	c.Response(200, eventStream)
	if over := c.Body([]byte(`data: {"type":"message_start","message":{"usage":{"input_tokens":60,"output_tokens":1}}}` + "\n\n")); over || s.used != 61 {
		t.Errorf("over: %v, %d tokens are charged", over, s.used)
	}
	c.Body([]byte(`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ten bytes!"}}` + "\n\n"))
	c.Finish(errors.New("the client went away"))
	if s.used != 61+10-1 {
		t.Errorf("%d tokens are charged with those that were not reported", s.used)
	}
	s.used += 200 // by another sandbox
	if err := b.Admit(t.Context()); err == nil || !strings.Contains(err.Error(), "of the day") {
		t.Errorf("a call begins: %v", err)
	}
	c = begun(b, "/v1/messages")
	c.Response(200, eventStream)
	if !c.Body([]byte("data: {}\n\n")) {
		t.Error("a call goes on")
	}
}
