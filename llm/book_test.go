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

func begun(b *Book, path string) *Call {
	c := b.Begin(Request{Method: "POST", Host: "llm.example", Path: path})
	c.Request([]byte(`{"model":"m"}`))
	return c
}

var eventStream = http.Header{"Content-Type": {"text/event-stream"}}
var plainJSON = http.Header{"Content-Type": {"application/json"}}

// The budget counts what is reported as soon as it is.
func TestBudgetWithinAStream(t *testing.T) {
	b := NewBook(100)
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

// Bedrock tells in fields what models cost whose answers have another form.
func TestAmazon(t *testing.T) {
	b := NewBook(0)
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

// Calls at the same time share the budget, and nothing is counted twice or lost.
func TestBudgetShared(t *testing.T) {
	b := NewBook(16 * 35 * 2)
	f := named(t, "anthropic-stream") // 35 tokens of input at once, 142 of output at the end
	head, tail, _ := bytes.Cut(f.body, []byte("event: message_delta"))
	var calls []*Call
	for range 16 {
		c := begun(b, f.path)
		c.Response(200, f.header)
		if c.Body(head) {
			t.Fatal("over before its time")
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
		t.Error("a call goes on when others have spent the budget")
	}
}

// Whoever has no figures sent, or breaks off before they come, does not get by the budget.
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
			100 + 9, "the exchange broke off: the guest went away; the provider did not say what the output cost; the budget was charged 7 tokens more, one for each byte of text"},
		{"not understood", "/v1/messages", "what is this", nil,
			13 + 12, "the stream ended before the answer did; the provider sent no usage; the budget was charged 25 tokens more, one for each byte of text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBook(1000)
			call := begun(b, c.path)
			call.Response(200, eventStream)
			call.Body([]byte(c.body))
			e := call.Finish(c.err)
			if e.Incomplete != c.reason || e.Spent != c.spent || b.spent.Load() != c.spent {
				t.Errorf("%d spent: %s", e.Spent, e.Incomplete)
			}
			if e.InputTokens+e.OutputTokens > 102 {
				t.Error("figures were made up")
			}
		})
	}
	for _, b := range []*Book{NewBook(0), NewBook(1000)} {
		call := begun(b, "/v1/messages")
		call.Response(200, eventStream)
		call.Body([]byte("data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"))
		if e := call.Finish(nil); e.Spent != 0 {
			t.Errorf("%d spent on nothing, of %d", e.Spent, e.Budget)
		}
	}
	b := NewBook(0)
	call := begun(b, "/v1/messages")
	call.Response(200, eventStream)
	if e := call.Finish(nil); e.Spent != 0 {
		t.Errorf("%d spent without a budget", e.Spent)
	}
}

func TestFiguresThatCannotBe(t *testing.T) {
	for _, figure := range []string{"-5", "1e300", "1.5", `"7"`, "99999999999999999999", "[1]", "{}", "true"} {
		b := NewBook(1000)
		c := begun(b, "/v1/chat/completions")
		c.Response(200, plainJSON)
		c.Body([]byte(`{"model":"x","usage":{"prompt_tokens":3,"completion_tokens":` + figure + `}}`))
		e := c.Finish(nil)
		if e.InputTokens != 3 || e.OutputTokens != 0 || !strings.Contains(e.Incomplete, "a figure that cannot be") || e.Model != "x" {
			t.Errorf("%s: %+v", figure, e)
		}
	}
	b := NewBook(10)
	for range 100 {
		b.spend(1 << 60)
		if b.Spent() == nil {
			t.Fatal("the budget is free again")
		}
	}
}

// A request counts as a retry when an equal one failed before it began.
func TestRetry(t *testing.T) {
	b := NewBook(0)
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
		t.Error("calls at the same time are no retries of each other")
	}
	for i := range 3 * maxBroken {
		c := b.Begin(Request{Method: "POST", Path: fmt.Sprint("/", i, "/v1/messages")})
		c.Finish(errors.New("broken"))
	}
	if n := len(b.broken.at); n != maxBroken || b.broken.order.Len() != n {
		t.Error(n, "failures are remembered")
	}
}

func TestAsked(t *testing.T) {
	b := NewBook(0)
	if call, _ := b.Asked([]string{"ls"}); call != "" {
		t.Error("asked before anything was")
	}
	b.asked.add("m1", "t1", []byte(`{"command":" ls -la /work\n","cwd":"/work/dir"}`))
	b.asked.add("m1", "t2", []byte(`{"command":["bash","-lc","make -j2 test"]}`))
	b.asked.add("m2", "t3", []byte(`{"steps":[{"run":"go vet ./..."},{"run":"cd sub && git commit -m 'a b'"}],"n":12,"x":"no"}`))
	b.asked.add("m3", "t4", []byte(`echo not json`))
	for _, c := range []struct {
		argv string // elements separated by |
		tool string
	}{
		{"sh|-c|ls -la /work", "t1"},
		{"sh|-c| ls -la /work ", "t1"},
		{"ls|-la|/work", "t1"},
		{"/usr/bin/env|ls|-la|/work", "t1"},
		{"bash|-lc|make -j2 test", "t2"},
		{"timeout|60|bash|-lc|make -j2 test", "t2"},
		{"make|-j2|test", "t2"},
		{"go|vet|./...", "t3"},
		{"bash|-lc|cd sub && git commit -m 'a b'", "t3"},
		{"/bin/bash|-c|-l|source /x.sh && eval 'cd sub && git commit -m 'a b'' < /dev/null && pwd", "t3"},
		{"sh|-c|echo not json", "t4"},
		{"cat|/work/dir", "t1"},
		{"bash|-c|cd /work/dir && rm -rf x", ""}, // a path alone is no command
		{"bash|script|xx; ls -la /work", ""},     // no -c
		{"x|no", ""},                             // too short
		{"ls", ""},
		{"", ""},
		{"sh|-c", ""},
	} {
		if _, tool := b.Asked(strings.Split(c.argv, "|")); tool != c.tool {
			t.Errorf("%s: %q, want %q", c.argv, tool, c.tool)
		}
	}
	b.asked.add("m4", "t5", []byte(`{"command":"ls -la /work"}`))
	if call, tool := b.Asked([]string{"sh", "-c", "ls -la /work"}); call != "m4" || tool != "t5" {
		t.Error(call, tool, "is not the latest")
	}
	b.Asked(nil)
}

// What is remembered is bounded, and the latest of it is found.
func TestAskedIsBounded(t *testing.T) {
	b := NewBook(0)
	for i := range 1000 {
		b.asked.add("m", fmt.Sprint(i), fmt.Appendf(nil, `{"always":"the same","command":"run %d","more":[%s"z"]}`, i, strings.Repeat(fmt.Sprintf(`"arg %d",`, i), 300)))
	}
	if n := len(b.asked.turn); n != maxAsked || len(b.asked.where) > maxAsked*maxLeaves {
		t.Error(n, len(b.asked.where))
	}
	if _, tool := b.Asked([]string{"run", "999"}); tool != "999" {
		t.Error(tool)
	}
	if _, tool := b.Asked([]string{"run", "1"}); tool != "" {
		t.Error(tool)
	}
	if _, tool := b.Asked([]string{"the", "same"}); tool != "999" {
		t.Error(tool)
	}
}

// A command can be looked for as soon as its tool call is whole, before the stream has ended.
func TestAskedWithinAStream(t *testing.T) {
	for name, argv := range map[string][]string{
		"anthropic-stream":        {"sh", "-c", "echo \"hé\" > é.txt"},
		"openai-stream":           {"uname", "-a"},
		"openai-responses-stream": {"date", "-u"},
		"gemini-array":            {"ps", "aux"},
		"gemini-json":             {"df", "-h"},
		"openai-json":             {"bash", "-lc", "make test"},
	} {
		f := named(t, name)
		b := NewBook(0)
		c := b.Begin(Request{Method: f.method, Path: f.path})
		c.Response(f.status, f.header)
		if c.Body(f.body); true {
			if call, tool := b.Asked(argv); call != c.ID() || tool == "" {
				t.Errorf("%s: %q %q", name, call, tool)
			}
		}
		c.Finish(nil)
	}
}

func TestBrokenOff(t *testing.T) {
	for _, f := range load(t) {
		for _, n := range []int{0, 1, len(f.body) / 2, len(f.body) * 9 / 10} {
			b := NewBook(0)
			c := b.Begin(Request{Method: f.method, Path: f.path})
			c.Response(f.status, f.header)
			c.Body(f.body[:n])
			e := c.Finish(nil)
			whole := stable(f.play(NewBook(0), atOnce))
			if e.Incomplete == "" && f.status == 200 && e.API != "count_tokens" && (e.InputTokens != whole.InputTokens || e.OutputTokens != whole.OutputTokens) {
				t.Errorf("%s: cut at %d of %d, and not a word of it", f.name, n, len(f.body))
			}
			if e.InputTokens > whole.InputTokens || e.OutputTokens > whole.OutputTokens {
				t.Errorf("%s: cut at %d has more tokens than the whole", f.name, n)
			}
		}
	}
	c := begun(NewBook(0), "/v1/messages")
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
		{"application/json", "", `{"a":1}}`, "a bracket closes"},
		{"application/json", "", strings.Repeat("[", 300), "nested too deeply"},
		{"application/json", "", `{"model":"` + strings.Repeat("x", maxText) + `"}`, "it is too long"},
		{"application/json", "", `{"` + strings.Repeat("x", maxKey+1) + `":1}`, "name is too long"},
		{"application/json", "", `{"model":tru}`, "no JSON"},
		{"application/json", "", `{"model":7,"choices":3}`, "was not understood"},
		{"application/json", "bogus", `{}`, "content coding \"bogus\" is not known"},
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
		call := begun(NewBook(0), "/v1/chat/completions")
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

// Events are known for what they are where the server gives them no name, or a wrong one.
func TestUnnamed(t *testing.T) {
	for _, f := range load(t) {
		for _, kind := range []string{"", "text/plain", "nonsense/"} {
			g := f
			g.header = http.Header{"Content-Type": {kind}}
			g.body = append([]byte(" \r\n"), f.body...)
			same(t, stable(g.play(NewBook(0), byOne)), f.wanted(t))
		}
	}
}

// Large things that do not matter do not matter.
func TestLarge(t *testing.T) {
	b := NewBook(0)
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

// A body that becomes very large is not read to its end, and takes no memory.
func TestBomb(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range 140 {
		w.Write(bytes.Repeat([]byte(" "), 1<<20))
	}
	w.Close()
	c := begun(NewBook(0), "/v1/messages")
	c.Response(200, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}})
	c.Body(packed.Bytes())
	if e := c.Finish(nil); !strings.HasPrefix(e.Incomplete, "the answer was not read to its end: it is longer than 128 MiB") {
		t.Error(e.Incomplete)
	}
}

// An answer with very many and very long tool calls makes an event that can be recorded.
func TestManyToolCalls(t *testing.T) {
	b := NewBook(0)
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

// Arguments are cut only where no string is.
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

// What an event tells is known when its last byte has come, in every coding that a
// server flushes: nothing waits for what follows.
func TestAtOnce(t *testing.T) {
	for coding, coder := range coders {
		var packed bytes.Buffer
		w := coder(&packed)
		b := NewBook(0)
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
		c := begun(NewBook(0), "/v1/messages")
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

// Pieces of request and answer, looks at the book and the end may come at the same time.
func TestConcurrent(t *testing.T) {
	b := NewBook(1 << 30)
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
